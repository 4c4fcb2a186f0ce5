"""Libraries that were compiled for this machine and are found again, in the user's cache."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MOST_KEPT = 64  # of a kind


def kept_folder(kind: str) -> Path | None:
    """``~/.cache/tinyai/KIND``; None where it cannot be written."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        folder = Path(home) / "tinyai" / kind
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a user without a home
        return None
    return folder if os.access(folder, os.W_OK) else None


def drop_old(folder: Path) -> None:
    """Only the newest libraries are kept. Others may do the same meanwhile."""
    with contextlib.suppress(OSError):
        found = [(path.stat().st_mtime_ns, path) for path in folder.glob("*.so")]
        for _, path in sorted(found)[:-MOST_KEPT]:
            path.unlink()
