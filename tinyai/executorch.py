"""What ExecuTorch's users import. It needs torch, so ``import tinyai`` does not import it."""

from tinyai.frontends.executorch.quantizer import TinyAIQuantizer, quantization_config

__all__ = ["TinyAIQuantizer", "quantization_config"]
