"""``make bench``: what it compares, what it refuses to time, and what it writes. Times are noise
here, so that none is judged."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import math
import os
import re
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import psutil
import pytest
import tvm
from click.testing import CliRunner
from onnx import helper
from rich.console import Console
from tvm import relay

from benchmarks import bench, bench_beside, bench_busy, bench_measure, bench_networks, onnx_networks
from benchmarks import timing as single_calls
from benchmarks.bench_measure import Differs, Settings, difference
from benchmarks.bench_networks import MODELS, Case
from benchmarks.timing import Calls
from benchmarks.workloads import host_target
from tests.support.c_checks import generate_wrong_weights
from tests.support.disk import cache_folder
from tests.support.machines import require_isa
from tests.support.onnx_models import Model, quantized
from tinyai.backend import pipeline
from tinyai.checking.beside import time_beside
from tinyai.checking.peers import LiteRT, OnnxRuntime, OpenVino, apart
from tinyai.cli import main
from tinyai.doctor import others_saturate
from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.frontends.files import network_of_file
from tinyai.runtime import peak, timing
from tinyai.runtime.timing import Times
from tinyai.target import Target

KWS = "kws_ref_model"
SECONDS = 0.02


def settings(folder: Path, oracle: str = "auto", rounding: str = "upward") -> Settings:
    cache = cache_folder() / "bench"
    return Settings(SECONDS, None, rounding, (), host_target(), oracle, cache, folder)


def kws() -> Case:
    """The smallest convolutional network of the shared folder."""
    path = MODELS / f"{KWS}.tflite"
    if not path.exists():
        pytest.skip(f"the folder of shared models lacks {path.name}")
    return Case(KWS, "tflite", path)


def run(cases: list[Case], folder: Path) -> tuple[int, str, dict[str, Any]]:
    """Exit code, printed text and JSON of a run on one thread."""
    text, output = io.StringIO(), folder / "bench.json"
    console = Console(file=text, width=bench.WIDTH)
    code = bench.bench(cases, [1], settings(folder), ["a note"], output, None, console)
    return code, text.getvalue(), json.loads(output.read_text())


# --- A whole run -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, dict[str, Any]]:
    return run([kws()], tmp_path_factory.mktemp("bench"))


@pytest.mark.long
def test_a_network_is_equal_to_tvm_before_it_is_timed_against_litert(shown) -> None:
    code, text, report = shown
    (row,) = report["networks"]
    figures = row["figures"]
    assert code == 0
    assert (row["name"], row["threads"], row["problem"]) == (KWS, 1, None)
    check = figures["check"]
    assert (check["against"], check["largest"], check["limit"]) == ("TVM", 0, 0)
    assert check["inputs"] == bench_networks.INPUTS
    assert check["distinct"] > 2
    (peer,) = figures["peers"]
    assert peer["name"] == "LiteRT"
    assert peer["ratio"] == pytest.approx(peer["ms"] / figures["run_ms"])
    assert report["geometric_means"] == {"LiteRT": {"1": pytest.approx(peer["ratio"])}}
    assert "TVM: equal, 4 inputs" in text


@pytest.mark.long
def test_the_peers_integers_are_compared_with_its_reference_kernels(tmp_path: Path) -> None:
    row = bench_measure.measured(kws(), 1, settings(tmp_path, rounding="peer"))
    assert (row.problem, row.rounding) == (None, "tflite")
    assert row.figures is not None
    check = row.figures.check
    assert (check.against, check.limit) == ("LiteRT's reference kernels", 0)
    assert row.figures.upward_ms is not None
    assert row.figures.upward_ms > 0


@pytest.mark.long
def test_the_report_has_every_figure_of_a_network(shown) -> None:
    _, text, report = shown
    figures = report["networks"][0]["figures"]
    for name in ("run_ms", "entry_ms", "python_ms", "gmacs"):
        assert figures[name] > 0
    assert figures["macs"] > 2_000_000
    assert figures["gmacs"] == pytest.approx(figures["macs"] / figures["run_ms"] / 1e6)
    assert (figures["regions"], figures["host_operators"]) == (1, 0)
    assert figures["arena_bytes"] >= figures["arena_lower_bound"] > 0
    assert figures["weight_bytes"] > 20_000
    stages = [figures["compile"][name] for name in ("partition", "codegen", "compiler", "load")]
    assert all(stage > 0 for stage in stages)
    assert figures["compile"]["peak_mib"] > 64
    peak = report["peak_gmacs"]["1"]
    share = figures["share_of_peak"]
    assert share == (pytest.approx(figures["gmacs"] / peak) if peak else None)
    assert report["left_out"] == ["a note"]
    assert report["largest_spread"] == max(figures["spread"], figures["peers"][0]["spread"])
    assert KWS in text


def crash(*_: object) -> None:
    """Stands in for a peer that ends the process."""
    os._exit(3)


def test_a_process_that_crashes_is_a_row_with_its_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "measured", crash)
    code, text, report = run([Case("[red]unlucky", "onnx")], tmp_path)
    (row,) = report["networks"]
    assert code == 1
    assert row["figures"] is None
    assert row["problem"] == "the process that measured it crashed"
    assert text.count("the process that measured it crashed") == 2
    assert text.count("[red]unlucky") == 2
    assert report["geometric_means"] == {}


def test_a_file_that_cannot_be_read_is_a_row_with_its_problem(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"nothing of the kind")
    row = bench_measure.measured(Case("broken", "tflite", broken), 1, settings(tmp_path))
    assert row.figures is None
    assert (row.problem or "").startswith("ModelError: model file")


def test_wrong_results_are_never_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_wrong_weights(monkeypatch)
    monkeypatch.setattr(pipeline, "_KEPT", OrderedDict())  # no C of other tests
    monkeypatch.setattr(bench_measure, "in_turn", lambda *_, **__: pytest.fail("it was timed"))
    with pytest.raises(Differs, match="differs from"):
        bench_measure.measure(kws(), 1, settings(tmp_path, oracle="peer"))


def test_a_network_that_dies_out_is_compared_up_to_its_last_live_operator() -> None:
    path = MODELS / "mobilenet_v1_int8.tflite"
    if not path.exists():
        pytest.skip(f"the folder of shared models lacks {path.name}")
    network = bench_networks.load(Case(path.stem, "tflite", path), cache_folder() / "bench")
    whole = LiteRT(path.read_bytes(), 1)
    assert len(np.unique(whole.outputs(network.inputs[0])[0])) == 1
    found = bench_networks.alive_part(network, cache_folder() / "bench")
    assert found is not None
    part, what = found
    assert re.fullmatch(r"first \d+ of 34 operators", what)
    assert part.content is not None
    results = LiteRT(part.content, 1).outputs(part.inputs[0])
    assert len(np.unique(results[0])) > bench_networks.ALIVE


def small_onnx() -> tuple[bytes, np.ndarray]:
    """A network of the ONNX builder in QDQ form, and an input."""
    small = onnx_networks.NETWORKS[0]
    content = onnx_networks.quantize(small.build(**small.small)).SerializeToString()
    return content, onnx_networks.images(small.small["size"], 1)[0]


def test_a_peer_says_by_which_kernels_it_computes() -> None:
    content, image = small_onnx()
    framework, openvino = OnnxRuntime(content, 1), OpenVino(content, 1, ".onnx")
    saturating = "; sums that saturate" if others_saturate() else ""
    assert re.fullmatch(rf"QLinearConv \d+, QGemm 1{saturating}", framework.runs)
    assert "_I8 " in openvino.runs
    inputs = {onnx_networks.INPUT: image}
    (expected,), (found,) = framework.outputs(inputs), openvino.outputs(inputs)
    assert 0 <= apart([[found]], [[expected]]) < (0.3 if saturating else 0.1)
    assert len(np.unique(found)) > 2


@pytest.mark.long
def test_openvino_is_held_to_an_instruction_set(tmp_path: Path) -> None:
    content, _ = small_onnx()
    file = tmp_path / "small.onnx"
    file.write_bytes(content)
    chosen = dataclasses.replace(
        settings(tmp_path, rounding="peer"), peers=("openvino",), peer_isa="AVX2"
    )
    row = bench.in_a_process(bench_measure.measured, Case("small", "onnx", file), 1, chosen)
    assert not isinstance(row, str)
    assert row.figures is not None, row.problem
    framework, openvino = row.figures.peers
    assert framework.name == "ONNX Runtime"
    assert (framework.differs == 0) is not others_saturate()
    assert "avx2" in openvino.runs
    assert "avx512" not in openvino.runs
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_peers_have_the_shapes_and_values_that_are_asked_for(tmp_path: Path) -> None:
    """Of "x" with an open batch, and of "k", which says where the columns are cut."""
    product = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    model = Model((product,), {"x": (4, 8)}, weights={"w": (np.eye(8, dtype=np.float32), None)})
    proto, _ = quantized(model, "uint8")
    file, output = tmp_path / "cut.onnx", proto.graph.output[0]
    proto.graph.node.append(helper.make_node("Slice", [output.name, "k", "end", "axis"], ["cut"]))
    for name, value in (("end", 8), ("axis", 1)):
        number = np.array([value], np.int64)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(number, name))
    proto.graph.input.append(helper.make_tensor_value_info("k", onnx.TensorProto.INT64, [1]))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    output.CopyFrom(helper.make_tensor_value_info("cut", onnx.TensorProto.UINT8, None))
    onnx.save(proto, file)
    result = CliRunner().invoke(
        main, ["bench", str(file), "--peers", "--seconds", "0.01", "--input-shapes", "x:4x8 k=3"]
    )
    assert result.exit_code == 0, result.output
    assert "ONNX Runtime" in result.output
    assert "does not run" not in result.output


def test_a_peer_that_is_missing_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "has_openvino", lambda: False)
    assert bench.peers_of(["openvino", "tvm"]) == (
        ("tvm",),
        ['not compared with OpenVINO, which is missing: pip install "tinyai[bench]"'],
    )


def test_the_command_times_a_file_beside_the_programs_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, _ = small_onnx()
    file = tmp_path / "small.ONNX"
    file.write_bytes(content)
    target = Target(rounding="onnx")
    network = network_of_file(str(file), target)
    found = time_beside(network, file, target, seconds=SECONDS)
    assert [each.name for each in found.peers] == ["ONNX Runtime", "OpenVINO"]
    assert (found.peers[0].differs == 0) is not others_saturate()
    assert all(each.ratio == pytest.approx(each.ms / found.ms) for each in found.peers)
    monkeypatch.setattr(OpenVino, "outputs", lambda *_: [][0])
    found = time_beside(network, file, target, seconds=SECONDS)
    assert [each.name for each in found.peers] == ["ONNX Runtime"]
    (absent,) = found.absent
    assert absent.startswith("OpenVINO does not run small.ONNX: IndexError")
    monkeypatch.setattr("tinyai.checking.opponents.find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match="ONNX Runtime is missing"):
        time_beside(network, file, target, seconds=SECONDS)


def test_onnx_runtime_gives_what_its_session_gives_and_is_timed() -> None:
    content, image = small_onnx()
    peer = OnnxRuntime(content, 1)
    (expected,) = onnxruntime.InferenceSession(content).run(None, {onnx_networks.INPUT: image})
    np.testing.assert_array_equal(peer.outputs({onnx_networks.INPUT: image})[0], expected)
    assert peer.seconds(2) > 0


def test_differences_of_peers_are_shares_of_the_range_of_an_output() -> None:
    expected = [[np.array([0, 4], np.int8)], [np.array([2, 8], np.int8)]]
    assert apart(expected, expected) == 0
    assert apart([expected[0], [np.array([2, 4], np.int8)]], expected) == 0.5
    with pytest.raises(ValueError, match="zip"):
        apart([[*each, each[0]] for each in expected], expected)


# --- Beside busy processes ---------------------------------------------------------------------


@pytest.mark.long
def test_a_network_is_timed_beside_busy_processes_and_on_one_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_busy, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(bench, "in_a_process", lambda work, *arguments: work(*arguments))
    text, output = io.StringIO(), tmp_path / "bench.json"
    conditions = bench.conditions_of(["0", "1"], pinned=True)
    console = Console(file=text, width=bench.WIDTH)
    chosen = dataclasses.replace(settings(tmp_path), seconds=0.01)
    arguments = [kws()], [2], chosen, conditions, output, console
    assert bench.bench_calls(bench.BUSY_CALLS, *arguments) == 0
    (network,) = json.loads(output.read_text())["networks"]
    assert (network["name"], network["threads"], network["problem"]) == (KWS, 2, None)
    asked = [(row["condition"]["busy"], row["condition"]["pinned"]) for row in network["rows"]]
    assert asked == [(0, False), (1, False), (0, True), (1, True)]
    for row in network["rows"]:
        assert [each["name"] for each in row["times"]] == ["tinyai", "tinyai, 1 thread", "LiteRT"]
        for each in row["times"]:
            assert each["calls"] >= timing.ROUNDS
            assert each["median_ms"] > 0
            assert each["mean_ms"] > 0
    assert text.getvalue().count(KWS) == 4


def test_busy_processes_run_where_they_are_asked_to_and_end() -> None:
    before = os.sched_getaffinity(0)
    mine = set(psutil.Process().children())
    with bench_busy.machine(bench_busy.Condition(2, pinned=True)):
        busy = set(psutil.Process().children()) - mine
        assert len(busy) == 2
        (cpu,) = os.sched_getaffinity(0)
        assert all(each.cpu_affinity() == [cpu] for each in busy)
        assert all(each.is_running() for each in busy)
    assert not any(each.is_running() for each in busy)
    assert os.sched_getaffinity(0) == before


@pytest.mark.long
def test_a_network_is_timed_in_turns_with_other_runtimes_call_by_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_beside, "ASLEEP", 0)
    monkeypatch.setattr(bench_beside, "SLICE", 0.02)
    monkeypatch.setattr(bench, "in_a_process", lambda work, *arguments: work(*arguments))
    text, output = io.StringIO(), tmp_path / "bench.json"
    console = Console(file=text, width=bench.WIDTH)
    chosen = dataclasses.replace(settings(tmp_path), seconds=0.01)
    file = tmp_path / "small.onnx"
    file.write_bytes(
        onnx_networks.quantize(onnx_networks.mobilenet_v1(size=32, width=0.25)).SerializeToString()
    )
    cases, others = bench_networks.of_files([file]), bench.others_of(["onnxruntime", "openmp"])
    assert bench.bench_calls(bench.BESIDE_CALLS, cases, [2], chosen, others, output, console) == 0
    (network,) = json.loads(output.read_text())["networks"]
    assert [row["other"] for row in network["rows"]] == ["onnxruntime", "openmp"]
    for row in network["rows"]:
        assert row["calls"] >= 3
        assert 0 <= row["within"] <= 1
        assert min(row["undisturbed_ms"], row["alone_ms"], row["median_ms"], row["slow"]) > 0
    with pytest.raises(OptionError, match="--beside"):
        bench.others_of(["tensorflow"])


@pytest.mark.long
def test_runtimes_that_cannot_run_a_network_are_a_problem_of_it(tmp_path: Path) -> None:
    found = bench_beside.measured_beside(kws(), 2, settings(tmp_path), ("onnxruntime",))
    assert found.problem is not None
    assert "onnxruntime on a tflite network" in found.problem


def test_a_crash_beside_busy_processes_is_a_problem_of_its_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.StringIO()
    conditions = [bench_busy.Condition(0, pinned=False)]
    console = Console(file=text, width=bench.WIDTH)
    arguments = [Case("unlucky", "onnx")], [2], settings(tmp_path), conditions
    kind = dataclasses.replace(bench.BUSY_CALLS, measure=crash)
    assert bench.bench_calls(kind, *arguments, tmp_path / "bench.json", console) == 1
    assert "unlucky, 2 threads: the process that measured it crashed" in text.getvalue()


def test_single_calls_are_timed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    durations = itertools.cycle([5.0, 1.0, 2.0, 9.0])  # the first of each slice does not count

    def run() -> None:
        clock[0] += next(durations)

    monkeypatch.setattr(single_calls.time, "perf_counter", lambda: clock[0])
    (found,) = single_calls.calls_in_turn([run], 4.0 * timing.ROUNDS, settle=0)
    assert found == Calls(2.0, 4.0, 3 * timing.ROUNDS)


# --- Which networks ----------------------------------------------------------------------------


def test_what_the_readme_of_the_models_names_is_measured_or_left_out_with_a_reason(
    tmp_path: Path,
) -> None:
    case = kws()
    assert case.file is not None
    (tmp_path / "net.tflite").write_bytes(case.file.read_bytes())
    floats = case.file.with_name("kws_ref_model_float32.tflite")
    (tmp_path / "f.tflite").write_bytes(floats.read_bytes())
    (tmp_path / "README.md").write_text("| `net.tflite`, `f.tflite` | x |\n`gone.tflite` `x.onnx`")
    cases, notes = bench_networks.shared(tmp_path)
    assert cases == [Case("net", "tflite", tmp_path / "net.tflite")]
    assert notes == ["left out, float: f.tflite", "left out, not there: gone.tflite"]


def test_without_the_folder_of_models_there_is_a_note_and_our_own_networks(tmp_path: Path) -> None:
    cases, notes = bench_networks.known(tmp_path / "nowhere", relay=False)
    assert {case.kind for case in cases} == {"onnx"}
    assert "onnx_mobilenet_v1" in [case.name for case in cases]
    assert len(notes) == 1
    assert notes[0].startswith("no networks from files:")


def test_files_of_one_name_are_told_apart_and_other_files_refused(tmp_path: Path) -> None:
    files = [tmp_path / "a" / "net.onnx", tmp_path / "b" / "net.tflite", tmp_path / "other.onnx"]
    found = bench_networks.of_files(files)
    assert [case.name for case in found] == ["a/net", "b/net", "other"]
    assert [case.kind for case in found] == ["onnx", "tflite", "onnx"]
    with pytest.raises(OptionError, match="model file"):
        bench_networks.of_files([tmp_path / "net.pt"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--networks", "resnet5000"], "resnet5000"),
        (["--peers", "openvino,torch"], "found:   torch"),
        (["--peer-isa", "mmx"], "--peer-isa"),
        (["--threads", "0"], "option 'threads'"),
        (["--isa", "mmx"], "option 'isa'"),
        (["--seconds", "0"], "--seconds"),
        (["--busy", "two"], "--busy"),
        (["--busy", "1,65"], "numbers from 0 to 64"),
        (["--pinned"], "no --busy"),
        (["nothing.onnx"], "nothing.onnx"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_built(
    arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(bench.main, arguments)
    assert result.exit_code == 2
    assert message in result.output


# --- Comparing and timing ----------------------------------------------------------------------


def test_differences_are_in_steps_and_a_nan_that_one_side_has_is_infinite() -> None:
    a = np.array([0, 10, -128], np.int8)
    assert difference([a], [a]) == 0
    assert difference([a], [np.array([0, 10, 127], np.int8)]) == 255
    assert difference([a], [a.astype(np.uint8)]) == math.inf
    assert difference([a], [a, a]) == math.inf
    x = np.array([0.0, 1.0, np.nan], np.float32)
    assert difference([x], [x]) == 0
    assert difference([x[:2]], [np.array([0, 2], np.float32)]) == 127.5
    assert difference([x[:2]], [np.array([0, 2], np.float32)], [0.5]) == 2
    assert difference([x], [np.array([0, 1, 2], np.float32)]) == math.inf


def test_the_step_of_a_float_output_is_the_scale_that_dequantizes_it() -> None:
    x = relay.var("x", shape=(2, 2), dtype="int8")
    y = relay.qnn.op.dequantize(x, relay.const(0.25), relay.const(0))
    fields = [relay.reshape(y, (4,)), relay.nn.relu(y), x]
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple(fields)))
    assert bench_measure.steps(relay.transform.InferType()(mod)) == [0.25, None, None]


def test_contenders_take_turns_and_every_second_round_goes_backwards() -> None:
    calls: list[tuple[str, int]] = []

    def contender(name: str, seconds: float):
        def run(number: int) -> float:
            calls.append((name, number))
            return seconds

        return run

    found = timing.in_turn([contender("a", 0.25), contender("b", 1.0)], seconds=15.0, settle=0)
    assert found == [Times(0.25, 0), Times(1.0, 0)]
    slices = [call for call in calls[4:] if call != ("a", 1)][: 2 * timing.ROUNDS]
    assert slices[:8] == [("a", 4), *[("b", 1)] * 2, *[("b", 1)] * 2, ("a", 4), ("a", 4), ("b", 1)]


def test_a_time_is_the_median_and_its_spread_the_distance_of_the_quartiles() -> None:
    values = iter([10.0, 10.0, 0.0, 1.0, 0.0, 2.0, 0.0, 9.0])
    assert timing.in_turn([lambda _: next(values)], seconds=1.0, settle=0) == [Times(2.0, 4 / 2)]


def test_a_slow_contender_has_the_fewest_rounds() -> None:
    calls: list[int] = []

    def slow(number: int) -> float:
        calls.append(number)
        return 100.0

    assert timing.in_turn([slow], seconds=1.0, settle=0) == [Times(100.0, 0)]
    assert calls == [1] * (2 + 2 * timing.FEWEST_ROUNDS)


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert timing.geometric_mean([4.0, 0.25]) == pytest.approx(1.0)
    assert timing.geometric_mean([]) is None


def test_without_avx2_the_peak_is_not_known_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "instruction_sets", lambda _: ("scalar",))
    peak.product_peak.cache_clear()
    none = "this CPU has no AMX or AVX512-VNNI or AVX-VNNI or AVX2"
    assert peak.product_peak(1) == (None, none)
    assert peak.product_peak(1, "avx2") == (None, "this CPU has no AVX2")
    peak.product_peak.cache_clear()


@pytest.mark.parametrize("isa", ["avx2", "avxvnni", "avx512vnni", "amx"])
def test_each_set_has_a_peak_of_its_own(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_isa(isa)
    monkeypatch.setattr(peak, "SECONDS", 0.001)
    monkeypatch.setattr(peak, "instruction_sets", lambda _: (isa,))
    peak.product_peak.cache_clear()
    found, _ = peak.product_peak(1)
    assert found
    assert 1 < found < 10_000
    peak.product_peak.cache_clear()


def test_the_peak_of_a_set_that_is_refused_is_that_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_isa("avx512vnni")
    library = peak._library

    def refused(program: Path) -> object:
        nobody = SimpleNamespace(macs_a_second=lambda *_: -1)
        return nobody if "amx" in program.parts else library(program)

    monkeypatch.setattr(peak, "_library", refused)
    monkeypatch.setattr(peak, "instruction_sets", lambda _: ("scalar", "avx512vnni", "amx"))
    peak.product_peak.cache_clear()
    found, name = peak.product_peak(1)
    assert found
    assert name == "AVX512-VNNI"
    peak.product_peak.cache_clear()


def test_the_picture_is_whole_and_the_same_each_time(shown, tmp_path: Path) -> None:
    from benchmarks.bench_picture import draw

    figures = shown[2]["networks"][0]["figures"]
    peers = tuple(bench_measure.PeerTime(**peer) for peer in figures["peers"])
    check = bench_measure.Check(**figures["check"])
    cost = bench_measure.CompileCost(**figures["compile"])
    fields = {k: v for k, v in figures.items() if k != "share_of_peak"}
    made = bench_measure.Figures(**fields | {"peers": peers, "check": check, "compile": cost})
    rows = [bench_measure.Row("a$b", "tflite", 1, made), bench_measure.Row("c", "tflite", 1)]
    texts = []
    for name in ("first.svg", "second.svg"):
        draw(rows, tmp_path / name, "a CPU")
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    assert "LiteRT" in texts[0]
    assert "a CPU" in texts[0]
    assert "a$b" in texts[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.svg", "second.svg"]
