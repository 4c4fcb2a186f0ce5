"""Options and fixtures that several test files share."""

from __future__ import annotations

import os

import pytest

from tests.c_checks import COMPILERS, SANITIZERS, missing, missing_sanitizers

# Without it TVM looks for tuning logs on the network at every build.
os.environ.setdefault("TOPHUB_LOCATION", "NONE")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden anew, then compare"
    )


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> str:
    """Each compiler that must take emitted C without a warning."""
    return _or_skip(request.param, missing(request.param))


@pytest.fixture(params=SANITIZERS)
def sanitizer(request: pytest.FixtureRequest) -> str:
    """Each compiler whose sanitizers must find nothing in emitted C."""
    return _or_skip(request.param, missing_sanitizers(request.param))


def _or_skip(name: str, reason: str | None) -> str:
    if reason is not None:
        pytest.skip(reason)
    return name
