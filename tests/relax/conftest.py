"""Fixtures of the tests that need a TVM with Relax."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import compilers


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_compiled_twice() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        compilers.use(patch)
        yield
