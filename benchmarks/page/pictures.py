"""Pictures of reports' pages as Chromium draws them, in build/pictures/reports.

    python -m benchmarks.page.pictures [files] [executorch] [relax]

Each group needs the environment of its front end; ``make page-pictures`` calls all three. A page is
shown light, dark and as wide as a phone, with the layer chosen that its first link leads to. What a
page costs is printed: its bytes, and the milliseconds until all of it was there. A message of the
console, or a page that is wider than its window, ends it with 1.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from benchmarks.page.browser import NARROW, ROOT, WIDE, Browser, browser
from tests.support.paths import DIGITS, MODELS
from tinyai.cli import main as tinyai

PICTURES = ROOT / "build" / "pictures" / "reports"
VIEWS = (("light", "light", WIDE), ("dark", "dark", WIDE), ("phone", "light", NARROW))
TINY = {
    "kws": "kws_ref_model.tflite",
    "ad01": "ad01_int8.tflite",
    "vww": "vww_96_int8.tflite",
    "resnet8": "pretrainedResnet_quant.tflite",
}


def command(code: int, *words: object) -> None:
    """Runs a command of tinyai's, which has to end with this code."""
    done = CliRunner().invoke(tinyai, [str(word) for word in words])
    if done.exit_code != code:
        raise RuntimeError(f"tinyai {words[0]}: exit code {done.exit_code}\n{done.output}")


def files(folder: Path) -> None:
    """Pages of files, of each command that writes one, and of a module that the host shares."""
    import onnx

    from benchmarks import onnx_networks

    for name, file in TINY.items():
        library = folder / f"{name}.so"
        command(0, "compile", MODELS / file, "-o", library, "--html", folder / f"{name}.html")
    mobilenet = MODELS / "mobilenet_v2_int8.tflite"
    command(0, "bench", mobilenet, "--layers", "--html", folder / "mobilenet_v2.html")
    for name, made in (("resnet50", onnx_networks.resnet50), ("unet", onnx_networks.unet)):
        onnx.save(onnx_networks.quantize(made()), folder / f"{name}.onnx")
        command(0, "explain", folder / f"{name}.onnx", "--html", folder / f"{name}.html")
    command(0, "explain", MODELS / "real" / "i8_nmp.tflite", "--html", folder / "host_file.html")
    _relay(folder / "host_relay.html")
    _failed_check(folder)
    samples = folder / "samples.npz"
    image = np.random.default_rng(0).random((8, 1, 8, 8)).astype(np.float32)
    np.savez(samples, image=image)
    ranked = ("--calibrate", samples, "--rank")
    command(0, "quantize", DIGITS, *ranked, "--html", folder / "quantized.html")


def _relay(page: Path) -> None:
    """A module with three operators of the host between two regions and behind them."""
    from tvm import relay

    from tests.support import relay_nets
    from tinyai.frontends.relay.explain import explain

    inner = relay.cast(relay_nets.layers(2), "int32")
    einsum = relay.einsum([relay.reshape(inner, (1, -1))] * 2, "ij,kj->ik")
    outer = relay.erf(relay.cast(einsum, "float32"))
    explain(relay_nets.module(relay.einsum([outer, outer], "ij,kj->ik"))).html(page)


def _failed_check(folder: Path) -> None:
    """A check that finds a wrong weight in a C package."""
    from tests.support.planted_faults import with_wrong_number

    file, package = MODELS / TINY["kws"], folder / "kws_package"
    command(0, "compile", file, "-o", package, "--isa", "scalar")
    (weights,) = package.glob("*_weights.c")
    weights.write_text(with_wrong_number(weights.read_text(), 4))
    command(1, "check", file, "--with", package, "--html", folder / "failed_check.html")


def executorch(folder: Path) -> None:
    """The page of a torch network that ExecuTorch lowers."""
    from executorch.exir import to_edge
    from torchao.quantization.pt2e.quantizer import Quantizer

    from benchmarks.torch_networks import NETWORKS, quantized
    from tinyai.executorch import TinyAIQuantizer, explain, quantization_config

    network = NETWORKS["mobilenet_v2"]()
    quantizer: Quantizer = TinyAIQuantizer().set_global(quantization_config())
    exported = quantized(network.module, network.samples(4), quantizer)
    explain(to_edge(exported)).html(folder / "executorch.html", "MobileNetV2, from torch")


def relax(folder: Path) -> None:
    """The page of a module of the stock TVM's."""
    from tvm.relax.frontend.onnx import from_onnx

    from benchmarks import onnx_networks
    from tinyai.relax import explain

    model = onnx_networks.quantize(onnx_networks.mobilenet_v2(size=96, width=0.5))
    report = explain(from_onnx(model, keep_params_in_input=False))
    report.html(folder / "relax.html", "MobileNetV2, from ONNX by Relax")


GROUPS: dict[str, Callable[[Path], None]] = {
    "files": files,
    "executorch": executorch,
    "relax": relax,
}


def pictures(page: Browser, file: Path) -> list[str]:
    """Writes the pictures of a page, and returns what is wrong with it."""
    faults = []
    link = re.search(r'"link":"(layer=[\d.]+)"', file.read_text())
    for name, theme, size in VIEWS:
        ready = page.show_report(file, link[1] if link else "", size, theme)
        picture = PICTURES / f"{file.stem}-{name}.png"
        page.run("await new Promise((done) => setTimeout(done, 200))")  # C is unpacked meanwhile
        page.picture(picture, whole=name == "phone")
        wide = page.run("return document.documentElement.scrollWidth")
        faults += [f"{picture.name}: {fault}" for fault in page.errors()]
        if wide > size[0]:
            faults.append(f"{picture.name}: {wide} pixels wide in a window of {size[0]}")
        print(f"{picture.name:<32}{file.stat().st_size:>10,} bytes{ready:>6.0f} ms", flush=True)
    return faults


def main() -> int:
    folder = ROOT / "build" / "page" / "reports"
    faults = []
    for group in sys.argv[1:] or GROUPS:
        place = folder / group
        shutil.rmtree(place, ignore_errors=True)
        for each in (place, PICTURES):
            each.mkdir(parents=True, exist_ok=True)
        GROUPS[group](place)
        with browser() as page:
            for file in sorted(place.glob("*.html")):
                faults += pictures(page, file)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
