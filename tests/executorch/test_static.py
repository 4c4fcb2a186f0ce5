"""Networks that an application links: packages, the table, and the example in C++."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.runtime import Runtime
from torch import nn

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import edge_of
from tests.executorch.hand_made import (
    SHAPE,
    Clamp,
    expected,
    image_graph,
    lowered,
    one_method,
    sample,
)
from tinyai.errors import OptionError
from tinyai.executorch import TinyAIPartitioner, TinyAIQuantizer, quantization_config
from tinyai.frontends.executorch import native_part
from tinyai.frontends.executorch.static import write_static

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def built_example(folder: Path) -> Path:
    """The example of a folder that ``write_static`` wrote."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-j2", f"EXECUTORCH={native_part.executorch_folder()}", "example"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return folder / "example"


def run(example: Path, program: bytes, method: str, x: np.ndarray) -> np.ndarray:
    return np.frombuffer(output(example, program, method, x), np.int8).reshape(x.shape)


def output(example: Path, program: bytes, method: str, x: np.ndarray) -> bytes:
    """The first output's bytes."""
    folder = example.parent
    (folder / "net.pte").write_bytes(program)
    (folder / "x.bin").write_bytes(x.tobytes())
    subprocess.run([example, "net.pte", method, "x.bin"], cwd=folder, check=True)
    return (folder / f"{method}.0").read_bytes()


@needs_make
def test_an_application_that_links_its_networks_runs_their_program(tmp_path: Path) -> None:
    """Two methods, a network each; written twice, as after a change."""
    graphs = [image_graph(seed=seed) for seed in range(3)]
    rest = iter(graphs)
    methods = {"one": (Clamp(), SHAPE), "two": (Clamp(), SHAPE)}
    program = lowered(methods, lambda *_: next(rest), isa="scalar", static="kws")
    write_static(one_method(static="kws"), tmp_path / "app")
    packages = write_static(program, tmp_path / "app")
    assert [package.name for package in packages] == ["kws_one_0", "kws_two_0"]
    example = built_example(tmp_path / "app")
    for graph, method in zip(graphs, methods, strict=False):
        result = run(example, bytes(program.buffer), method, sample())
        assert np.array_equal(result, expected(graph, sample()))


def test_a_linked_network_does_not_run_where_it_is_not_linked() -> None:
    program = Runtime.get().load_program(bytes(one_method(static="1").buffer))
    native_part.load()
    with pytest.raises(RuntimeError, match="0x:10"):  # not supported
        program.load_method("forward")


@needs_make
def test_an_application_refuses_programs_whose_networks_it_has_not(tmp_path: Path) -> None:
    write_static(one_method(static="1", isa="scalar"), tmp_path / "app")
    example = built_example(tmp_path / "app")
    other = lowered({"forward": (Clamp(), SHAPE)}, lambda *_: image_graph(seed=7), static="1")
    for program in (other, one_method()):
        with pytest.raises(subprocess.CalledProcessError):
            run(example, bytes(program.buffer), "forward", sample())
    right = one_method(static="1", isa="scalar")
    result = run(example, bytes(right.buffer), "forward", sample())
    assert np.array_equal(result, expected(image_graph(), sample()))


def test_a_program_without_packages_and_a_prefix_that_c_refuses_are_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"TinyAIPartitioner\(static=True\)"):
        write_static(one_method(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OptionError, match="compile spec 'static'"):
        one_method(static="a b")


@needs_make
def test_what_the_partitioner_delegates_computes_the_same_linked_and_loaded(tmp_path: Path) -> None:
    """From a torch module to the results of an application, for a text that names begin with."""
    native_part.load()
    torch.manual_seed(2)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    images = torch.randn(6, 1, 2, 6, 6)
    quantizer = TinyAIQuantizer().set_global(quantization_config())
    exported = quantized(module.eval(), [(image,) for image in images[:4]], quantizer)
    linked = edge_of(exported, TinyAIPartitioner(strict=True, static="tiny")).to_executorch()
    loaded = edge_of(exported, TinyAIPartitioner(strict=True)).to_executorch()
    (package,) = write_static(linked, tmp_path / "app")
    assert package.name == "tiny_forward_0"
    assert len(linked.buffer) < len(loaded.buffer), "no code and no weights in it"
    example = built_example(tmp_path / "app")
    method = Runtime.get().load_program(bytes(loaded.buffer)).load_method("forward")
    for image in images[4:]:
        expected = method.execute([image])[0].numpy()
        found = output(example, bytes(linked.buffer), "forward", image.numpy())
        np.testing.assert_array_equal(np.frombuffer(found, np.float32), expected.ravel())
        assert np.unique(expected).size > 1
