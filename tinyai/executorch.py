"""What ExecuTorch's users import. It needs torch, so ``import tinyai`` does not import it."""

from tinyai.frontends.executorch.backend import TinyAIExecuTorchBackend
from tinyai.frontends.executorch.configuration import quantization_config
from tinyai.frontends.executorch.edge import EdgeGraph, graph_of
from tinyai.frontends.executorch.explain import explain
from tinyai.frontends.executorch.native_part import load
from tinyai.frontends.executorch.partitioner import TinyAIPartitioner
from tinyai.frontends.executorch.quantizer import TinyAIQuantizer
from tinyai.frontends.executorch.static import write_static
from tinyai.stages import watched

__all__ = [
    "EdgeGraph",
    "TinyAIExecuTorchBackend",
    "TinyAIPartitioner",
    "TinyAIQuantizer",
    "explain",
    "graph_of",
    "load",
    "quantization_config",
    "watched",
    "write_static",
]
