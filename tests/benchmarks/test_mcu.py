"""Packages on QEMU's machines without an operating system: what a run computes and takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mcu import run
from benchmarks.mcu.machines import MACHINES, Machine, Size, measure
from tests.support.prequantized import tflite_path
from tests.support.skipped import LACKS
from tinyai.errors import ToolchainError

each_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)

QUICK = ("Cortex-M4", "RV32IMAC")
# As a package is: a function of its name that takes an instance, an input and an output.
RUN = """
#include <stdint.h>
#include <string.h>
__attribute__((noipa)) static uint32_t loop(uint32_t times) {
    uint32_t sum = 0;
    do {
        __asm__ volatile("" : "+r"(sum), "+r"(times));
        sum += 3;
    } while (--times != 0);
    return sum;
}
int net_run(void *unused, const int8_t *in, int8_t *out);
int net_run(void *unused, const int8_t *in, int8_t *out) {
    volatile char used[STACK];
    (void)unused;
    used[0] = in[0];
    out[0] = (int8_t)loop(1000) + used[0];
    FAULT;
    return 0;
}
"""
TEST = """
#include <stdint.h>
#include <stdio.h>
int net_run(void *unused, const int8_t *in, int8_t *out);
static const int8_t input[1] = {5};
static int8_t output[1];
int main(void) {
    if (net_run(NULL, input, output) != 0 || output[0] != EXPECTED) {
        printf("element %lu: found %ld, ", 0ul, (long)output[0]);
        printf("expected %d of %s%c\\n", EXPECTED, "it", '.');
        return 1;
    }
    printf("OK\\n");
    return 0;
}
"""
RIGHT = 3000 % 256 - 256 + 5  # as int8


def require(machine: Machine) -> None:
    if machine.missing():
        pytest.skip(f"{LACKS}{machine.name}: no {' and no '.join(machine.missing())}")


def written(folder: Path, *, expected: int = RIGHT, stack: int = 8, fault: str = "(void)0") -> Path:
    """A package by hand."""
    folder.mkdir(exist_ok=True)
    text = RUN.replace("STACK", str(stack)).replace("FAULT", fault)
    (folder / "net.c").write_text(text)
    (folder / "net_test.c").write_text(TEST.replace("EXPECTED", str(expected)))
    return folder


@each_machine
def test_instructions_of_one_call_are_counted_alone_and_the_same_each_time(
    machine: Machine, tmp_path: Path
) -> None:
    require(machine)
    first, again = (measure(machine, written(tmp_path), "net", "-Os") for _ in range(2))
    assert first == again
    counts = {each.name: each.instructions for each in first.counts.functions}
    # An addition, a count and a branch; arm's subtraction compares too.
    assert 3 * 1000 <= counts.pop("loop") <= 3 * 1000 + 10
    assert counts.keys() == {"net_run"}
    assert 5 < counts["net_run"] < 50


@each_machine
def test_the_stack_of_a_call_is_seen(machine: Machine, tmp_path: Path) -> None:
    require(machine)
    little = measure(machine, written(tmp_path), "net", "-Os").stack
    much = measure(machine, written(tmp_path, stack=1008), "net", "-Os").stack
    assert 8 <= little < 100
    # Of an array only what is touched shows: its first byte does.
    assert much - little == 1000


@each_machine
def test_another_result_and_a_fault_are_errors_that_say_so(
    machine: Machine, tmp_path: Path
) -> None:
    require(machine)
    with pytest.raises(ToolchainError, match="element 0: found -67, expected 7 of it"):
        measure(machine, written(tmp_path / "wrong", expected=7), "net", "-O2")
    instruction = (
        '__asm__ volatile(".short 0xde00")'
        if "arm" in machine.compiler
        else "*(volatile int *)4 = 1"
    )
    with pytest.raises(ToolchainError, match="fault"):
        measure(machine, written(tmp_path / "fault", fault=instruction), "net", "-O2")


def test_a_package_that_does_not_compile_is_an_error_that_shows_the_compilers_words(
    tmp_path: Path,
) -> None:
    require(MACHINES[0])
    written(tmp_path)
    (tmp_path / "net.c").write_text("int net_run(void) { return nothing; }\n")
    with pytest.raises(ToolchainError, match="'nothing' undeclared"):
        measure(MACHINES[0], tmp_path, "net", "-O2")


def check_page(network: run.Network, machines: list[Machine], folder: Path) -> None:
    """A network computes the same on machines as here, and takes what the page says."""
    tflite_path(network.file)
    for machine in machines:
        require(machine)
    macs = run.package(network, folder).report.macs
    measured = list(run.rows(network, folder, machines))
    sizes = [each.sizes for row in measured for each in row.measured]
    for size in (
        by_name[of] for by_name in sizes for of in (network.name, f"{network.name}_weights")
    ):
        assert size == Size(size.text, 0, 0)
    page = run.PAGE.read_text().splitlines()
    if f"Made with {', '.join(run.tools())}." not in page:
        pytest.skip(f"the page was not made with {', '.join(run.tools())}")
    for row in measured:
        line = f"| {' | '.join(run.cells(row, macs))} |"
        assert line in page, "what the C takes has changed: run `make mcu`, and look at it"


def test_keyword_spotting_computes_the_same_there_and_takes_what_the_page_says(
    tmp_path: Path,
) -> None:
    (network,) = (each for each in run.NETWORKS if each.name == "kws")
    check_page(network, [each for each in MACHINES if each.name in QUICK], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("network", run.NETWORKS, ids=lambda network: network.name)
def test_a_network_computes_the_same_everywhere_and_takes_what_the_page_says(
    network: run.Network, tmp_path: Path
) -> None:
    check_page(network, list(MACHINES), tmp_path)
