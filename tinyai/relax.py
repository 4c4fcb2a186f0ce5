"""What users of TVM's Relax import. It needs that TVM, so ``import tinyai`` does not import it."""

from tinyai.frontends.relax.converters import torch_converters
from tinyai.frontends.relax.explain import explain
from tinyai.frontends.relax.partition import partition_for_tinyai
from tinyai.frontends.relax.pipeline import Partition, build, pipeline, register_hooks
from tinyai.stages import watched

__all__ = [
    "Partition",
    "build",
    "explain",
    "partition_for_tinyai",
    "pipeline",
    "register_hooks",
    "torch_converters",
    "watched",
]

register_hooks()
