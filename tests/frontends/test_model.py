"""``tinyai.compile`` and ``tinyai.Model`` of model files."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import tinyai
from tests.support.example_graphs import small_network
from tests.support.paths import MODELS
from tinyai.errors import BoundaryError, ModelError, OptionError
from tinyai.frontends.relay.load import load_model
from tinyai.runtime import kept as kept_libraries
from tinyai.runtime import link

KWS = MODELS / "kws_ref_model.tflite"
TARGET = "tinyai -isa=scalar -rounding=tflite"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tinyai" / "models"


def sample() -> np.ndarray:
    return np.random.default_rng(0).integers(-128, 128, (1, 49, 10, 1)).astype(np.int8)


def test_a_model_file_runs_and_its_library_is_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = tinyai.Model(KWS, TARGET)
    expected = tinyai.run_graph(tinyai.network_of(KWS, tinyai.Target.of(TARGET)).graph, [sample()])
    assert np.array_equal(model.run(sample())[0], expected[0])
    assert (model.inputs[0].scale, model.inputs[0].zero_point) == (0.5847029089927673, 83)
    assert len([*cache.iterdir()]) == 1
    # A copy of the same content and name is known, in other options it is not.
    copy = tmp_path / KWS.name
    copy.write_bytes(KWS.read_bytes())
    monkeypatch.setattr(link, "compile_network", None)
    assert np.array_equal(tinyai.Model(copy, TARGET).run(sample())[0], expected[0])
    with pytest.raises(TypeError):
        tinyai.Model(copy, "tinyai -isa=scalar -rounding=onnx")
    (kept,) = cache.iterdir()
    # What was cut off is made anew.
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parents[1]))
    whole = kept.read_bytes()
    kept.unlink()  # this process has loaded it
    kept.write_bytes(whole[:1000])
    assert np.array_equal(tinyai.Model(copy, TARGET).run(sample())[0], expected[0])
    assert kept.read_bytes() == whole


def test_only_the_newest_libraries_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_libraries, "MOST_KEPT", 2)
    for number in range(3):
        tinyai.Model(KWS, f"{TARGET} -arena_limit={10**6 + number}")
    assert len([*cache.iterdir()]) == 2


def test_what_is_kept_is_not_loaded_if_it_is_another_code(cache: Path, tmp_path: Path) -> None:
    expected = tinyai.Model(KWS, TARGET).run(sample())[0]
    (kept,) = cache.iterdir()
    whole, mark = kept.read_bytes(), tmp_path / "loaded"
    source, other = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(
        f"""#include <stdio.h>
        __attribute__((constructor)) static void begin(void) {{ fopen("{mark}", "w"); }}"""
    )
    tinyai.Toolchain().shared_library(other, [source])
    kept.unlink()  # this process has loaded it
    kept.write_bytes(other.read_bytes())
    assert np.array_equal(tinyai.Model(KWS, TARGET).run(sample())[0], expected)
    assert not mark.exists()
    assert [path.read_bytes() for path in cache.iterdir()] == [whole]


def test_the_folder_of_what_is_kept_is_the_users_alone(cache: Path) -> None:
    cache.mkdir(parents=True, mode=0o755)
    for folder in (cache.parent, cache):
        folder.chmod(0o755)
    tinyai.Model(KWS, TARGET)
    assert [*cache.iterdir()]
    assert {folder.stat().st_mode & 0o777 for folder in (cache.parent, cache)} == {0o700}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
@pytest.mark.parametrize("place", ["cache", "link"])
def test_a_folder_of_another_users_is_not_used_and_that_is_said(
    cache: Path, place: str, tmp_path: Path
) -> None:
    cache.mkdir(parents=True, mode=0o777)
    if place == "link":
        cache.rename(tmp_path / "elsewhere")
        cache.symlink_to(tmp_path / "elsewhere")
    os.chown(cache, 12345, 12345)
    with pytest.warns(UserWarning, match=f"{cache} belongs to another user: what is compiled is"):
        model = tinyai.Model(KWS, TARGET)
    assert model.run(sample())[0].shape == (1, 12)
    assert not [*cache.iterdir()]


def test_a_module_and_a_graph_are_models_too(cache: Path) -> None:
    mod, params = load_model(KWS)
    file, module = tinyai.Model(KWS, TARGET), tinyai.Model(mod, TARGET, params=params)
    assert np.array_equal(file.run(sample())[0], module.run(sample())[0])
    graph = small_network()
    x = np.zeros(graph.type(graph.inputs[0]).shape, np.float32)
    expected = tinyai.run_graph(graph, [x])
    assert np.array_equal(tinyai.Model(graph, TARGET).run(x)[0], expected[0])


def test_targets_are_values_or_strings_everywhere(tmp_path: Path) -> None:
    graph, target = small_network(), tinyai.Target(isa="scalar")
    x = np.ones(graph.type(graph.inputs[0]).shape, np.float32)
    for asked in (target, "tinyai -isa=scalar"):
        assert tinyai.compile_graph(graph, asked, abi="plain").source.text == (
            tinyai.compile_graph(graph, target, abi="plain").source.text
        )
        assert tinyai.Runner(graph, asked)(x)
        package = tinyai.emit_c(graph, tmp_path / "package", asked)
        assert package.files == tinyai.emit_c(graph, tmp_path / "package", target).files
        assert tinyai.Model(tinyai.compile(graph, tmp_path / "net.so", asked)).run(x)
        assert tinyai.network_of(KWS, asked).graph.nodes
        assert not tinyai.explain(KWS, target=asked).computing
    for call in (tinyai.compile_graph, tinyai.Runner, tinyai.network_of):
        with pytest.raises(OptionError, match="target"):
            call(KWS if call is tinyai.network_of else graph, 3)
    with pytest.raises(OptionError, match="target"):
        tinyai.emit_c(graph, tmp_path / "other", 3)  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()


def test_integer_ends_are_asked_for(cache: Path) -> None:
    vww = MODELS / "mcunet_vww.tflite"
    models = [tinyai.Model(vww, TARGET, ends=ends) for ends in ("model", "int8")]
    assert [model.inputs[0].dtype for model in models] == ["float32", "int8"]
    image = np.random.default_rng(0).uniform(-1, 1, models[0].inputs[0].shape).astype("float32")
    floats, integers = (model.run(image, scaled=True)[0] for model in models)
    assert np.array_equal(floats, integers)


@pytest.mark.parametrize(
    ("model", "options", "kind", "told"),
    [
        ("none.tflite", {}, OptionError, "no file"),
        ("bad.tflite", {}, ModelError, "TFL3"),
        ("net.pb", {}, OptionError, "allowed:"),
        (3, {}, OptionError, "allowed:"),
        (None, {}, OptionError, "allowed:"),
        (MODELS / "ad01_fp32.onnx", {}, BoundaryError, "a float model"),
        (KWS, {"target": "llvm"}, OptionError, "begins with tinyai"),
        (KWS, {"target": 3}, OptionError, "tinyai.Target"),
        (KWS, {"target": "tinyai -speed=9"}, OptionError, "speed"),
        (KWS, {"ends": "float"}, OptionError, "ends of a network"),
        (KWS, {"params": {"a": 1}}, OptionError, "params"),
        (KWS, {"toolchain": "gcc"}, OptionError, "toolchain"),
        (KWS, {"input_shapes": "x"}, OptionError, "input shapes"),
        (small_network(), {"input_shapes": "x:[1]"}, OptionError, "beside a Graph"),
    ],
)
def test_wrong_uses_of_model_and_compile_are_told(
    cache: Path, tmp_path: Path, model: object, options: dict, kind: type[Exception], told: str
) -> None:
    (tmp_path / "bad.tflite").write_bytes(b"nothing of the kind")
    model = tmp_path / model if isinstance(model, str) else model
    with pytest.raises(kind, match=told):
        tinyai.Model(model, **options)
    with pytest.raises(kind, match=told):
        tinyai.compile(model, tmp_path / "net.so", **options)
    assert not (tmp_path / "net.so").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("kind", ["library", "package", "file"])
def test_a_model_is_pickled_by_its_path_and_options(
    cache: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if kind == "library":
        tinyai.compile(KWS, "net.so", TARGET)
        model = tinyai.Model("net.so")
    elif kind == "package":
        tinyai.emit_c(KWS, "net", TARGET)
        model = tinyai.Model("net")
    else:
        model = tinyai.Model(KWS, "tinyai -isa=scalar -rounding=upward")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = pickle.loads(pickle.dumps(model))
    assert (again.name, again.target) == (model.name, model.target)
    assert np.array_equal(again.run(sample())[0], model.run(sample())[0])


def test_a_model_of_no_file_is_not_pickled(cache: Path) -> None:
    model = tinyai.Model(small_network())
    with pytest.raises(OptionError, match="one that a path leads to"):
        pickle.dumps(model)


def test_an_empty_path_is_no_folder() -> None:
    for call in (tinyai.Model, tinyai.network_of, tinyai.explain):
        with pytest.raises(OptionError, match="an empty path"):
            call("")
