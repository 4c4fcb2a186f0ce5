"""What ``relay.quantize`` writes, from float to float, equals TVM's CPU result bit for bit: in
numpy, and as compiled C."""

from __future__ import annotations

from tests.support.families.chains import SUITE

test_reference_and_compiled_code_equal_tvm = SUITE.test()
