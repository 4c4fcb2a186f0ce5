"""What users of TVM's Relax import. It needs that TVM, so ``import tinyai`` does not import it."""

from typing import Any

from tinyai.frontends.onnx.pairs import in_pairs
from tinyai.frontends.relax.converters import torch_converters
from tinyai.frontends.relax.explain import explain
from tinyai.frontends.relax.partition import partition_for_tinyai
from tinyai.frontends.relax.pipeline import Partition, build, pipeline, register_hooks
from tinyai.stages import watched

__all__ = [
    "Partition",
    "build",
    "explain",
    "in_pairs",
    "partition_for_tinyai",
    "pipeline",
    "register_hooks",
    "torch_converters",
    "watched",
]

register_hooks()


def __getattr__(name: str) -> Any:
    """``TinyAIQuantizer`` for ``prepare_pt2e``, which needs torch and torchao."""
    if name == "TinyAIQuantizer":
        from tinyai.frontends.executorch.quantizer import TinyAIQuantizer

        return TinyAIQuantizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
