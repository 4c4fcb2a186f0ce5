"""The doors: source languages in, regions and graphs out. The only rooms with TVM, beside
``tinyai/runtime/tvm_module.py``."""

# First of all: tinyai registers its hooks when TVM is imported, for which it imports doors. They
# must not be half imported then.
import tvm as tvm
