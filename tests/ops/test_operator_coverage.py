"""No operator is taken that is not compared with TVM."""

from __future__ import annotations

from tests.support.families import chains, elementwise, layers, moving, qnn
from tinyai.frontends.relay.spelling import supported


def test_families_cover_every_operator_that_tinyai_takes() -> None:
    families = (chains, elementwise, layers, moving, qnn)
    compared = set().union(*(each.SUITE.operators() for each in families))
    assert set(supported()) - compared == set()
