"""Operators on single values equal TVM's CPU result bit for bit: in numpy, and as compiled C."""

from __future__ import annotations

import pytest

from tests.support.families.elementwise import SUITE

test_reference_and_compiled_code_equal_tvm = pytest.mark.long(SUITE.test())
