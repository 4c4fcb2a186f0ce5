"""Renews the script that lays out the graph on the page of a report.

Run `python -m benchmarks.page.renew_dagre`. It needs npm, which fetches the package of exactly
this version and checks what it got. A newer one is asked for by changing VERSION; DIGEST is then
what the error says.
"""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path

PACKAGE, VERSION = "@dagrejs/dagre", "3.1.3"
# Of dagre.min.js in the package, SHA-256.
DIGEST = "54a503e346f93ca0bb10abe7999587e037262935687aca45eb4e4b0f64bbb578"
ASSETS = Path(__file__).parents[2] / "tinyai" / "report" / "assets"
MAP = "//# sourceMappingURL=dagre.min.js.map\n"  # which the page does not have


def digest(script: Path) -> str:
    """That of the script as it was in its package."""
    return hashlib.sha256((script.read_text() + MAP).encode()).hexdigest()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", f"{PACKAGE}@{VERSION}"], cwd=folder, check=True)
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        made = Path(folder) / "package" / "dist"
        script = (made / "dagre.min.js").read_text()
        (ASSETS / "dagre.min.js").write_text(script.replace(MAP, ""))
        (ASSETS / "dagre.LICENSE.txt").write_text((made / "dagre.min.js.LEGAL.txt").read_text())
    found = digest(ASSETS / "dagre.min.js")
    if found != DIGEST:
        raise SystemExit(f"dagre.min.js: SHA-256 {found}, expected {DIGEST}")


if __name__ == "__main__":
    main()
