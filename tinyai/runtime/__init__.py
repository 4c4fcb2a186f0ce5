"""Emitted C made runnable: compilers, a ctypes runner without TVM, and TVM modules."""
