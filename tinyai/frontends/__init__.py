"""The doors: source languages in, regions and graphs out. The only rooms with TVM, beside
``tinyai/runtime/tvm_module.py``."""
