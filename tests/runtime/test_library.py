"""Libraries with a plain C interface: what they compute, and what is no library."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tinyai
from tinyai.backend import compile_graph
from tinyai.errors import EnvironmentProblem, FormatError, OptionError, ToolchainError
from tinyai.ir import Builder, DType, Operand, QParams, Type
from tinyai.network import Network, network_of_graph
from tinyai.ops import Elementwise
from tinyai.ops.steps import Add, Cast, Clip
from tinyai.runtime import link
from tinyai.runtime.library import Library
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target
from tinyai.tensor_spec import TensorSpec


def network() -> Network:
    """With a name that no C literal may take as it is, and with scales."""
    builder = Builder("graph")
    image = builder.input(Type((1, 3, 5), DType.INT8))
    more = builder.constant(np.arange(-7, 8, dtype=np.int32).reshape(1, 3, 5))
    steps = (Cast(DType.INT32), Add(operand=Operand(more)), Clip(-128, 127), Cast(DType.INT8))
    result = builder.add(Elementwise((1, 3, 5)), [image], steps)
    made = network_of_graph(builder.graph([result]), "small")
    (ins,), (outs,) = made.inputs, made.outputs
    ins = replace(ins, name='in "??/\\ ü', quant=QParams((0.5,), 3))
    return replace(made, inputs=(ins,), outputs=(replace(outs, quant=QParams((0.25,), -1)),))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "small.so"
    return tinyai.compile(network(), path, Target(isa="scalar"))


def inputs(count: int) -> list[np.ndarray]:
    of, rng = network().inputs[0].type, np.random.default_rng(3)
    return [rng.integers(-128, 128, of.shape).astype(of.dtype.numpy) for _ in range(count)]


def expected_of(x: np.ndarray) -> np.ndarray:
    return tinyai.run_graph(network().graph, [x])[0]


def test_a_library_computes_the_network_and_tells_its_ends(built: Path) -> None:
    model, (port,) = tinyai.Model(built), network().inputs
    shape = port.type.shape
    assert model.inputs == (TensorSpec('in "??/\\ ü', shape, str(port.type.dtype), 0.5, 3),)
    assert (model.outputs[0].scale, model.outputs[0].zero_point) == (0.25, -1)
    assert model.name == "small"
    for x in inputs(3):
        expected = tinyai.run_graph(network().graph, [x])
        for form in (x, [x], (x,), {port.name: x}, np.asfortranarray(x)):
            found = model.run(form)
            assert len(found) == len(expected) == 1
            assert np.array_equal(found[0], expected[0])
        assert np.array_equal(model(x)[0], expected[0])


def test_scaled_calls_take_and_give_real_numbers(built: Path) -> None:
    model, (x,) = tinyai.Model(built), inputs(1)
    real = (x.astype(np.float64) - 3) * 0.5
    (integers,), (found,) = model.run(x), model.run(real, scaled=True)
    assert found.dtype == np.float32
    assert np.array_equal(found, (integers.astype(np.float32) + 1) * np.float32(0.25))
    assert np.array_equal(model.run(np.full_like(real, 1e9), scaled=True)[0].shape, found.shape)
    with pytest.raises(OptionError, match="NaN"):
        model.run(np.full_like(real, np.nan), scaled=True)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_masked_array_is_no_input(built: Path, scaled: bool) -> None:
    library = Library(built)
    arrays = [np.ma.masked_equal(each, each.flat[0]) for each in inputs(1)]
    with pytest.raises(OptionError, match=r"a masked array(.|\n)*array.filled"):
        library.run(arrays, scaled=scaled)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300, np.nan])
def test_a_scaled_call_takes_finite_numbers(built: Path, value: float) -> None:
    library = Library(built)
    arrays = [np.zeros(each.shape) for each in library.inputs]
    arrays[0].flat[0] = value
    with pytest.raises(OptionError, match=r"found:   -?(inf|1e.300|NaN)"):
        library.run(arrays, scaled=True)


@pytest.fixture
def noexec(tmp_path: Path) -> Iterator[Path]:
    """A folder from which no code may be executed."""
    folder = tmp_path / "noexec"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, check=False).returncode != 0:
        pytest.skip("no folder can be mounted")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_folder_that_may_hold_no_code_is_named(
    built: Path, noexec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = noexec / "copy.so"
    copy.write_bytes(built.read_bytes())
    with pytest.raises(EnvironmentProblem, match=f"{noexec}, mounted with noexec"):
        Library(copy)
    monkeypatch.setattr(tempfile, "tempdir", str(noexec))
    with pytest.raises(EnvironmentProblem, match=r"mounted with noexec(.|\n)*TMPDIR"):
        tinyai.Runner(network().graph)


def test_a_scaled_call_takes_integers_of_the_inputs_own_dtype_as_they_are(built: Path) -> None:
    model, (x,) = tinyai.Model(built), inputs(1)
    real = (x.astype(np.float64) - 3) * 0.5
    (found,), (expected,) = model.run(x, scaled=True), model.run(real, scaled=True)
    assert np.array_equal(found, expected)


def test_calls_in_threads_do_not_meet(built: Path) -> None:
    model, many = tinyai.Model(built), inputs(64)
    expected = [model.run(x)[0] for x in many]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: [model.run(x)[0] for _ in range(20)], many))
    for one, each in zip(expected, found, strict=True):
        assert all(np.array_equal(one, other) for other in each)


def test_a_library_is_loaded_and_run_without_tvm_and_without_a_code_generator(built: Path) -> None:
    code = f"""
    import sys
    sys.modules["tvm"] = None  # import tvm raises
    import numpy as np, tinyai
    model = tinyai.Model({str(built)!r})
    (spec,) = model.inputs
    print(model.run(np.zeros(spec.shape, spec.dtype))[0].tolist())
    print([m for m in ("jinja2", "rich", "tinyai.backend", "tinyai.codegen") if m in sys.modules])
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    (spec,) = (model := tinyai.Model(built)).inputs
    expected = model.run(np.zeros(spec.shape, spec.dtype))[0].tolist()
    assert run.stdout == f"{expected}\n[]\n"


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (None, "NoneType"),
        ("x.npy", "str"),
        (3.5, "float"),
        ([], "number of inputs"),
        ([1, 2], "number of inputs"),
        ([[1, 2]], "a numpy array"),
        ({}, "none"),
        ({"y": np.zeros(1)}, "'y'"),
        (np.zeros((1, 1), np.int8), r"int8\[1,1\]"),
        (np.zeros((), np.int8), r"int8\[\]"),
        (np.zeros(3, object), "object"),
        (np.array(["a"]), "<U1"),
    ],
)
@pytest.mark.parametrize("scaled", [False, True])
def test_what_is_no_input_is_told(built: Path, x: object, told: str, scaled: bool) -> None:
    with pytest.raises(OptionError, match=told) as caught:
        tinyai.Model(built).run(x, scaled=scaled)  # type: ignore[arg-type]
    assert "allowed:" in str(caught.value)


def test_floats_for_integers_are_pointed_to_scaled(built: Path) -> None:
    (x,) = inputs(1)
    with pytest.raises(OptionError, match="scaled=True takes real numbers"):
        tinyai.Model(built).run(x.astype(np.float32))


def compiled(folder: Path, text: str) -> Path:
    (folder / "own.c").write_text(text)
    Toolchain().shared_library(folder / "own.so", [folder / "own.c"])
    return folder / "own.so"


def facts(**changes: object) -> str:
    source = compile_graph(network().graph, Target(isa="scalar"), abi="plain").source
    text = link.facts_in_c(network(), source, Target())
    for name, value in changes.items():
        known = {"format": "tinyai.library/1", "entry": "small"}[name]
        text = text.replace(f'\\"{name}\\": \\"{known}\\"', f'\\"{name}\\": {value}')
    return text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("int nothing;", "a library without tinyai_library"),
        ('const char tinyai_library[] = "nonsense";', "cannot be read"),
        ('const char tinyai_library[] = "[]";', "cannot be read"),
        ('const char tinyai_library[] = "{}";', "cannot be read"),
        (
            'const char tinyai_library[] = "{\\"format\\": \\"tinyai.library/9\\", '
            '\\"tinyai\\": \\"7.0\\"}";',
            "tinyai.library/9, of tinyai 7.0",
        ),
        ("facts", "no function small"),
    ],
)
def test_libraries_of_others_and_of_other_versions_are_told(
    tmp_path: Path, text: str, told: str
) -> None:
    path = compiled(tmp_path, facts() if text == "facts" else text)
    with pytest.raises(FormatError, match=told):
        tinyai.Model(path)


def test_a_library_whose_facts_are_in_another_order_still_loads(tmp_path: Path) -> None:
    """As it was when they were sorted by their names."""
    source = compile_graph(network().graph, Target(isa="scalar"), abi="plain").source
    text = re.sub(r'"$\n *"', "", link.facts_in_c(network(), source, Target()), flags=re.M)
    said = json.loads(json.loads(re.search(r'= *\n *(".*");', text)[1].replace(r"\?", "?")))
    constant = json.dumps(json.dumps(said, sort_keys=True))
    facts = tmp_path / "facts.c"
    facts.write_text(
        f"extern const char {link.CONSTANT}[];\nconst char {link.CONSTANT}[] = {constant};"
    )
    (tmp_path / "net.c").write_text(source.text)
    Toolchain().shared_library(tmp_path / "net.so", [tmp_path / "net.c", facts])
    (x,) = inputs(1)
    assert np.array_equal(tinyai.Model(tmp_path / "net.so").run(x)[0], expected_of(x))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: b"", "0 bytes"),
        (lambda data: b"hello, world\n", "begin with b'hello, world'"),
        (lambda data: data[:9], "library"),
        (lambda data: data[: len(data) // 2], "it was cut off"),
        (lambda data: data[:-1], "it was cut off"),
        (lambda data: data[:18] + struct.pack("<H", 183) + data[20:], "a library for AArch64"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="ELF is Linux's")
def test_files_that_are_no_library_of_this_machine_are_told(
    tmp_path: Path, built: Path, change: object, told: str
) -> None:
    path = tmp_path / "bad.so"
    path.write_bytes(change(built.read_bytes()))  # type: ignore[operator]
    if told.endswith("AArch64") and struct.unpack_from("<H", built.read_bytes(), 18) == (183,):
        pytest.skip("this machine is one")
    with pytest.raises(FormatError, match=told):
        Library(path)


def test_a_missing_library_is_an_option_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no file"):
        tinyai.Model(tmp_path / "none.so")


def test_a_library_that_is_compiled_anew_at_its_place_is_loaded_anew(tmp_path: Path) -> None:
    first = network()
    other = replace(first, inputs=(replace(first.inputs[0], name="other"),))
    for each in (first, other, first):
        path = tinyai.compile(each, tmp_path / "net.so", Target(isa="scalar"))
        assert tinyai.Model(path).inputs[0].name == each.inputs[0].name


def test_a_library_is_written_whole_or_not_at_all(tmp_path: Path, built: Path) -> None:
    place = tmp_path / "net.so"
    place.write_bytes(built.read_bytes())
    with pytest.raises(ToolchainError):
        tinyai.compile(network(), place, toolchain=Toolchain("gcc --no-such-flag"))
    assert [*tmp_path.iterdir()] == [place]
    assert place.read_bytes() == built.read_bytes()


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("net", "ends with .so"),
        ("net.relay.so", "ends with .so"),
        ("folder.so", "a folder"),
        ("none/net.so", "no folder"),
    ],
)
def test_places_that_cannot_be_written_are_told_before_the_work(
    tmp_path: Path, output: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.so").mkdir()
    monkeypatch.setattr(link, "compile_network", None)
    with pytest.raises(OptionError, match=told):
        tinyai.compile(network(), tmp_path / output)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.so"]


def test_the_facts_are_text_that_every_compiler_takes() -> None:
    source = compile_graph(network().graph, Target(isa="scalar"), abi="plain").source
    text = link.facts_in_c(network(), source, Target())
    assert text.isascii()
    assert "??" not in text
    assert all(len(line) < 200 for line in text.splitlines())
    inside = [line[5:].rstrip(";")[:-1] for line in text.splitlines() if line.startswith("    ")]
    plain = re.sub(r"\\(.)", r"\1", "".join(inside))
    assert json.loads(plain)["inputs"][0]["name"] == network().inputs[0].name
