"""The noise of networks that torch's flow quantizes: by XNNPACK's quantizer, and by tinyai's.

    .venv-executorch/bin/python -m benchmarks.torch_quantizers [NETWORK ...]

In dB of signal to noise on inputs that no quantizer saw, of the converted graph, which torch runs.
XNNPACK's quantizer leaves pooling, hard-swish and the like in float.
"""

# ruff: noqa: E402  # warnings are silenced before torch is imported
from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable

warnings.simplefilter("ignore")  # torch and ExecuTorch warn of each other
logging.disable(logging.WARNING)

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantizer import Quantizer

from benchmarks.torch_networks import NETWORKS, Network, quantized
from tinyai.executorch import TinyAIQuantizer

Samples = list[tuple[torch.Tensor, ...]]
SEEN, UNSEEN = 100, 32
WITH_SAMPLES = "with samples"  # needs no calibration
QUANTIZERS: dict[str, Callable[[Samples], Quantizer]] = {
    "XNNPACK's": lambda _: XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=True)
    ),
    "tinyai's": lambda _: TinyAIQuantizer(),
    WITH_SAMPLES: lambda samples: TinyAIQuantizer(samples=samples),
}


def decibels(network: Network, made: torch.nn.Module) -> float:
    signal = noise = 0.0
    with torch.no_grad():
        for sample in network.samples(UNSEEN, seed=5):
            wanted = network.module(*sample)
            signal += float(wanted.square().sum())
            noise += float((wanted - made(*sample)).square().sum())
    return float(10 * torch.log10(torch.tensor(signal / noise)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[*NETWORKS], help=", ".join(NETWORKS))
    networks = parser.parse_args().networks
    if unknown := [name for name in networks if name not in NETWORKS]:
        parser.error(f"no network {unknown[0]}: {', '.join(NETWORKS)}")
    print(f"{'':16}" + "".join(f"{name:>22}" for name in QUANTIZERS))
    for name in networks:
        network = NETWORKS[name]()
        samples = network.samples(SEEN)
        cells = []
        for kind, quantizer in QUANTIZERS.items():
            observed = samples[:1] if kind == WITH_SAMPLES else samples
            begin = time.perf_counter()
            made = quantized(network.module, observed, quantizer(samples)).module()
            seconds = time.perf_counter() - begin
            cells.append(f"{decibels(network, made):.2f} dB ({seconds:.1f} s)")
        print(f"{name:16}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
