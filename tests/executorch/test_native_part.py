"""The delegate at work in ExecuTorch's runtime, with graphs that were made by hand."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest
import torch
from executorch.devtools import Inspector
from executorch.runtime import Runtime

from tests.executorch.hand_made import (
    NAMES,
    SHAPE,
    Clamp,
    TwoClamps,
    expected,
    image_graph,
    lowered,
    one_method,
    sample,
)
from tests.support.c_checks import missing_sanitizers
from tests.support.paths import ROOT
from tinyai.errors import EnvironmentProblem, ToolchainError
from tinyai.frontends.executorch import backend, native_part
from tinyai.frontends.executorch.blob import MAGIC, PortSpec
from tinyai.frontends.executorch.edge import ends_of
from tinyai.frontends.executorch.native_part import load
from tinyai.ir import Array, Builder, DType, Graph, Type
from tinyai.ops import Elementwise, Reshape
from tinyai.ops.steps import Cast, Clip
from tinyai.target import Target

# Of runtime/core/error.h, as execution and loading tell them.
INVALID_ARGUMENT, INVALID_TYPE = "0x12", "0x13"
INVALID_PROGRAM, INCOMPATIBLE = "0x:23", "0x:30"
DTYPES = {1: DType.INT8, 3: DType.INT32}  # by ExecuTorch's numbers


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    load()


@pytest.fixture(scope="module")
def program() -> bytes:
    return bytes(one_method(isa="scalar").buffer)


def run(program: bytes, x: Array, method: str = "forward") -> Array:
    loaded = Runtime.get().load_program(program).load_method(method)
    return np.array(loaded.execute([torch.from_numpy(x)])[0])


@pytest.mark.parametrize("options", [{}, {"isa": "scalar"}, {"threads": "2"}], ids=str)
def test_a_delegate_computes_its_graph(options: dict[str, str]) -> None:
    program = bytes(one_method(**options).buffer)
    assert np.array_equal(run(program, sample()), expected(image_graph(), sample()))


def test_the_same_program_is_the_same_bytes(program: bytes) -> None:
    assert bytes(one_method(isa="scalar").buffer) == program


SCRIPT = """
import sys
order, file, inputs, outputs = sys.argv[1:]
if order == "before torch":
    from tinyai.frontends.executorch.native_part import load
    load()
import numpy as np
import torch
from executorch.runtime import Runtime
program = Runtime.get().load_program(file)
if order == "after torch":
    from tinyai.frontends.executorch.native_part import load
    load()
x = torch.from_numpy(np.load(inputs))
np.save(outputs, np.array(program.load_method("forward").execute([x])[0]))
"""


@pytest.mark.parametrize("order", ["before torch", "after torch"])
def test_a_new_process_runs_a_saved_program(order: str, program: bytes, tmp_path: Path) -> None:
    file, inputs, outputs = (tmp_path / name for name in ("net.pte", "x.npy", "y.npy"))
    file.write_bytes(program)
    np.save(inputs, sample(seed=5))
    command = [sys.executable, "-c", SCRIPT, order, str(file), str(inputs), str(outputs)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert np.array_equal(np.load(outputs), expected(image_graph(), sample(seed=5)))


def test_two_delegates_of_one_program_each_compute_their_graph() -> None:
    graphs = [image_graph(seed=1), image_graph(seed=2)]
    rest = iter(graphs)
    program = lowered({"forward": (TwoClamps(), SHAPE)}, lambda *_: next(rest), isa="scalar")
    between = expected(graphs[0], sample())
    result = run(bytes(program.buffer), sample())
    assert np.array_equal(result, expected(graphs[1], np.negative(between)))


# Enough weights to be most of a program.
WIDE = (1, 4, 4, 128)
BATCHES = {"one": (Clamp(), WIDE), "four": (Clamp(), (4, *WIDE[1:]))}


def graph_of_shape(program: torch.export.ExportedProgram, _: Target) -> Graph:
    """The image graph for the shape of a program's input."""
    (node,), _ = ends_of(program)
    return image_graph(tuple(node.meta["val"].shape))


@pytest.fixture(scope="module")
def batches() -> bytes:
    return bytes(lowered(BATCHES, graph_of_shape, isa="avx2").buffer)


def test_a_method_more_adds_less_than_a_tenth_to_the_program(batches: bytes) -> None:
    for method, (_, shape) in BATCHES.items():
        found = run(batches, sample(shape), method)
        assert np.array_equal(found, expected(image_graph(shape), sample(shape)))
    one = lowered({"one": BATCHES["one"]}, graph_of_shape, isa="avx2").buffer
    assert len(batches) <= 1.1 * len(one)


def test_two_methods_run_in_two_threads_at_once(batches: bytes) -> None:
    loaded = Runtime.get().load_program(batches)
    wrong: list[str] = []

    def work(method: str, shape: tuple[int, ...]) -> None:
        called = loaded.load_method(method)
        x = torch.from_numpy(sample(shape))
        right = expected(image_graph(shape), sample(shape))
        for _ in range(200):
            if not np.array_equal(called.execute([x])[0].numpy(), right):
                wrong.append(method)

    threads = [threading.Thread(target=work, args=(m, s)) for m, (_, s) in BATCHES.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def built_host(source: str, output: Path, *flags: str) -> Path:
    """A program of C++ with the native part in it."""
    folder, native = native_part.executorch_folder(), native_part.native_folder()
    sources = [str(Path(__file__).parent / source), str(native / "backend.cpp")]
    arguments = ["-std=c++17", "-pthread", *flags, *native_part.compile_arguments(folder), *sources]
    links = native_part.link_arguments(folder)
    native_part.compiler().run([*arguments, "-o", str(output), *links])
    return output


@pytest.mark.skipif(missing_sanitizers("gcc") is not None, reason="no sanitizers")
@pytest.mark.parametrize("threads", [1, 2])
def test_ten_thousand_runs_of_two_methods_at_once_have_no_race(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tinyai brings is instrumented: the native part, and the generated code."""
    host = built_host("two_methods.cpp", tmp_path / "host", "-fsanitize=thread", "-g")
    monkeypatch.setenv("CC", "gcc -fsanitize=thread -g")
    methods = {name: (Clamp(), (n, 4, 4, 16)) for n, name in enumerate(BATCHES, 1)}
    file = tmp_path / "net.pte"
    options = {"isa": "avx2", "threads": str(threads)}
    file.write_bytes(lowered(methods, graph_of_shape, **options).buffer)
    command = [str(host), str(file), "5000", *methods]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "OK\n"), done.stderr[:4000]
    assert "WARNING: ThreadSanitizer" not in done.stderr


def test_a_thousand_loads_leave_nothing_behind(program: bytes) -> None:
    def held() -> tuple[int, int, int]:
        gc.collect()
        process = psutil.Process()
        maps = Path("/proc/self/maps").read_text().count("\n")
        return process.memory_info().rss, process.num_fds(), maps

    for _ in range(200):
        Runtime.get().load_program(program).load_method("forward")
    memory, files, maps = held()
    for _ in range(1000):
        Runtime.get().load_program(program).load_method("forward")
    more, more_files, more_maps = held()
    assert more - memory < 1_000_000  # a thousand libraries are thirty times as much
    assert more_files <= files
    assert more_maps <= maps + 5


def test_methods_of_one_library_share_it_and_the_last_one_lets_it_go(batches: bytes) -> None:
    def libraries() -> int:
        text = Path("/proc/self/maps").read_text()
        return len({line.split()[4] for line in text.splitlines() if "memfd:tinyai" in line})

    loaded = Runtime.get().load_program(batches)
    for method in BATCHES:
        loaded.load_method(method)
        assert libraries() == 1
    del loaded
    gc.collect()
    assert libraries() == 0


# --- What was altered, and what does not fit ---


def error_of(program: bytes) -> str:
    """What loading a program says; nothing where it loads."""
    try:
        Runtime.get().load_program(program).load_method("forward")
    except RuntimeError as error:
        return str(error)
    return ""


def blob_in(program: bytes) -> range:
    """Where a program's only blob lies."""
    at = program.index(MAGIC)
    return range(at, at + int.from_bytes(program[at + 12 : at + 16], "little"))


def library_in(program: bytes) -> range:
    """Where a program's only library lies, whose size the blob says."""
    at, size = program.index(b"\x7fELF"), blob_in(program).start + 24
    return range(at, at + int.from_bytes(program[size : size + 8], "little"))


def test_two_hundred_altered_blobs_are_refused_and_crash_nothing(program: bytes) -> None:
    parts = blob_in(program), library_in(program)
    rng = np.random.default_rng(0)
    for number in range(200):
        where = parts[number % 2]
        altered = bytearray(program)
        at = int(rng.integers(where.start, where.stop))
        if number % 3:
            altered[at] ^= int(rng.integers(1, 256))
        else:  # what follows was lost
            altered[at : where.stop] = bytes(where.stop - at)
        if altered == program:
            continue
        said = error_of(bytes(altered))
        assert INCOMPATIBLE in said or INVALID_PROGRAM in said, (number, at, said)


def test_a_blob_without_sense_whose_checksum_fits_is_refused_or_means_the_same(
    program: bytes,
) -> None:
    blob = blob_in(program)
    rng = np.random.default_rng(1)
    for _ in range(200):
        altered = bytearray(program[blob.start : blob.stop])
        for at in rng.integers(20, len(altered), 3):
            altered[at] ^= int(rng.integers(1, 256))
        altered[16:20] = zlib.crc32(altered[:16] + altered[20:]).to_bytes(4, "little")
        try:
            found = run(program[: blob.start] + bytes(altered) + program[blob.stop :], sample())
        except RuntimeError:
            continue
        assert np.array_equal(found, expected(image_graph(), sample()))
    assert error_of(program) == ""


LARGER = PortSpec(1, (1, 8, 8, 4096), (0, 1, 2, 3))


@pytest.mark.parametrize(
    "change",
    [
        lambda inputs, outputs: ([*inputs, *outputs], []),
        lambda inputs, outputs: ([], [*inputs, *outputs]),
        lambda inputs, outputs: ([], []),
        lambda inputs, outputs: (inputs, [*outputs, *outputs]),
        lambda inputs, outputs: ([LARGER], outputs),
        lambda inputs, outputs: (inputs, [replace(each, sizes=(1, 8, 8, 15)) for each in outputs]),
        lambda inputs, outputs: (inputs, [replace(each, dtype=0) for each in outputs]),  # uint8
    ],
)
def test_a_blob_that_says_other_ports_than_its_code_is_refused(change: Any) -> None:
    ports = backend.ports_of
    with mock.patch.object(backend, "ports_of", lambda read: change(*ports(read))):
        program = bytes(one_method(isa="scalar").buffer)
    assert INVALID_PROGRAM in error_of(program)


def clamp_between(*types: Type) -> Graph:
    """A clamp from one type to another of as many elements."""
    builder = Builder("clamp")
    x = builder.add(Reshape(types[1].shape), [builder.input(types[0])])
    steps = Clip(-100, 100), Cast(types[1].dtype)
    return builder.graph([builder.add(Elementwise(types[1].shape), [x], steps)])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"dtype": 3}, INVALID_TYPE),
        ({"sizes": (1, 8, 16, 8)}, INVALID_ARGUMENT),
        ({"sizes": (8, 8, 16), "dim_order": (0, 1, 2)}, INVALID_ARGUMENT),
        ({"dim_order": (0, 2, 3, 1)}, INVALID_ARGUMENT),
        ({"dim_order": (1, 2, 3, 0)}, ""),  # one image: the same places
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [0, 1], ids=["input", "output"])
def test_arguments_of_another_kind_are_the_runtimes_errors(
    change: dict[str, Any], error: str, kind: int
) -> None:
    """Where a program's tensors are others than those of the delegate, blob and code alike."""
    ports = [PortSpec(1, SHAPE, (0, 1, 2, 3))] * 2
    ports[kind] = replace(ports[kind], **change)
    types = [
        Type(tuple(each.sizes[dim] for dim in each.dim_order), DTYPES[each.dtype]) for each in ports
    ]
    with mock.patch.object(backend, "ports_of", return_value=([ports[0]], [ports[1]])):
        methods = {"forward": (Clamp(), SHAPE)}
        made = lowered(methods, lambda *_: clamp_between(*types), isa="scalar")
    program = bytes(made.buffer)
    if error:
        with pytest.raises(RuntimeError, match=error):
            run(program, sample())
    else:
        assert np.array_equal(run(program, sample()), np.clip(sample(), -100, 100))


def test_where_memory_cannot_be_run_a_temporary_file_is_and_goes(
    program: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TINYAI_MEMFD", "0")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    loaded = Runtime.get().load_program(program).load_method("forward")
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    assert list(tmp_path.iterdir()) == []
    (found,) = loaded.execute([torch.from_numpy(sample())])
    assert np.array_equal(found.numpy(), expected(image_graph(), sample()))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    del loaded, found
    gc.collect()
    assert INVALID_PROGRAM in error_of(program)


# --- Traces ---


def test_a_trace_names_the_layers_as_the_source_does(program: bytes, tmp_path: Path) -> None:
    loaded = Runtime.get().load_program(program, enable_etdump=True, debug_buffer_size=1_000_000)
    method = loaded.load_method("forward")
    (result,) = method.execute([torch.from_numpy(sample())])
    assert np.array_equal(result.numpy(), expected(image_graph(), sample()))
    dump, debug = tmp_path / "net.etdp", tmp_path / "debug.bin"
    loaded.write_etdump_result_to_file(str(dump), str(debug))
    (block,) = [b for b in Inspector(etdump_path=str(dump)).event_blocks if b.name == "Execute"]
    events = {event.name: event for event in block.events}
    layers = [event.name for event in block.events if event.is_delegated_op]
    assert layers == [*NAMES, "writing the trace"]
    assert events["DELEGATE_CALL"].perf_data is not None
    assert all(event.perf_data.raw[0] >= 0 for event in block.events if event.is_delegated_op)


def test_layers_of_one_name_stay_apart() -> None:
    """Also where a model's names look like what sets them apart."""
    sources = {1: ["a"], 2: ["a"], 3: ["a, layer 4"], 4: ["a"]}
    found = backend._layers(sources, {})
    assert found == {1: "a", 2: "a, layer 2", 3: "a, layer 4", 4: "a, layer 4, layer 4"}


# --- Building it ---


def test_the_native_part_is_compiled_once_and_again_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []
    build = native_part.build
    monkeypatch.setattr(native_part, "build", lambda file: (built.append(file), build(file)))
    monkeypatch.setattr(native_part, "kept_folder", lambda _: tmp_path)
    fresh = native_part.load.__wrapped__
    fresh()
    fresh()
    (file,) = built
    assert file.parent == tmp_path
    content = file.read_bytes()
    file.unlink()  # what is mapped may not be cut off
    file.write_bytes(content[:1000])
    fresh()
    assert len(built) == 2


def test_where_nothing_can_be_kept_the_native_part_is_compiled_for_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = next(native_part.kept_folder("executorch").glob("*.so"))
    in_the_way = tmp_path / "a file"
    in_the_way.write_text("")
    monkeypatch.setattr(native_part, "kept_folder", lambda _: in_the_way)
    tried: list[Path] = []

    def build(file: Path) -> None:
        tried.append(file)
        shutil.copy(known, file)

    monkeypatch.setattr(native_part, "build", build)
    native_part.load.__wrapped__()
    assert [file.parent == in_the_way for file in tried] == [True, False]
    assert not tried[1].parent.exists()


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo 'no <x>' >&2; exit 3", "failed(.|\n)*no <x>(.|\n)*by hand"),
        ("exit 0", r"wrote nothing(.|\n)*by hand"),
        (
            'while [ "$1" != -o ]; do shift; done; echo text > "$2"',
            r"cannot be loaded(.|\n)*TMPDIR",
        ),
    ],
)
def test_a_compiler_that_fails_or_lies_is_told(
    script: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in a folder with a space."""
    compiler = tmp_path / "a folder" / "c++"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\n{script}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", f"'{compiler}'")
    monkeypatch.setattr(native_part, "kept_folder", lambda _: tmp_path)
    with pytest.raises((ToolchainError, EnvironmentProblem), match=error):
        native_part.load.__wrapped__()


def test_a_missing_compiler_and_an_old_runtime_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -x")
    with pytest.raises(ToolchainError, match=r"no C\+\+ compiler(.|\n)*set CXX"):
        native_part.compiler()
    monkeypatch.setattr(native_part, "executorch_version", lambda: "1.4.0")
    with pytest.raises(EnvironmentProblem, match=r"executorch 1\.4\.0(.|\n)*1\.5 or later"):
        native_part.executorch_folder()
