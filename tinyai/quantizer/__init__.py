"""From a float model to one with quantize and dequantize: ``tinyai.quantize``, for every front end.

On the neutral form: which values are quantized follows from the rows that turn such models into
integers (``tinyai/qdq``). A front end runs the float model and writes the result.
"""

from tinyai.quantizer.config import QuantConfig as QuantConfig
