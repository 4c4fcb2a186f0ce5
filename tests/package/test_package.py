"""The C package: what compilers say of it, what it computes, and what its report says of it.

The networks are those of the shared folder; what fails in general is tried on small graphs.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.c_checks import WARNINGS, missing, run_command
from tests.support.example_graphs import branching_network, small_network
from tests.support.prequantized import LARGE, TFLITE, from_tflite, sample_inputs, tflite_path
from tinyai.codegen.plan import Space
from tinyai.errors import OptionError
from tinyai.frontends.relay.whole import network_of
from tinyai.ir import Builder, DType, Graph, QParams, Type
from tinyai.network import Network, network_of_graph
from tinyai.ops import Elementwise
from tinyai.ops.steps import Relu
from tinyai.package import Package, emit_c, package_of
from tinyai.package.make import _scale
from tinyai.package.measure import FLAGS
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target

SCALAR = Target(isa="scalar", rounding="tflite")
STRICT = (*WARNINGS, "-Wconversion", "-Wcast-align", "-Wvla")
LANGUAGES = {
    "gcc": ("-std=c99",),
    "clang": ("-std=c99",),
    "g++": ("-xc++", "-std=c++17"),
    "clang++": ("-xc++", "-std=c++17"),
}
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# What the portable form may ask of a machine without an operating system.
BARE = {
    "arm-none-eabi-gcc": ("-mcpu=cortex-m4", "-mthumb"),
    "riscv64-unknown-elf-gcc": ("-march=rv32imac", "-mabi=ilp32", "-ffreestanding"),
}
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in ("mcunet_vww", *LARGE) else name
    for name in TFLITE
]


@functools.cache
def network(name: str) -> Network:
    return network_of(tflite_path(name), SCALAR)


@functools.cache
def package(name: str, *, isa: str = "scalar", ports_in_arena: bool = False) -> Package:
    """The package of a TFLite file, with a real input where there is one."""
    mod = from_tflite(tflite_path(name).read_bytes())
    sample = next((list(values.values()) for values in sample_inputs(name, mod, 1)), None)
    target = replace(SCALAR, isa=isa)
    return package_of(network(name), target, ports_in_arena=ports_in_arena, sample=sample)


@functools.cache
def small(name: str = "small", *, isa: str = "scalar", ports_in_arena: bool = False) -> Package:
    made = network_of_graph(small_network(), name)
    return package_of(made, Target(isa=isa), ports_in_arena=ports_in_arena)


def require(command: str) -> None:
    if missing(command):
        pytest.skip(missing(command) or "")


def build(made: Package, folder: Path, command: Sequence[str], *more: str) -> Path:
    """The test program, by a compiler that may say nothing."""
    made.write(folder)
    name = made.name
    units = [str(folder / f"{name}{unit}.c") for unit in ("", "_weights", "_test")]
    program = folder / "program"
    math = ["-xnone", "-lm"] if made.report.math else []
    run_command([*command, *more, f"-I{folder}", *units, "-o", str(program), *math])
    return program


def says(command: Sequence[object]) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == (done.stdout != "OK\n"), done
    return done.stdout + done.stderr


# --- Compilers -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("compiler", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_package_compiles_without_a_word_and_its_test_prints_ok(
    name: str, compiler: str, tmp_path: Path
) -> None:
    require(compiler)
    command = [compiler, *LANGUAGES[compiler], *STRICT, "-O1"]
    assert says([build(package(name), tmp_path, command)]) == "OK\n"


@pytest.mark.long
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", NAMES)
def test_a_package_has_no_undefined_behaviour(name: str, compiler: str, tmp_path: Path) -> None:
    require(compiler)
    command = [compiler, "-std=c99", "-O1", *SANITIZE]
    assert says([build(package(name), tmp_path, command)]) == "OK\n"


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_package_runs_on_another_architecture(name: str, tmp_path: Path) -> None:
    require("aarch64-linux-gnu-gcc")
    require("qemu-aarch64")
    command = ["aarch64-linux-gnu-gcc", "-std=c99", *STRICT, "-O1", "-static"]
    program = build(package(name), tmp_path, command)
    assert says(["qemu-aarch64", program]) == "OK\n"


@pytest.mark.long
@pytest.mark.parametrize("compiler", BARE)
@pytest.mark.parametrize("name", NAMES)
def test_compilers_of_bare_machines_take_a_package(
    name: str, compiler: str, tmp_path: Path
) -> None:
    require(compiler)
    made = package(name)
    made.write(tmp_path)
    for unit in (made.name, f"{made.name}_weights"):
        flags = ["-std=c99", *STRICT, "-Os", *BARE[compiler]]
        run_command([compiler, *flags, "-c", str(tmp_path / f"{unit}.c"), "-o", os.devnull])


# It takes minutes for a network of many different layers.
CHECKED = [
    pytest.param(name, marks=pytest.mark.slow) if name in ("vww_96_int8", *LARGE) else name
    for name in TFLITE
    if name != "mcunet_vww"
]


@pytest.mark.long
@pytest.mark.parametrize("name", CHECKED)
def test_cppcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    require("cppcheck")
    made = package(name)
    made.write(tmp_path)
    checks = ["--std=c99", "--enable=warning,performance,portability", "--error-exitcode=1"]
    # Tables of numbers hold nothing to find, and take long.
    units = [str(tmp_path / f"{made.name}{unit}.c") for unit in ("", "_test")]
    run_command(["cppcheck", "--quiet", *checks, *units])


@pytest.mark.parametrize("isa", ["generic", "auto"])
@pytest.mark.parametrize("compiler", LANGUAGES)
def test_a_package_of_simd_code_has_the_same_interface(
    isa: str, compiler: str, tmp_path: Path
) -> None:
    require(compiler)
    made = small(isa=isa)
    language = [flag.replace("c99", "gnu99") for flag in LANGUAGES[compiler]]
    assert says([build(made, tmp_path, [compiler, *language, *STRICT, "-O1"])]) == "OK\n"
    header = re.compile(r"^int small_\w+\(.*\);$", re.MULTILINE)
    assert header.findall(text(made, "small.h")) == header.findall(text(small(), "small.h"))


# --- What objects hold ---------------------------------------------------------------------------


def objects(made: Package, folder: Path, *flags: str) -> list[Path]:
    require("gcc")
    require("nm")
    made.write(folder)
    for unit in ("", "_weights"):
        file = folder / f"{made.name}{unit}"
        run_command(["gcc", "-std=c99", *flags, "-c", f"{file}.c", "-o", f"{file}.o"])
    return [folder / f"{made.name}.o", folder / f"{made.name}_weights.o"]


def symbols(files: Sequence[Path]) -> dict[str, set[str]]:
    """Names by the letter that nm gives their kind."""
    listed = subprocess.run(["nm", *map(str, files)], capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = {}
    for line in listed.stdout.splitlines():
        if match := re.fullmatch(r"[0-9a-f ]{16} ([A-Za-z]) (\S+)", line):
            found.setdefault(match[1], set()).add(match[2])
    return found


@pytest.mark.parametrize("flags", [("-Os",), ("-Os", "-DTINYAI_HOOK", "-DSTATIC")])
@pytest.mark.parametrize("name", NAMES)
def test_all_global_symbols_have_the_prefix_and_nothing_is_asked_for_but_memory_functions(
    name: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    made = package(name)
    flags = tuple(f.replace("STATIC", f"{made.name.upper()}_STATIC_ARENA") for f in flags)
    found = symbols(objects(made, tmp_path, *flags))
    assert not {*found} & {"W", "V", "w", "v"}, "weak symbols"
    defined = {name for kind, names in found.items() if kind.isupper() for name in names}
    defined -= found["U"]
    assert f"{made.name}_run" in defined
    assert all(symbol.startswith(f"{made.name}_") for symbol in defined)
    others = {name for name in found["U"] if not name.startswith(f"{made.name}_")}
    assert others <= {"memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_"}


@pytest.mark.parametrize("name", NAMES)
def test_the_portable_form_is_plain_c(name: str) -> None:
    made = package(name)
    code = "".join(text(made, f"{made.name}{unit}") for unit in (".h", ".c", "_weights.c"))
    included = set(re.findall(r"#include (.*)", code))
    assert included <= {"<stdint.h>", "<stddef.h>", "<string.h>", f'"{made.name}.h"'}
    for forbidden in ("malloc", "aligned(", "O3", "weak", "printf", "pthread", "asm"):
        assert forbidden not in code, forbidden


def test_weights_take_their_bytes_and_no_more(tmp_path: Path) -> None:
    made = package("kws_ref_model")
    sized = re.findall(
        r"^const (\w+) \w+\[(\d+)\] =", text(made, "kws_ref_model_weights.c"), re.MULTILINE
    )
    sizes = {"int8_t": 1, "uint8_t": 1, "int32_t": 4}
    assert made.report.weight_bytes == sum(sizes[kind] * int(count) for kind, count in sized)
    assert "KWS_REF_MODEL_WEIGHT_BYTES 28272" in text(made, "kws_ref_model.h")


def test_what_is_optimized_is_the_command_lines_to_say(tmp_path: Path) -> None:
    """The pragma that keeps products and sums of floats apart leaves -Os alone."""
    made = package("kws_ref_model")
    sizes = []
    for folder, pragma in ((tmp_path / "with", True), (tmp_path / "without", False)):
        code, _ = objects(made, folder, "-Os")
        if not pragma:
            file = folder / "kws_ref_model.c"
            file.write_text(file.read_text().replace("#pragma GCC optimize", "// "))
            run_command(["gcc", "-Os", "-c", str(file), "-o", str(code)])
        sizes.append(subprocess.check_output(["size", str(code)]).split()[6])
    assert sizes[0] == sizes[1]


def test_code_of_one_network_does_not_link_with_the_weights_of_another(tmp_path: Path) -> None:
    require("gcc")
    one, other = small(), small()
    weights = network_of_graph(small_network("NHWC"), "small")
    graph = weights.graph
    name, value = next((n, v) for n, v in graph.constants.items() if v.dtype == np.int8)
    changed = replace(graph, constants={**graph.constants, name: value ^ 1})
    other = package_of(replace(weights, graph=changed), Target(isa="scalar"))
    one.write(tmp_path)
    (tmp_path / "small_weights.c").write_bytes(other.files["small_weights.c"])
    units = [str(tmp_path / f"small{unit}.c") for unit in ("", "_weights", "_test")]
    done = subprocess.run(["gcc", *units, "-o", os.devnull], capture_output=True, check=False)
    assert b"undefined reference to `small_constant_" in done.stderr
    assert one.report.hash != other.report.hash


# --- Programs ------------------------------------------------------------------------------------

SEVERAL = """
#include "one.h"
#include "two.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static ONE_INPUT0_TYPE input[ONE_INPUT0_ELEMENTS];
static ONE_OUTPUT0_TYPE expected[ONE_OUTPUT0_ELEMENTS];
static int64_t rooms[4][ONE_ARENA_BYTES / 8 + 1];

static void *work(void *number) {
    ONE_OUTPUT0_TYPE output[ONE_OUTPUT0_ELEMENTS];
    one_t net;
    long wrong = one_init(&net, rooms[(long)number], sizeof rooms[0]);
    for (int run = 0; run < 200; ++run) {
        wrong += one_run(&net, input, output) || memcmp(output, expected, sizeof output);
    }
    return (void *)wrong;
}

int main(void) {
    pthread_t threads[3];
    one_t one;
    two_t two;
    TWO_OUTPUT0_TYPE other[TWO_OUTPUT0_ELEMENTS];
    void *wrong;
    for (size_t i = 0; i < ONE_INPUT0_ELEMENTS; ++i) {
        input[i] = (ONE_INPUT0_TYPE)((int)(i * 7 % 100) - 50);
    }
    if (one_init(&one, rooms[3], sizeof rooms[3]) || one_run(&one, input, expected)) return 2;
    for (long i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, work, (void *)i);
    if (two_init(&two, rooms[3], sizeof rooms[3]) || two_run(&two, input, other)) return 3;
    if (memcmp(other, expected, sizeof other)) return 4;
    for (long i = 0; i < 3; ++i) {
        pthread_join(threads[i], &wrong);
        if (wrong) return 5;
    }
    printf("OK\\n");
    return 0;
}
"""


def test_two_networks_are_one_program_and_instances_overlap_in_threads(tmp_path: Path) -> None:
    require("gcc")
    for name in ("one", "two"):
        small(name).write(tmp_path)
    (tmp_path / "main.c").write_text(SEVERAL)
    units = [f"{name}{unit}.c" for name in ("one", "two") for unit in ("", "_weights")]
    files = [str(tmp_path / unit) for unit in (*units, "main.c")]
    program = tmp_path / "program"
    flags = ["-std=gnu99", "-O1", "-fsanitize=thread", "-pthread"]
    run_command(["gcc", *flags, *files, "-o", str(program)])
    assert says([program]) == "OK\n"


ERRORS = """
#include "small.h"
#include <stdio.h>
#include <string.h>

static union { unsigned char bytes[SMALL_ARENA_BYTES + 8]; int64_t aligned; } room;

int main(void) {
    small_t net;
    SMALL_INPUT0_TYPE in[SMALL_INPUT0_ELEMENTS] = { 0 };
    SMALL_OUTPUT0_TYPE out[SMALL_OUTPUT0_ELEMENTS];
    memset(&net, 0, sizeof net);
    printf("%d ", small_run(&net, in, out));
    printf("%d ", small_init(NULL, room.bytes, sizeof room));
    printf("%d ", small_init(&net, NULL, sizeof room));
    printf("%d ", small_init(&net, room.bytes, SMALL_ARENA_BYTES - 1));
    printf("%d ", small_init(&net, room.bytes, 0));
    printf("%d ", small_init(&net, room.bytes + 1, SMALL_ARENA_BYTES));
    printf("%d ", small_run(&net, in, out));
    printf("%d ", small_init(&net, room.bytes, SMALL_ARENA_BYTES));
    printf("%d ", small_run(NULL, in, out));
    printf("%d %d ", small_run(&net, NULL, out), small_run(&net, in, NULL));
    room.bytes[SMALL_ARENA_BYTES] = 77;
    printf("%d %d\\n", small_run(&net, in, out), room.bytes[SMALL_ARENA_BYTES]);
    return 0;
}
"""


def test_arenas_that_do_not_fit_and_pointers_that_are_null_are_errors(tmp_path: Path) -> None:
    require("gcc")
    small().write(tmp_path)
    (tmp_path / "errors.c").write_text(ERRORS)
    files = [str(tmp_path / f"{unit}.c") for unit in ("small", "small_weights", "errors")]
    program = tmp_path / "program"
    run_command(["gcc", "-std=c99", *STRICT, *SANITIZE, *files, "-o", str(program)])
    found = subprocess.check_output([program], text=True).split()
    assert found == ["-4", "-1", "-1", "-2", "-2", "-3", "-4", "0", "-1", "-1", "-1", "0", "77"]


@pytest.mark.parametrize("isa", ["scalar", "auto"])
def test_a_static_arena_serves_where_the_caller_has_none(isa: str, tmp_path: Path) -> None:
    require("gcc")
    # Without optimization gcc's own intrinsics are macros, which -Wconversion warns of.
    command = ["gcc", "-std=gnu99", *STRICT, "-O1", "-DSMALL_STATIC_ARENA"]
    assert says([build(small(isa=isa), tmp_path, command)]) == "OK\n"


def test_weights_and_the_static_arena_lie_in_the_sections_that_are_asked_for(
    tmp_path: Path,
) -> None:
    require("objdump")
    attributes = [f'-DSMALL_{what}_ATTR=__attribute__((section(".{what}")))' for what in
                  ("WEIGHTS", "ARENA")]  # fmt: skip
    files = objects(small(), tmp_path, "-DSMALL_STATIC_ARENA", *attributes)
    listed = subprocess.check_output(["objdump", "-h", *map(str, files)], text=True)
    sizes = {name: int(size, 16) for name, size in re.findall(r"\d+ (\.\w+) +(\w+)", listed)}
    assert sizes[".ARENA"] == small().report.arena_bytes
    assert sizes[".WEIGHTS"] >= small().report.weight_bytes


@pytest.mark.long
@pytest.mark.parametrize("isa", ["scalar", "auto"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_inputs_and_outputs_may_live_in_the_arena(isa: str, compiler: str, tmp_path: Path) -> None:
    require(compiler)
    made = small(isa=isa, ports_in_arena=True)
    command = [compiler, "-std=gnu99", *STRICT, "-O1", *SANITIZE]
    assert says([build(made, tmp_path, command)]) == "OK\n"
    ports = sum(port.bytes for port in (*made.report.inputs, *made.report.outputs))
    outside = small(isa=isa).report
    assert made.report.ports_saved == outside.arena_bytes + ports - made.report.arena_bytes
    assert outside.ports_saved is None
    assert f"saves {made.report.ports_saved:,} bytes" in text(made, "small_report.txt")


def test_in_the_arena_a_network_shares_its_input_with_what_comes_later() -> None:
    inside = package("kws_ref_model", ports_in_arena=True).report
    assert inside.ports_saved == 490 + 12 + 17536 - inside.arena_bytes
    assert inside.ports_saved > 0


@pytest.mark.parametrize("ports_in_arena", [False, True])
def test_a_network_of_several_outputs_has_a_pointer_for_each(
    ports_in_arena: bool, tmp_path: Path
) -> None:
    require("gcc")
    graph = branching_network("NHWC")
    inner = next(node.output for node in graph.nodes if graph.type(node.output).bytes > 64)
    graph = replace(graph, outputs=(*graph.outputs, inner))
    made = package_of(
        network_of_graph(graph, "two"), Target(isa="scalar"), ports_in_arena=ports_in_arena
    )
    command = ["gcc", "-std=c99", *STRICT, *SANITIZE]
    assert says([build(made, tmp_path, command)]) == "OK\n"


def test_a_network_without_intermediate_tensors_needs_no_arena(tmp_path: Path) -> None:
    require("gcc")
    b = Builder("plain")
    made = b.graph([b.add(Elementwise((2, 3)), [b.input(Type((2, 3), DType.INT8))], (Relu(),))])
    made = package_of(network_of_graph(made, "plain"), Target(isa="scalar"))
    assert made.report.arena_bytes == 0
    command = ["gcc", "-std=c99", *STRICT, *SANITIZE]
    assert says([build(made, tmp_path, command)]) == "OK\n"


def test_the_test_program_names_the_first_difference(tmp_path: Path) -> None:
    require("gcc")
    made = small()
    made.write(tmp_path)
    file = tmp_path / "small_weights.c"
    changed = re.sub(r"(int32_t \w+\[\d+\] = \{\n)-?\d+", r"\g<1>999999", file.read_text(), count=1)
    file.write_text(changed)
    units = [str(tmp_path / f"small{unit}.c") for unit in ("", "_weights", "_test")]
    run_command(["gcc", *units, "-o", str(tmp_path / "program")])
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"output 0, element \d+: found \S+, expected \S+\n", done.stdout)


HOOK = """
#include "small.h"
#include <stdio.h>

static void see(int32_t layer, const void *result, size_t bytes) {
    printf("%d %d %lu\\n", (int)layer, result != NULL, (unsigned long)bytes);
}

int main(void) {
    static int64_t arena[SMALL_ARENA_BYTES / 8 + 1];
    static SMALL_INPUT0_TYPE in[SMALL_INPUT0_ELEMENTS];
    static SMALL_OUTPUT0_TYPE out[SMALL_OUTPUT0_ELEMENTS];
    small_t net;
    small_hook = see;
    return small_init(&net, arena, sizeof arena) || small_run(&net, in, out);
}
"""


def test_the_hook_is_called_behind_each_layer_that_the_report_lists(tmp_path: Path) -> None:
    require("gcc")
    made = small()
    made.write(tmp_path)
    (tmp_path / "hook.c").write_text(HOOK)
    files = [str(tmp_path / f"{unit}.c") for unit in ("small", "small_weights", "hook")]
    program = tmp_path / "program"
    run_command(["gcc", "-std=c99", *STRICT, "-DSMALL_HOOK", *files, "-o", str(program)])
    lines = subprocess.check_output([program], text=True).splitlines()
    results = {row.name: row.bytes for row in made.report.tensors}
    expected = [f"{row.number} 1 {results[f'result {row.number}']}" for row in made.report.layers]
    assert lines == expected


@pytest.mark.parametrize("tool", ["make", "cmake"])
def test_the_projects_files_build_the_test_and_run_it(tool: str, tmp_path: Path) -> None:
    require(tool)
    require("gcc")
    folder = small().write(tmp_path / "package")
    if tool == "make":
        said = subprocess.check_output(["make", "-C", str(folder), "test"], text=True)
    else:
        build = tmp_path / "build"
        subprocess.check_output(["cmake", "-S", str(folder), "-B", str(build)])
        subprocess.check_output(["cmake", "--build", str(build)])
        said = subprocess.check_output([build / "small_test"], text=True)
    assert "OK\n" in said
    small().write(folder)  # what make left does not stand in the way


# --- The header and the report -------------------------------------------------------------------


def text(made: Package, name: str) -> str:
    return made.files[name].decode()


def test_the_header_says_what_the_model_file_says() -> None:
    header = text(package("pretrainedResnet_quant"), "pretrainedResnet_quant.h")
    said = dict(
        re.findall(r"^#define PRETRAINEDRESNET_QUANT_(\w+) (.*?)(?: /\*.*)?$", header, re.M)
    )
    assert said["INPUT0_SHAPE"] == "{ 1, 32, 32, 3 }"
    assert (said["INPUT0_BYTES"], said["INPUT0_TYPE"]) == ("3072", "int8_t")
    assert (said["INPUT0_SCALE"], said["INPUT0_ZERO_POINT"]) == ("1.0f", "-128")
    assert said["OUTPUT0_SCALE"] == "0.00390625f"
    assert said["ARENA_BYTES"] == str(package("pretrainedResnet_quant").report.arena_bytes)
    assert re.fullmatch(r'"[0-9a-f]{64}"', said["HASH"])


@pytest.mark.parametrize(
    "scale", [1 / 255, float(np.float32(0.1)), 0.1, 1e-9, 3e20, float(np.float32(1e-8))]
)
def test_a_scale_is_read_back_as_the_same_number(scale: float) -> None:
    said = _scale(scale)
    found = float(np.float32(said[:-1])) if said.endswith("f") else float(said)
    assert found == scale


def test_the_reports_numbers_equal_what_size_says(tmp_path: Path) -> None:
    require("size")
    made = package("kws_ref_model")
    measured = made.report.measured
    assert measured is not None
    sizes = (measured.code, measured.weights)
    for unit, found in zip(objects(made, tmp_path, *FLAGS), sizes, strict=True):
        total = subprocess.check_output(["size", str(unit)], text=True).splitlines()[1].split()[3]
        assert int(total) == found, unit
    assert measured.stack is not None
    assert 0 < measured.stack < 1024


def test_the_stack_is_that_of_the_deepest_chain_of_calls() -> None:
    from tinyai.package.measure import stack_of

    graph = """
node: { title: "a.c:leaf" label: "leaf\\na.c:1:2\\n16 bytes (static)\\n0 dynamic objects" }
node: { title: "a.c:deep" label: "deep\\na.c:1:2\\n100 bytes (static)\\n0 dynamic objects" }
node: { title: "net_run" label: "net_run\\na.c:1:2\\n8 bytes (static)\\n0 dynamic objects" }
node: { title: "memset" label: "__builtin_memset\\n<built-in>" shape : ellipse }
edge: { sourcename: "net_run" targetname: "a.c:leaf" label: "a.c:1:2" }
edge: { sourcename: "net_run" targetname: "a.c:deep" label: "a.c:1:2" }
edge: { sourcename: "a.c:deep" targetname: "a.c:leaf" label: "a.c:1:2" }
edge: { sourcename: "a.c:deep" targetname: "memset" label: "a.c:1:2" }
"""
    assert stack_of(graph, "net_run") == 124
    assert stack_of(graph, "other_run") is None


@pytest.mark.parametrize("ports_in_arena", [False, True])
def test_tensors_that_live_at_once_do_not_overlap(ports_in_arena: bool) -> None:
    report = package("kws_ref_model", ports_in_arena=ports_in_arena).report
    inside = [row for row in report.tensors if row.space == Space.ARENA.value]
    shared = {(row.offset, row.bytes) for row in inside}
    assert max(row.offset + row.bytes for row in inside) <= report.arena_bytes
    assert len(shared) < len(inside)
    for one in inside:
        for other in inside:
            apart = (
                one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
            )
            same = one.offset == other.offset  # a reshape, or a result in its operand's memory
            assert one is other or apart or same or one.last < other.first or other.last < one.first


def test_the_report_is_json_of_a_schema_and_its_layers_add_up() -> None:
    made = package("kws_ref_model")
    data = json.loads(made.files["kws_ref_model_report.json"])
    assert data["schema"] == "tinyai.package/1"
    assert sum(row["macs"] for row in data["layers"]) == data["macs"] == 2656768
    assert data["inputs"][0]["shape"] == [1, 49, 10, 1]
    assert data["measured"]["code"] == made.report.measured.code
    assert "2,656,768" in text(made, "kws_ref_model_report.txt")


def test_a_compiler_that_is_not_there_leaves_code_and_stack_unknown(tmp_path: Path) -> None:
    made = network_of_graph(small_network(), "small")
    package = package_of(made, Target(isa="scalar"), toolchain=Toolchain(str(tmp_path / "none")))
    assert package.report.measured is None
    assert "code" not in text(package, "small_report.txt")


def test_the_same_network_gives_the_same_bytes_in_another_process() -> None:
    program = """
import hashlib
from tests.support.example_graphs import small_network
from tinyai.network import network_of_graph
from tinyai.package import package_of
from tinyai.target import Target
made = package_of(network_of_graph(small_network(), "small"), Target(isa="scalar"))
for name in sorted(made.files):
    print(name, hashlib.sha256(made.files[name]).hexdigest())
"""
    seeds = ({**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2"))
    one, two = (subprocess.check_output([sys.executable, "-c", program], env=env) for env in seeds)
    assert one == two


# --- Names and folders ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["my net.v2 (final)!", "int", "size", "int8", "tinyai", "8bit", "Größe*/", "", "x" * 300],
)
def test_any_name_of_a_file_makes_a_package_that_compiles(name: str, tmp_path: Path) -> None:
    require("gcc")
    made = package_of(network_of_graph(replace(small_network(), name=name)), Target(isa="scalar"))
    assert re.fullmatch(r"[A-Za-z]\w*", made.name)
    command = ["gcc", "-std=c99", *STRICT]
    assert says([build(made, tmp_path, command)]) == "OK\n"


HOSTILE = ['*/ #error "x"', "a\nb\\", "??/", "%s%n", "{{ x }}", "\u202e", "]]>`| #", "x" * 5000]


@pytest.mark.parametrize("said", HOSTILE)
def test_hostile_names_of_ports_and_layers_leave_the_files_whole(said: str, tmp_path: Path) -> None:
    require("gcc")
    plain = network_of_graph(small_network(), "small")
    nodes = tuple(replace(node, sources=(said,)) for node in plain.graph.nodes)
    ports = {
        kind: tuple(replace(port, name=said) for port in getattr(plain, kind))
        for kind in ("inputs", "outputs")
    }
    made = package_of(
        replace(plain, graph=replace(plain.graph, nodes=nodes), **ports), Target(isa="scalar")
    )
    command = ["gcc", "-std=c99", *STRICT]
    assert says([build(made, tmp_path, command)]) == "OK\n"
    assert json.loads(made.files["small_report.json"])["inputs"][0]["name"] == said
    assert "\u202e" not in text(made, "small_report.txt")


def test_a_package_replaces_an_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "a" / "b")
    (folder / "mine.c").write_text("int mine;\n")
    (folder / "small.c").write_text("/* small: generated by tinyai. Do not edit. */\n")
    small().write(folder)
    assert (folder / "small.c").read_bytes() == small().files["small.c"]
    assert {path.name for path in folder.iterdir()} == {*small().files, "mine.c"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_files_of_others_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n")
    with pytest.raises(OptionError, match="Makefile, which tinyai did not write"):
        small().write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]
    with pytest.raises(OptionError, match="found:   a file"):
        small().write(tmp_path / "Makefile")


@pytest.mark.parametrize("full", ["at the first file", "while files are moved"])
def test_where_writing_fails_all_is_as_it_was(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small().write(tmp_path / "package")
    (folder / "small.h").write_text("/* generated by tinyai, before */\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    real, calls = os.replace, []

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def fails_later(one: Path, other: Path) -> None:
        calls.append(one)
        return fails() if len(calls) == 6 else real(one, other)

    if full == "at the first file":
        monkeypatch.setattr(Path, "write_bytes", fails)
    else:
        monkeypatch.setattr(os, "replace", fails_later)
    with pytest.raises(OptionError, match="No space left on device"):
        small().write(folder)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_a_tar_holds_the_folder_and_is_the_same_each_time(tmp_path: Path) -> None:
    archive = small().write_tar(tmp_path / "small.tar")
    again = small().write_tar(tmp_path / "again.tar")
    assert archive.read_bytes() == again.read_bytes()
    shutil.unpack_archive(archive, tmp_path)
    found = {path.name: path.read_bytes() for path in (tmp_path / "small").iterdir()}
    assert found == dict(small().files)


def test_the_licence_in_a_package_is_the_projects() -> None:
    project = Path(__file__).resolve().parents[2] / "LICENSE"
    assert small().files["LICENSE"] == project.read_bytes()


# --- From a model file ---------------------------------------------------------------------------


def test_a_model_file_becomes_a_package_in_one_call(tmp_path: Path) -> None:
    made = emit_c(tflite_path("kws_ref_model"), tmp_path / "kws", SCALAR, name="kws")
    assert made.name == "kws"
    assert (tmp_path / "kws" / "kws.c").read_bytes() == made.files["kws.c"]
    port = made.report.inputs[0]
    assert (port.c_type, port.zero_point, port.shape) == ("int8_t", 83, (1, 49, 10, 1))


@pytest.mark.slow
def test_ends_may_be_integers_where_the_model_quantizes_first(tmp_path: Path) -> None:
    require("gcc")
    path = tflite_path("mcunet_vww")
    floats = emit_c(path, tmp_path / "floats", SCALAR, name="vww").report
    made = emit_c(path, tmp_path / "integers", SCALAR, name="vww", ends="int8")
    assert [port.c_type for port in floats.inputs + floats.outputs] == ["float", "float"]
    assert [port.c_type for port in made.report.inputs + made.report.outputs] == ["int8_t"] * 2
    assert made.report.inputs[0].scale
    assert says([build(made, tmp_path / "integers", ["gcc", "-std=c99", *STRICT])]) == "OK\n"


def test_a_sample_that_does_not_fit_is_an_error() -> None:
    made = network_of_graph(small_network(), "small")
    with pytest.raises(OptionError, match="sample"):
        package_of(made, sample=[])
    with pytest.raises(OptionError, match="sample for input"):
        package_of(made, sample=[np.zeros(3, np.int8)])


def test_threads_are_the_callers() -> None:
    made = network_of_graph(small_network(), "small")
    with pytest.raises(OptionError, match="an instance for each thread"):
        package_of(made, Target(isa="scalar", threads=2))


def test_scales_along_an_axis_are_a_list() -> None:
    graph = small_network()
    plain = network_of_graph(graph, "small")
    shape = plain.outputs[0].type.shape
    quant = QParams(tuple(0.5 + i for i in range(shape[-1])), 3, len(shape) - 1)
    made = package_of(
        replace(plain, outputs=(replace(plain.outputs[0], quant=quant),)), Target(isa="scalar")
    )
    assert f"#define SMALL_OUTPUT0_AXIS {len(shape) - 1}" in text(made, "small.h")
    listed = ", ".join(f"{0.5 + i}f" for i in range(shape[-1]))
    assert f"#define SMALL_OUTPUT0_SCALE {{ {listed} }}" in text(made, "small.h")


def test_graphs_are_models_too(tmp_path: Path) -> None:
    graph: Graph = small_network()
    made = emit_c(graph, tmp_path, Target(isa="scalar"))
    assert made.name == "small_network"
    assert (tmp_path / "small_network_report.json").exists()
