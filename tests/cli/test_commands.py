"""The commands: examples run; wrong uses end with a message, a code, and nothing written."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import tinyai
from tests.support.paths import DIGITS, MODELS, ROOT
from tinyai.cli import main
from tinyai.cli.ops import markdown, markdown_of_files, read_of, support
from tinyai.cli.shared import Command
from tinyai.errors import DefectError
from tinyai.frontends.relay.spelling import supported

KWS = MODELS / "kws_ref_model.tflite"


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what examples name."""
    folder = tmp_path_factory.mktemp("commands")
    shutil.copy(KWS, folder / "model.tflite")
    shutil.copy(DIGITS, folder / "model.onnx")
    target = "tinyai -isa=scalar"
    tinyai.compile(KWS, folder / "net.so", target)
    package = tinyai.emit_c(KWS, tmp_path_factory.mktemp("package"), target)
    package.write_tar(folder / "net.tar")
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (1, 49, 10, 1)).astype(np.int8)
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", input_1=x)
    np.savez(folder / "samples.npz", image=rng.random((4, 1, 8, 8), np.float32))
    (folder / "labels.txt").write_text("".join(f"word {i}\n" for i in range(12)))
    return folder


@pytest.fixture
def inside(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the current folder, with a cache of its own."""
    folder = tmp_path / "here"
    shutil.copytree(filled, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


SCALAR = ("--isa", "scalar")
RELAY = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(1, 4), int8]) { clip(%x, 0f, 6f) }\n'


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


# --- Help ----------------------------------------------------------------------------------------

# A download, and what has tests of its own.
NOT_RUN = ("install-tvm", "check", "quantize", "cut")
EXAMPLES = [
    (name, example)
    for name, command in sorted(main.commands.items())
    for example in getattr(command, "examples", ())
]


def test_every_command_has_an_example_in_its_help_and_a_place_in_the_list() -> None:
    whole = run("--help").output
    for name, command in main.commands.items():
        assert isinstance(command, Command)
        assert command.examples, name
        assert f"\n  {name} " in whole
        if name != "tvmc":  # whose help is TVM's
            text = run(name, "--help").output
            assert all(f"\n  {example}\n" in text for example in command.examples)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # TVM's own, of its driver
@pytest.mark.parametrize(
    ("name", "example"), [each for each in EXAMPLES if each[0] not in NOT_RUN], ids=lambda e: e
)
def test_examples_run(inside: Path, name: str, example: str) -> None:
    words = shlex.split(example)
    assert words[:2] == ["tinyai", name]
    result = run(*words[1:])
    expected = 1 if "--strict" in words else 0  # the digits network is one of floats
    assert result.exit_code == expected, result.output
    for flag in ("-o", "--output"):
        if flag in words:
            assert (inside / words[words.index(flag) + 1]).exists()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # TVM's importers'
def test_the_examples_of_quantize_run_one_after_the_other(inside: Path) -> None:
    """On float models, with samples."""
    shutil.copy(MODELS / "ad01_fp32.tflite", "model.tflite")
    rng = np.random.default_rng(0)
    np.savez("samples.npz", image=rng.random((2, 1, 1, 8, 8), np.float32))
    Path("folder").mkdir()
    Path("pictures").mkdir()
    for number in range(2):
        np.save(f"folder/{number}.npy", rng.random((1, 640), np.float32))
        grey = Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8))
        grey.save(f"pictures/{number}.png")
    command = main.commands["quantize"]
    assert isinstance(command, Command)
    for example in command.examples:
        result = run(*shlex.split(example)[1:])
        assert result.exit_code == 0, f"{example}: {result.output}"


@pytest.mark.parametrize("name", ["compile", "bench", "tune", "explain", "run"])
def test_options_of_the_target_are_flags_with_a_word_of_help(name: str) -> None:
    text = run(name, "--help").output
    for option in ("isa", "arch", "threads", "rounding", "arena-limit", "weight-limit", "tuning"):
        assert re.search(rf"\n  --{option} [A-Z]+ +\w", text), option


def test_json_is_what_every_command_prints_where_it_is_asked_for(inside: Path) -> None:
    for command in (
        "compile model.tflite -o a.so --isa scalar --json",
        "run net.so -i x.npy --json",
        "ops --json",
        "explain model.tflite --json",
        "doctor --json",
    ):
        result = run(*command.split())
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)


def test_verbose_tells_stages_and_times(inside: Path) -> None:
    result = run("compile", "-v", "model.tflite", "-o", "a.so", "--isa", "scalar")
    assert result.exit_code == 0
    told = re.findall(r"^ +\d+\.\d{3} s  (.+)$", result.stderr, re.MULTILINE)
    imports = ["imports of what the command needs", "imports of the format's reader"]
    work = ["read model.tflite", "model to graph", "graph to C", "C compiler"]
    assert told == [*imports, *work, "the rest", "in all"]
    assert run("compile", "model.tflite", "-o", "a.so", "--isa", "scalar").stderr == ""


def test_the_stages_are_the_whole_time_of_the_process(inside: Path) -> None:
    start = time.perf_counter()
    done = process(inside, "compile", "-v", "model.tflite", "-o", "a.so", "--isa", "scalar")
    whole = time.perf_counter() - start
    told = re.findall(r"^ +(\d+\.\d{3}) s  (.+)$", done.stderr, re.MULTILINE)
    *parts, in_all = [float(seconds) for seconds, _ in told]
    assert told[0][1] == "start and imports of tinyai"
    assert all(seconds >= 0 for seconds in parts)
    assert sum(parts) == pytest.approx(in_all, abs=0.001 * len(parts))
    assert in_all < whole


def test_compile_tells_sizes_ends_and_whose_integers_they_are(inside: Path) -> None:
    told = run("compile", "model.tflite", "-o", "a.so", "--isa", "scalar").stdout
    assert re.search(r"^a\.so: library, [\d,]+ bytes\n  weights: 28,272 bytes\n", told)
    assert "\n  input:   input_1 int8[1,49,10,1], 0.584703 * (q - 83)\n" in told
    assert "\n  output:  Identity int8[1,12], 0.00390625 * (q + 128)\n" in told
    assert "\nrounding: tflite (TFLite's integers)\nnext:\n" in told
    told = run("compile", "model.tflite", "-o", "a.so", *SCALAR, "--rounding", "upward").stdout
    assert "\nrounding: upward (TVM's integers; --rounding tflite gives TFLite's)\n" in told


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        "compile model.tflite -o a.so --isa scalar",
        "compile model.tflite -o a.relay.so --isa scalar",
        "compile model.tflite -o folder --isa scalar",
        "run model.tflite -i x.npy --isa scalar",
        "explain model.tflite --isa scalar",
        "bench model.tflite --runs 1 --isa scalar",
        "tune model.tflite -o t.json --seconds 0",
        "check model.tflite --samples 1 --isa scalar",
    ],
)
def test_a_command_takes_the_rounding_of_the_files_framework_and_says_so(
    inside: Path, command: str
) -> None:
    result = run(*shlex.split(command))
    assert result.exit_code == 0, result.output
    assert re.search(r"^ *rounding: +tflite", result.stdout, re.MULTILINE)
    if not command.startswith("check"):
        told = run(*shlex.split(command), "--rounding", "upward").stdout
        assert "rounding: upward (TVM's integers; --rounding tflite gives TFLite's)" in told


def test_what_is_calibrated_of_a_file_has_onnx_runtimes_integers(inside: Path) -> None:
    told = run("compile", "model.onnx", "--calibrate", "samples.npz", "-o", "a.so", *SCALAR).stdout
    assert "\nrounding: onnx (ONNX Runtime's integers)\n" in told


def test_a_float_model_is_refused_before_the_work_with_one_sentence_for_all_operators(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinyai.frontends.relay import bench, partition

    for name in ("with_composites", "_buildable_regions"):
        monkeypatch.setattr(partition, name, lambda *_, **__: raised(AssertionError("worked")))
    for command in ("compile model.onnx -o a.so", "run model.onnx -i x.npy"):
        result = run(*shlex.split(command))
        assert result.exit_code == 1, result.output
        assert "found:   a float model: no value of 8 bits, but float32" in result.stderr
        (line,) = re.findall(r"^  host: .*$", result.stderr, re.MULTILINE)
        assert re.match(r"  host: [\w.]+ '\S+' and \d+ operators more: dtype of a float", line)
    assert run("bench", "model.onnx").exit_code == 1
    assert bench.float_calls(tinyai.frontends.relay.load.load_model("model.tflite")[0]) == []


# --- Results -------------------------------------------------------------------------------------


def test_run_prints_and_writes_what_the_model_computes(inside: Path) -> None:
    x = np.load("x.npy")
    (expected,) = tinyai.Model("net.so").run(x)
    values = json.loads(run("run", "net.so", "-i", "x.npy", "--json").stdout)["outputs"][0]
    assert values["values"] == expected.tolist()
    assert run("run", "net.so", "-i", "x.npz", "-o", "y.npz", "--scaled").exit_code == 0
    with np.load("y.npz") as written:
        (real,) = tinyai.Model("net.so").run(x, scaled=True)
        assert np.array_equal(written["Identity"], real)
    top = json.loads(
        run("run", "net.so", "-i", "x.npy", "--top", 2, "--labels", "labels.txt", "--json").stdout
    )["outputs"][0]["top"]
    order = np.argsort(-expected[0].astype(int), kind="stable")[:2]
    assert [each["label"] for each in top] == [f"word {i}" for i in order]
    assert [each["value"] for each in top] == expected[0][order].tolist()


def test_a_package_is_tested_with_the_sample_that_is_given(inside: Path) -> None:
    for file in ("x.npy", "x.npz"):
        made = run("compile", "model.tflite", "-o", "net", *SCALAR, "--sample", file)
        assert made.exit_code == 0, made.output
        (test,) = Path("net").glob("*_test.c")
        text = test.read_text()
        body = re.search(r"int8_t input0\[\w+\] = \{([^}]*)\}", text)
        assert body, text[:2000]
        assert [int(each) for each in body[1].split(",") if each.strip()] == [
            *np.load("x.npy").flat
        ]


def test_an_image_is_an_input(inside: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (49, 10)).astype(np.uint8)
    image.fromarray(pixels).save("x.png")
    (expected,) = tinyai.Model("net.so").run(
        (pixels.astype(int) - 128).astype(np.int8)[None, ..., None]
    )
    found = json.loads(run("run", "net.so", "-i", "x.png", "--json").stdout)["outputs"][0]
    assert found["values"] == expected.tolist()
    image.fromarray(pixels[1:]).save("x.png")
    result = run("run", "net.so", "-i", "x.png")
    assert result.exit_code == 2
    assert "48 x 10 pixels" in result.stderr


@pytest.mark.skipif(shutil.which("aarch64-linux-gnu-gcc") is None, reason="no cross compiler")
@pytest.mark.skipif(os.uname().machine == "aarch64", reason="this machine is one")
def test_a_library_for_another_machine_is_compiled_by_its_compiler(inside: Path) -> None:
    result = run("compile", "model.tflite", "-o", "arm.so", "--arch", "aarch64")
    assert result.exit_code == 0, result.output
    assert "input:   input_1 int8[1,49,10,1], 0.584703 * (q - 83)" in result.stdout
    assert "next:" not in result.stdout  # nothing of it runs here
    result = run("run", "arm.so", "-i", "x.npy")
    assert result.exit_code == 1
    assert "a library for AArch64" in result.stderr


def test_tvms_library_runs_by_tvm(inside: Path) -> None:
    import tvm
    from tvm.contrib import graph_executor

    result = run("compile", "model.tflite", "-o", "net.relay.so", "--isa", "scalar")
    assert result.exit_code == 0, result.output
    module = graph_executor.GraphModule(
        tvm.runtime.load_module("net.relay.so")["default"](tvm.cpu())
    )
    x = np.load("x.npy")
    module.run(input_1=x)
    run("compile", "model.tflite", "-o", "other.so", "--isa", "scalar")
    assert np.array_equal(module.get_output(0).numpy(), tinyai.Model("other.so").run(x)[0])


@pytest.mark.parametrize(("before", "after"), [(None, "NONE"), ("/logs", "/logs")])
def test_tvm_looks_for_no_logs_on_the_network_unless_it_is_told_to(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv("TOPHUB_LOCATION", raising=False)
    else:
        monkeypatch.setenv("TOPHUB_LOCATION", before)
    run("ops")
    assert os.environ["TOPHUB_LOCATION"] == after


def test_the_tables_of_the_page_of_operators_are_those_of_the_command() -> None:
    page = (ROOT / "docs" / "reference" / "operators.md").read_text()
    tables = [markdown_of_files(form, read_of(form)) for form in ("tflite", "onnx")]
    assert [table for table in (markdown(support()), *tables) if table not in page] == []
    printed = run("ops", "--format", "markdown").stdout.strip()
    assert printed == "\n\n".join([markdown(support()), *tables])
    for name in supported():
        assert f"`{name}`" in page


def test_the_operators_of_files_are_listed_beside_relay_s() -> None:
    found = json.loads(run("ops", "--json").stdout)
    assert [row["operator"] for row in found["relay"]] == [row.operator for row in support()]
    for form, name in (("tflite", "CONV_2D"), ("onnx", "com.microsoft.QGemm")):
        assert name in found[form]
        assert found[form] == json.loads(run("ops", "--json", "--of", form).stdout)
        assert name in run("ops").stdout


def test_the_table_says_what_the_checks_take() -> None:
    rows = {row.operator: row for row in support()}
    assert all(rows[name].integers for name in ("conv2d", "add", "pad", "maximum", "quantize"))
    assert not any(rows[name].integers for name in ("sigmoid", "softmax", "divide", "prelu"))
    assert rows["reshape"].relay == ("expand_dims", "nn.batch_flatten", "reshape", "squeeze")


# --- Wrong uses ----------------------------------------------------------------------------------


def make(**files: bytes | None) -> Callable[[], None]:
    """Write files, ``_`` for a dot; None removes one, and b"/" makes a folder."""

    def write() -> None:
        for name, content in files.items():
            path = Path(name.replace("_", "."))
            if content is None:
                path.unlink()
            elif content == b"/":
                path.mkdir()
            else:
                path.write_bytes(content)

    return write


def cut_tflite() -> None:
    Path("bad.tflite").write_bytes(KWS.read_bytes()[:20_000])


def nothing() -> None:
    pass


def setenv(name: str, value: str) -> None:
    os.environ[name] = value


WRONG: list[tuple[str, int, str, Callable[[], None]]] = [
    ("compile", 2, "Missing argument", nothing),
    ("compile model.tflite", 2, "Missing option '--output'", nothing),
    ("compile none.tflite -o a.so", 2, "none.tflite, no file", nothing),
    ("compile '' -o a.so", 2, "an empty path", nothing),
    ("run '' -i x.npy", 2, "an empty path", nothing),
    ("explain ''", 2, "an empty path", nothing),
    ("compile e.onnx -o a.so", 1, "e.onnx, an empty file", make(e_onnx=b"")),
    ("run e.tflite -i x.npy", 1, "e.tflite, an empty file", make(e_tflite=b"")),
    ("check e.relay", 1, "e.relay, an empty file", make(e_relay=b"")),
    ("run e.so -i x.npy", 1, "0 bytes that begin with", make(e_so=b"")),
    ("run e.tar -i x.npy", 1, "e.tar: ReadError", make(e_tar=b"")),
    ("run e.tinyai -i x.npy", 1, "begins with b", make(e_tinyai=b"")),
    ("compile cut.onnx -o a.so", 1, "cut.onnx", make(cut_onnx=DIGITS.read_bytes()[:20_000])),
    ("compile d.onnx -o a.so", 2, "d.onnx, a folder", make(d_onnx=b"/")),
    ("compile f.onnx -o a.so", 2, "f.onnx, not a regular file", lambda: os.mkfifo("f.onnx")),
    ("bench f.tflite", 2, "f.tflite, not a regular file", lambda: os.mkfifo("f.tflite")),
    ("run f.so -i x.npy", 2, "f.so, not a regular file", lambda: os.mkfifo("f.so")),
    ("run f.tar -i x.npy", 1, "f.tar: not a regular file", lambda: os.mkfifo("f.tar")),
    ("run f.tinyai -i x.npy", 2, "f.tinyai, not a regular", lambda: os.mkfifo("f.tinyai")),
    ("run net.so -i f.npy", 2, "f.npy, not a regular file", lambda: os.mkfifo("f.npy")),
    ("run net.so -i x.npy --top 1 --labels /dev/zero", 2, "no text file", nothing),
    ("check model.tflite --input f.npy", 2, "not a regular", lambda: os.mkfifo("f.npy")),
    ("compile model.tflite -o a.so --cc true", 2, "the C compiler wrote nothing", nothing),
    ("compile model.tflite -o a.so --cc 'false -g'", 2, "false -g ended with 1: without", nothing),
    ("run model.tflite -i x.npy --isa scalar", 2, "wrote nothing", lambda: setenv("CC", "true")),
    (
        "run net.so -i y.npz",
        2,
        "found:   'other'",
        lambda: np.savez("y.npz", other=np.load("x.npy")),
    ),
    (
        "run net.so -i y.npy --scaled",
        2,
        "found:   1e+300",
        lambda: np.save("y.npy", np.full((1, 49, 10, 1), 1e300)),
    ),
    ("compile . -o a.so", 2, "allowed: *.onnx, *.tflite", nothing),
    ("compile x.npy -o a.so", 2, "allowed: *.onnx, *.tflite", nothing),
    ("compile bad.tflite -o a.so", 1, "TFL3 from byte 4 on", make(bad_tflite=b"nothing")),
    ("compile bad.tflite -o a.so", 1, "model file", cut_tflite),
    ("compile bad.onnx -o a.so", 1, "a whole .onnx file", make(bad_onnx=b"nothing")),
    ("compile bad.relay -o a.so", 1, "importer for Relay", make(bad_relay=b"def @main(")),
    ("compile bad.txt -o a.so", 1, "importer for Relay", make(bad_txt=b"\xff\xfe")),
    ("compile model.onnx -o a.so", 1, "no host for the rest", nothing),
    ("compile model.onnx -o a.relay.so --strict", 1, "strict: operators", nothing),
    ("compile model.onnx -o a.so --no-strict", 2, "which has no host", nothing),
    ("compile model.tflite -o a.exe", 2, "output", nothing),
    ("compile model.tflite -o labels.txt/net", 2, "labels.txt/net", nothing),
    ("compile model.tflite -o .", 2, "which tinyai did not write", make(Makefile=b"all:")),
    ("compile model.tflite -o net --threads 2", 2, "for each thread of yours", nothing),
    ("compile model.tflite -o a.so --ports-in-arena", 2, "beside a C package", nothing),
    ("compile model.tflite -o a.so --sample x.npy", 2, "beside a C package", nothing),
    ("compile model.tflite -o net --sample none.npy", 2, "FileNotFoundError", nothing),
    (
        "compile model.tflite -o net --sample y.npy",
        2,
        "2 samples",
        lambda: np.save("y.npy", np.zeros((2, 49, 10, 1), "int8")),
    ),
    ("compile model.tflite -o none/a.so", 2, "no folder", nothing),
    ("compile model.tflite -o labels.txt/a.so", 2, "no folder", nothing),
    ("compile model.tflite -o a.so", 2, "a folder", make(a_so=b"/")),
    ("compile model.tflite -o a.relay.so", 2, "a folder", make(a_relay_so=b"/")),
    ("compile model.tflite -o a.so --speed 9", 2, "No such option", nothing),
    ("compile model.tflite -o a.so --isa fast", 2, "option 'isa'", nothing),
    ("compile model.tflite -o a.so --arch z80", 2, "option 'arch'", nothing),
    ("compile model.tflite -o a.so --arch aarch64 --isa avx2", 2, "option 'isa'", nothing),
    ("compile model.tflite -o a.so --threads 0", 2, "option 'threads'", nothing),
    ("compile model.tflite -o a.so --threads two", 2, "option 'threads'", nothing),
    ("compile model.tflite -o a.so --rounding down", 2, "option 'rounding'", nothing),
    ("compile model.tflite -o a.so --arena-limit -1", 2, "option 'arena_limit'", nothing),
    ("compile model.tflite -o a.so --arena-limit 10", 1, "arena of a region", nothing),
    ("compile model.tflite -o a.so --weight-limit 10", 1, "weights of a region", nothing),
    ("compile model.tflite -o a.so --tuning none.json", 2, "none.json", nothing),
    ("compile model.tflite -o a.so --tuning x.npy", 2, "tuning", nothing),
    ("compile model.tflite -o a.so --target llvm", 2, "begins with tinyai", nothing),
    ("compile model.tflite -o a.so --target 'tinyai -x=1'", 2, "unknown option", nothing),
    ("compile model.tflite -o a.so --target 'tinyai -isa'", 2, "-name=value", nothing),
    ("compile model.tflite -o a.so --cc no-such-compiler", 2, "no C compiler", nothing),
    ("compile model.tflite -o a.so --cc false", 2, "the C compiler failed", nothing),
    ("compile model.tflite -o a.so --cc 'gcc --no-such-flag'", 2, "no-such-flag", nothing),
    ("compile model.tflite -o a.so --name 3d", 2, "no digit first", nothing),
    ("compile model.tflite -o a.so --name 'a b'", 2, "letters, digits and _", nothing),
    ("compile model.tflite -o a.so --ends int4", 2, "int4", nothing),
    ("compile model.onnx -o a.so --ends int8", 2, "ends='int8'", nothing),
    ("compile model.tflite -o a.so --input-shapes x", 2, "input shapes", nothing),
    ("compile model.tflite -o a.so --input-shapes y:[1]", 2, "as many dimensions", nothing),
    ("compile model.tflite -o net.tar --arena-limit 10", 1, "arena of a region", nothing),
    ("compile model.onnx -o net", 1, "a float model", nothing),
    ("run", 2, "Missing argument", nothing),
    ("run net.so", 2, "no --input", nothing),
    ("run none.so -i x.npy", 2, "none.so, no file", nothing),
    ("run bad.so -i x.npy", 1, "begin with b'hello'", make(bad_so=b"hello")),
    ("run net.so -i none.npy", 2, "none.npy, no file", nothing),
    ("run net.so -i labels.txt", 2, "*.npy, *.png", nothing),
    ("run net.so -i bad.npy", 2, "bad.npy: ", make(bad_npy=b"hello")),
    ("run net.so -i bad.npz", 2, "bad.npz: ", make(bad_npz=b"hello")),
    ("run net.so -i bad.png", 2, "bad.png: ", make(bad_png=b"hello")),
    ("run net.so -i x.npy -i x.npy", 2, "number of --input", nothing),
    ("run net.so -i x.npy -o y.txt", 2, "ends with .npz", nothing),
    ("run net.so -i x.npy -o none/y.npz", 2, "no folder", nothing),
    ("run net.so -i x.npy --labels labels.txt", 2, "without --top", nothing),
    ("run net.so -i x.npy --top 0", 2, "--top", nothing),
    ("run net.so -i x.npy --top 1 --labels none.txt", 2, "no text file", nothing),
    ("run net.so -i x.npy --isa scalar", 2, "beside a library", nothing),
    ("run net.tar -i x.npy --isa scalar", 2, "beside a library or package", nothing),
    ("run net.tar -i x.npy --input-shapes x:[1]", 2, "options beside a C package", nothing),
    ("run net.tar -i x.npy --method one", 2, "beside a single network", nothing),
    ("run none.tar -i x.npy", 2, "none.tar, no file and no folder", nothing),
    ("run bad.tar -i x.npy", 1, "bad.tar: ReadError", make(bad_tar=b"hello")),
    ("run empty -i x.npy", 1, "empty: no files *_manifest.json", make(empty=b"/")),
    ("run net.tar -i y.npy", 2, "int8[1,49,10,1]", lambda: np.save("y.npy", np.zeros(3, "int8"))),
    ("run net.so -i y.npy", 2, "int8[1,49,10,1]", lambda: np.save("y.npy", np.zeros(3, "int8"))),
    ("run net.so -i y.npy", 2, "scaled=True", lambda: np.save("y.npy", np.zeros((1, 49, 10, 1)))),
    ("run net.so -i y.npz", 2, "'input_1'", lambda: np.savez("y.npz", a=[1], b=[2])),
    ("explain none.onnx", 2, "no file", nothing),
    ("explain model.tflite --format xml", 2, "xml", nothing),
    ("bench model.tflite --runs 0", 2, "--runs", nothing),
    ("bench model.tflite --peers --layers", 2, "without --peers", nothing),
    ("bench model.tflite --peers --runs 5", 2, "without --peers", nothing),
    ("bench model.tflite --seconds 1", 2, "with --peers", nothing),
    ("bench labels.txt --peers", 2, ".tflite files as they are", nothing),
    ("bench model.onnx", 1, "a float model", nothing),
    ("tune model.tflite", 2, "Missing option '--output'", nothing),
    ("tune model.tflite -o none/t.json --seconds 0", 2, "none", nothing),
    ("ops model.tflite", 2, "unexpected extra argument", nothing),
    ("paint", 2, "No such command", nothing),
]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # TVM's importers'
@pytest.mark.parametrize(
    ("command", "code", "told", "begin"), WRONG, ids=[f"{row[0]}: {row[2]}"[:90] for row in WRONG]
)
def test_wrong_uses_are_told_on_a_screen_and_leave_nothing(
    inside: Path,
    command: str,
    code: int,
    told: str,
    begin: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "gcc")  # to be restored, whatever ``begin`` does to it
    begin()
    before = {path: path.stat().st_mtime_ns for path in inside.rglob("*")}
    result = run(*shlex.split(command))
    assert result.exit_code == code, result.output
    assert told in result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) <= 24
    assert sum(1 + len(line) // 100 for line in lines) <= 40
    assert "Traceback" not in result.output
    assert {path: path.stat().st_mtime_ns for path in inside.rglob("*")} == before


def test_a_fault_of_our_own_is_told_with_what_to_report(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a thing")

    from tinyai.runtime import link

    monkeypatch.setattr(link, "compile_network", fail)
    result = run("compile", "model.tflite", "-o", "a.so")
    assert result.exit_code == 3
    assert "a fault of tinyai's own in link.py" in result.stderr
    assert "KeyError: 'a thing'" in result.stderr
    assert "Please report it" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in run("compile", "-v", "model.tflite", "-o", "a.so").stderr
    monkeypatch.setattr(link, "compile_network", lambda *_, **__: raised(DefectError("of a pass")))
    assert run("compile", "model.tflite", "-o", "a.so").exit_code == 3
    assert not (inside / "a.so").exists()


def test_the_file_at_fault_is_ours_whatever_the_folders_above_it_are_called(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception of ours goes through a module outside of the package, below another tinyai."""
    outside = inside / "tinyai" / "outside.py"
    outside.parent.mkdir()
    outside.write_text("def call(function): function()")
    namespace: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec(compile(outside.read_text(), str(outside), "exec"), namespace)

    def fail(*_: object, **__: object) -> None:
        namespace["call"](lambda: raised(KeyError("a thing")))

    from tinyai.runtime import link

    monkeypatch.setattr(link, "compile_network", fail)
    assert "own in link.py" in run("compile", "model.tflite", "-o", "a.so").stderr


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


@pytest.mark.long
@pytest.mark.parametrize(
    "command", ["explain model.tflite", "compile model.tflite -o a.so --isa scalar", "doctor"]
)
def test_the_current_folder_may_be_gone_or_unwritable_and_nothing_is_left_in_it(
    inside: Path, command: str
) -> None:
    words = [str(inside / word) if "." in word else word for word in command.split()]
    before = {*files(inside), inside / "a.so"}
    where = inside.parent / "where"
    for folder in (where, Path("/proc")):
        where.mkdir(exist_ok=True)
        leave = where.rmdir if folder == where else None
        done = process(folder, *words, preexec_fn=leave)
        assert done.returncode == 0, done.stderr
    assert {*files(inside), inside / "a.so"} == before
    assert process(inside, *words).returncode == 0
    assert {*files(inside), inside / "a.so"} == before


@pytest.mark.parametrize(
    "hides", ["tvm.py", "tvm/__init__.py"], ids=["a module", "a package without Relay"]
)
def test_what_hides_tvm_is_named_by_the_doctor_to_whom_the_commands_lead(
    inside: Path, hides: str
) -> None:
    (inside / hides).parent.mkdir(exist_ok=True)
    (inside / hides).write_text("__version__ = '0.26.0'")
    (inside / "a.relay").write_text(RELAY)
    for command in ("compile a.relay -o a.so", "check a.relay", "explain a.relay"):
        done = process(inside, *command.split())
        assert done.returncode == 2, done.stderr
        assert "needs a TVM with Relay\n  found:   cannot import name 'relay'" in done.stderr
        assert "  try:     python -m tinyai doctor" in done.stderr
    done = process(inside, "doctor")
    assert done.returncode == 2
    place = str(inside / hides).removesuffix("/__init__.py")
    assert f"error: {place} is what `import tvm` finds, no TVM with Relay, and hides" in done.stdout
    assert "try: move or rename it, or run in another folder" in done.stdout


@pytest.mark.parametrize(
    "command",
    ["compile a.relay -o a.so", "ops --of relay", "explain a.relay", "check a.relay"],
)
def test_without_a_tvm_what_needs_one_says_so(
    inside: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inside / "a.relay").write_text(RELAY)
    for name in ("whole", "spelling", "explain"):
        monkeypatch.setitem(sys.modules, f"tinyai.frontends.relay.{name}", None)
        monkeypatch.delattr(f"tinyai.frontends.relay.{name}", raising=False)
    result = run(*command.split())
    assert result.exit_code == 2
    assert "a TVM with Relay" in result.stderr
    assert not (inside / "a.so").exists()


def raised(error: Exception) -> None:
    raise error


def process(inside: Path, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tinyai", *arguments],
        cwd=inside,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        **settings,  # type: ignore[call-overload]
    )


def test_ctrl_c_while_the_compiler_runs_leaves_nothing(inside: Path) -> None:
    cc = inside / "slow-cc"
    cc.write_text("#!/bin/sh\nkill -INT $PPID\nsleep 1\n")
    cc.chmod(0o755)
    before = files(inside)
    with_handler = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    done = process(
        inside, "compile", "model.tflite", "-o", "a.so", "--cc", str(cc), preexec_fn=with_handler
    )
    assert (done.returncode, done.stderr) == (130, "Aborted!\n")
    assert files(inside) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("command", ["run net.so -i x.npy", "run net.so -i x.npy --top 1", "ops"])
def test_an_output_without_room_is_named(inside: Path, command: str) -> None:
    words = [sys.executable, "-m", "tinyai", *command.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=inside, check=False
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[:2] == [
        "error: standard output cannot be written",
        "  found:   No space left on device",
    ]


@pytest.mark.parametrize(
    "command",
    ["compile e.onnx -o a.so", "explain none.tflite", "compile model.tflite -o a.so --cc true"],
)
def test_bad_files_and_compilers_are_told_before_tvm_is_imported(
    inside: Path, command: str
) -> None:
    (inside / "e.onnx").touch()
    (inside / "tvm.py").write_text("raise RuntimeError('imported')")
    done = process(inside, *command.split())
    assert done.returncode in (1, 2)
    assert "imported" not in done.stderr
    assert any(told in done.stderr for told in ("an empty file", "no file", "wrote nothing"))


def test_a_full_disk_is_told_and_leaves_what_was_there(inside: Path) -> None:
    (inside / "a.so").write_bytes(b"what was there")
    before = files(inside)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))  # noqa: E731
    done = process(
        inside, "compile", "model.tflite", "-o", "a.so", "--isa", "scalar", preexec_fn=limit
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) <= 24
    assert "a file cannot be written" in done.stderr
    assert files(inside) == before
    assert (inside / "a.so").read_bytes() == b"what was there"
