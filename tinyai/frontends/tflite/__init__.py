"""Files of TFLite: what they declare."""
