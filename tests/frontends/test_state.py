"""Streaming models, which keep values from one call to the next."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import tinyai
from tests.support.oracle import Array
from tests.support.paths import MODELS
from tests.support.streaming_tflite import StreamingWriter, by_litert, delay, window
from tinyai.backend import compile_graph
from tinyai.checking.check import check
from tinyai.errors import BoundaryError, ModelError, UnsupportedError
from tinyai.frontends.files import explain_file, network_of_file
from tinyai.network import Network
from tinyai.runtime.library import FORMAT, FORMAT_WITH_STATE, facts_of_library
from tinyai.target import Target

OURS = Target(rounding="tflite")
SANITIZED = "-O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
CALLS, SEQUENCES = 100, 20


def written(folder: Path, content: bytes) -> Path:
    file = folder / "net.tflite"
    file.write_bytes(content)
    return file


def drawn(shape: Sequence[int], calls: int, seed: int = 0) -> list[Array]:
    """Inputs that change slowly, so that values inside are not all at their bounds."""
    rng = np.random.default_rng(seed)
    low, high = sorted(rng.choice(np.arange(-128, 128), 2, replace=False).tolist())
    walk = np.cumsum(rng.normal(0, 6, (calls, *shape)), 0) + rng.integers(low, high, shape)
    return list(np.clip(walk, -128, 127).astype(np.int8))


def assert_equal(found: Iterable[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> None:
    for mine, other in zip(found, expected, strict=True):
        for value, wanted in zip(mine, other, strict=True):
            np.testing.assert_array_equal(value, wanted)


def reference(network: Network, calls: Sequence[Array]) -> list[list[Array]]:
    return [each[: len(network.outputs)] for each in network.run([call] for call in calls)]


@pytest.mark.parametrize("make", [window, delay])
def test_the_reference_gives_litert_s_integers_call_after_call(
    make: Callable[[], bytes], tmp_path: Path
) -> None:
    """A variable is read before it is assigned, after it, and into another variable."""
    content = make()
    network = network_of_file(written(tmp_path, content), OURS)
    assert len(network.states) == 2
    calls = drawn(network.inputs[0].type.shape, 12)
    assert_equal(reference(network, calls), by_litert(content, calls))


@pytest.mark.parametrize("make", [window, delay])
def test_a_model_begins_anew_after_reset(make: Callable[[], bytes], tmp_path: Path) -> None:
    content = make()
    model = tinyai.Model(written(tmp_path, content), "tinyai -isa=native")
    calls = drawn(model.inputs[0].shape, 12)
    expected = by_litert(content, calls)
    assert_equal(map(model, calls), expected)
    assert not np.array_equal(model(calls[0])[0], expected[0][0])
    model.reset()
    assert_equal(map(model, calls), expected)


def test_calls_of_a_model_with_state_take_turns(tmp_path: Path) -> None:
    """Whatever the order in which threads call, each call adds to the sum of those before."""
    model = tinyai.Model(written(tmp_path, window()), "tinyai -isa=native")
    x = np.full(model.inputs[0].shape, -2, np.int8)  # a step of the scale
    expected = [model(x)[2].flat[0] for _ in range(100)]
    model.reset()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: model(x)[2].flat[0], range(100)))
    assert sorted(found) == expected


@pytest.mark.parametrize("ports_in_arena", [False, True])
@pytest.mark.parametrize("make", [window, delay])
def test_an_instance_of_a_c_package_keeps_its_state(
    make: Callable[[], bytes], ports_in_arena: bool, tmp_path: Path
) -> None:
    content, folder = make(), tmp_path / "net"
    file = written(tmp_path, content)
    package = tinyai.emit_c(file, folder, "tinyai -isa=scalar", ports_in_arena=ports_in_arena)
    test_package(folder)
    states = network_of_file(file, OURS).states
    once = sum(state.port.type.bytes for state in states)
    assert package.report.state_bytes == (once if ports_in_arena else 2 * once)
    assert f"{package.report.state_bytes} bytes of an instance" in str(package.report)
    model = tinyai.Model(folder)
    calls = drawn(model.inputs[0].shape, 12)
    for _ in range(2):
        assert_equal(map(model, calls), by_litert(content, calls))
        model.reset()


def test_package(folder: Path) -> None:
    """The package's own test, three runs in a row, under the sanitizers."""
    flags = {"CFLAGS": SANITIZED, "LDFLAGS": "-fsanitize=address,undefined", "CC": "gcc"}
    done = subprocess.run(
        ["make", "-s", "test"],
        cwd=folder,
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("OK\n", "")


test_package.__test__ = False  # type: ignore[attr-defined]


DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
extern const int64_t net_arena_bytes, net_state_bytes;
void net_reset(void *state);
int32_t net_step(const void *const *inputs, void *const *outputs, void *arena, void *state);

int main(void) {
    char *const x = malloc(4);
    const void *const inputs[] = {x};
    signed char *const last = malloc(4);
    void *const outputs[] = {malloc(16), malloc(12), last};
    void *const arena = malloc((size_t)net_arena_bytes + 64);
    void *const state = aligned_alloc(64, (size_t)net_state_bytes);
    for (int sequence = 0; sequence < 2; ++sequence) {
        net_reset(state);
        for (int call = 0; call < 5; ++call) {
            for (int i = 0; i < 4; ++i) {
                x[i] = (char)(call + i);
            }
            if (net_step(inputs, outputs, (char *)arena + (64 - (uintptr_t)arena % 64), state)) {
                return 1;
            }
        }
        printf("%d %d %d %d\\n", last[0], last[1], last[2], last[3]);
    }
    free(x);
    free(arena);
    free(state);
    for (int i = 0; i < 3; ++i) {
        free(outputs[i]);
    }
    return 0;
}
"""


def test_the_functions_of_a_library_keep_to_their_memory(tmp_path: Path) -> None:
    """All memory is the caller's, of the sizes that the library says, under the sanitizers."""
    content = window()
    network = network_of_file(written(tmp_path, content), OURS, "net")
    states = [state.value for state in network.states]
    compiled = compile_graph(network.graph, OURS, abi="plain", states=states)
    (tmp_path / "net.c").write_text(compiled.source.text)
    (tmp_path / "main.c").write_text(DRIVER)
    command = ["gcc", "-std=gnu11", *SANITIZED.split(), "net.c", "main.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    calls = [np.arange(call, call + 4, dtype=np.int8).reshape(1, 1, 1, 4) for call in range(5)]
    line = " ".join(map(str, by_litert(content, calls)[-1][2].reshape(-1).tolist()))
    assert done.stdout.splitlines() == [line, line]


def test_only_libraries_with_state_have_another_format(tmp_path: Path) -> None:
    """Libraries that were written before load, and an older tinyai refuses those with state."""
    library = tinyai.compile(written(tmp_path, window()), tmp_path / "net.so")
    facts = facts_of_library(library)
    assert facts["format"] == FORMAT_WITH_STATE
    assert facts["state_bytes"] == 2 * 2 * 64
    w = StreamingWriter(np.random.default_rng(0))
    x = w.tensor_like([1, 4])
    w.ends([x], [w.sum(x, x)])
    library = tinyai.compile(written(tmp_path, w.content()), tmp_path / "net.so")
    facts = facts_of_library(library)
    assert facts["format"] == FORMAT
    assert "state_bytes" not in facts
    tinyai.Model(library).reset()


# --- What is a state, and what is not ------------------------------------------------------------


def network_with(w: StreamingWriter, folder: Path) -> Network:
    return network_of_file(written(folder, w.content()), OURS)


def started() -> tuple[StreamingWriter, int]:
    w = StreamingWriter(np.random.default_rng(0))
    x = w.tensor_like([1, 4])
    w.ends([x], [])
    assert x.index == 0
    w.call_once()
    return w, w.handle("kept")


INITIAL = {"kept": np.int8([[1, 2, 3, 4]])}


@pytest.mark.parametrize("is_assigned", [False, True])
def test_a_variable_whose_value_no_call_keeps_is_no_state(
    is_assigned: bool, tmp_path: Path
) -> None:
    """One that is never assigned is a constant; another is assigned before it is read."""
    w, kept = started()
    x = w.tensor_like([1, 4])
    if is_assigned:
        w.assign(kept, x)
    w.ends([x], [w.sum(x, w.read(kept, [1, 4]))])
    w.begin(INITIAL)
    network = network_with(w, tmp_path)
    assert network.states == ()
    calls = drawn((1, 4), 3)
    assert_equal(reference(network, calls), by_litert(w.content(), calls))


def refusal(w: StreamingWriter, folder: Path) -> str:
    with pytest.raises(BoundaryError) as caught:
        network_with(w, folder)
    (row,) = caught.value.report.host
    return f"{row.operator}: {row.reason.clause}: {row.reason.found}"


def test_a_variable_without_an_initial_value_is_refused(tmp_path: Path) -> None:
    w, kept = started()
    x = w.tensor_like([1, 4])
    value = w.read(kept, [1, 4])
    w.assign(kept, x)
    w.ends([x], [value])
    w.begin({})
    found = "READ_VARIABLE: state: a variable that is read before it has a value"
    assert refusal(w, tmp_path) == found


def test_a_variable_that_changes_its_type_is_refused(tmp_path: Path) -> None:
    w, kept = started()
    x = w.tensor_like([1, 4])
    value = w.read(kept, [1, 4])
    w.assign(kept, w.joined(value, x))
    w.ends([x], [w.sum(x, value)])
    w.begin(INITIAL)
    assert "ASSIGN_VARIABLE: types and scales of a variable: int8[1,8]" in refusal(w, tmp_path)


def test_a_variable_that_another_operator_may_change_is_refused(tmp_path: Path) -> None:
    w, kept = started()
    x = w.tensor_like([1, 4])
    value = w.read(kept, [1, 4])
    w.assign(kept, x)
    w.add("CALL", [x.index], [w.tensor_like([1, 4]).index], "Call")
    w.ends([x], [w.sum(x, value)])
    w.begin(INITIAL)
    assert refusal(w, tmp_path) == "ASSIGN_VARIABLE: state: CALL, which may change a variable"


def test_a_variable_as_an_output_is_refused(tmp_path: Path) -> None:
    w, kept = started()
    x = w.tensor_like([1, 4])
    w.assign(kept, x)
    w.ends([x], [w.sum(x, x)])
    w.model.subgraphs[0].outputs.append(kept)
    w.begin(INITIAL)
    assert refusal(w, tmp_path) == "VAR_HANDLE: state: a variable itself"


def test_a_second_first_call_is_refused(tmp_path: Path) -> None:
    w, kept = started()
    x = w.tensor_like([1, 4])
    w.call_once()
    w.ends([x], [w.sum(x, w.read(kept, [1, 4]))])
    w.begin(INITIAL)
    assert "READ_VARIABLE: state: CALL_ONCE after a variable was used" in refusal(w, tmp_path)


def test_a_call_of_a_subgraph_that_is_not_there_is_no_fault_of_ours(tmp_path: Path) -> None:
    for number in (0, 7, -1):
        w = StreamingWriter(np.random.default_rng(0))
        x = w.tensor_like([1, 4])
        w.call_once(number)
        w.ends([x], [w.sum(x, x)])
        with pytest.raises(ModelError, match="a call of subgraph"):
            network_with(w, tmp_path)


def test_bundles_refuse_state(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="state of method one"):
        tinyai.lower({"one": written(tmp_path, window())})


def test_explain_counts_state_apart_from_the_arena(tmp_path: Path) -> None:
    report = explain_file(written(tmp_path, window()), OURS)
    assert report.host == ()
    assert dict(report.regions[0].operators)["CONCATENATION"] == 1
    assert report.regions[0].state_bytes == 16
    assert "state:       16 bytes" in str(report)
    assert report.to_dict()["regions"][0]["state_bytes"] == 16


# --- Compared with LiteRT ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["", "so", "package"])
def test_check_calls_both_sides_in_a_row(kind: str, tmp_path: Path) -> None:
    file, built = written(tmp_path, window()), None
    if kind == "so":
        built = tinyai.compile(file, tmp_path / "net.so", "tinyai -isa=scalar")
    elif kind == "package":
        built = tmp_path / "net"
        tinyai.emit_c(file, built, "tinyai -isa=scalar")
    result = check(file, built=built, samples=2)
    assert result.equal, str(result)
    assert result.samples == 50


def test_check_finds_the_layer_that_differs_in_a_later_call(tmp_path: Path) -> None:
    """The code's initial value is another one than the file's, so that the second call differs from
    what the file computes; layers are compared in the state of that call."""
    file = written(tmp_path, window())
    built = tinyai.compile(file, tmp_path / "net.so", "tinyai -isa=scalar")
    other = written(tmp_path, window(np.zeros((1, 3, 1, 4), np.int8)))
    result = check(other, built=built, samples=1)
    assert not result.equal
    assert result.outputs[0].sample == 0
    assert 0 < result.outputs[0].differing < result.outputs[0].elements / 10


def alexa(outputs: Sequence[int] = ()) -> bytes:
    """A wake word's file, with tensors inside as further outputs: its own hardly ever changes."""
    path = MODELS / "real" / "alexa.tflite"
    if not path.exists():
        pytest.skip(f"the folder of shared models lacks {path.name}")
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    model.subgraphs[0].outputs = [*model.subgraphs[0].outputs, *outputs]
    model.signatureDefs = []
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_a_wake_word_gives_litert_s_integers_for_a_hundred_calls(tmp_path: Path) -> None:
    """Through a model and through a C package, for 20 sequences."""
    flat, newest, joined = 66, 61, 42
    content = alexa([flat, newest, joined])
    file = written(tmp_path, content)
    tinyai.emit_c(file, tmp_path / "net", "tinyai -isa=scalar")
    test_package(tmp_path / "net")
    models = [tinyai.Model(file, "tinyai -isa=native"), tinyai.Model(tmp_path / "net")]
    seen: set[int] = set()
    for seed in range(SEQUENCES):
        calls = drawn((1, 3, 40), CALLS, seed)
        expected = by_litert(content, calls)
        seen.update(*(np.unique(outputs[1]).tolist() for outputs in expected))
        for model in models:
            model.reset()
            assert_equal(map(model, calls), expected)
    assert len(seen) > 100
