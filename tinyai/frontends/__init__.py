"""The front ends, a folder each: source languages in, regions and graphs out. A framework is
imported here alone (and TVM in ``tinyai/runtime/tvm_module.py``)."""
