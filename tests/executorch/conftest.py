"""Fixtures of the tests that need torch. No TVM is imported here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import compilers
from tinyai.frontends.executorch import native_part


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_compiled_twice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """But the native part is made anew: what is kept at home is not what is tested."""
    home = tmp_path_factory.getbasetemp() / "cache"
    with pytest.MonkeyPatch.context() as patch:
        compilers.use(patch)
        patch.setattr(native_part, "kept_folder", lambda kind: _made(home / kind))
        yield


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
