"""Files of ONNX: what they declare, and in which of its spellings."""
