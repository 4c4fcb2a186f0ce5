"""Instructions that QEMU's plugin counts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.arm_instructions import loop_share, measured, pointwise
from benchmarks.qemu import count
from tests.support.machines import not_emulated
from tinyai.errors import ToolchainError
from tinyai.target import Target

# add is 0b1001 0001 with an immediate: x0 += 1.
ADD_ONE = (0xFFFFFFFF, 0x91000400)
LOOP = """
__attribute__((noinline)) long counted(long times) {
    long sum;
    __asm__ volatile("mov x0, #0\\n1: add x0, x0, #1\\ncmp x0, %1\\nb.ne 1b\\nmov %0, x0"
                     : "=r"(sum) : "r"(times) : "x0", "cc");
    return sum;
}
int main(int count, char **names) { (void)names; return counted(1000L * count) != 1000L * count; }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    reason = not_emulated("aarch64")
    if reason:
        pytest.skip(reason)
    folder: Path = tmp_path_factory.mktemp("qemu")
    (folder / "loop.c").write_text(LOOP)
    command = ["aarch64-linux-gnu-gcc", "-O1", "-static", str(folder / "loop.c"), "-o"]
    subprocess.run([*command, str(folder / "loop")], check=True)
    return ["qemu-aarch64", str(folder / "loop")]


def test_a_loop_counts_its_instructions_and_those_that_fit(program: list[str]) -> None:
    once = count(program, [ADD_ONE]).of("counted")
    twice = count([*program, "more"], [ADD_ONE]).of("counted")
    assert (once.fitting, twice.fitting) == (1000, 2000)
    assert twice.without(once).instructions == 3 * 1000


def test_counts_are_the_same_in_every_run(program: list[str]) -> None:
    first, second = count(program, [ADD_ONE]), count(program, [ADD_ONE])
    assert first == second
    assert first.instructions > first.of("counted").instructions > 3000


def test_a_program_that_fails_is_an_error_that_says_so(program: list[str]) -> None:
    with pytest.raises(ToolchainError, match="exit code 1"):
        count([program[0], "-no-such-option", program[1]])
    with pytest.raises(ToolchainError, match="did not run"):
        count(["qemu-of-no-machine", program[1]])


def test_a_pointwise_layer_runs_a_product_for_as_many_multiply_accumulates_as_it_has(
    program: list[str],
) -> None:
    target = Target(isa="dotprod")
    row = measured("pointwise", pointwise(64), target)
    tiles = row.counts.of("tinyai_tile")
    outputs = -(-14 * 14 // 5) * 5  # tiles of five
    assert tiles.fitting == outputs * 64 * 64 // 16
    assert row.counts.instructions > tiles.instructions > tiles.fitting
    assert 0.85 < loop_share(target) < 1
