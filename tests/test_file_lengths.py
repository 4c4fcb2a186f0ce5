"""Files of the package are short enough to be read in one go."""

from __future__ import annotations

from pathlib import Path

import tinyai

MOST = 500


def test_no_file_of_the_package_is_longer_than_the_most() -> None:
    lengths = {
        path: len(path.read_text().splitlines())
        for path in Path(tinyai.__file__).parent.rglob("*.py")
    }
    assert {str(path): length for path, length in lengths.items() if length > MOST} == {}
