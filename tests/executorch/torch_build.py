"""Which build of torch pip is about to take: said before it is downloaded.

An index of CPU builds calls them ``2.13.0+cpu`` and has 200 MB for one. Others hand out a build for
CUDA under the plain number on Linux, with libraries of several GB, that works as well.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
MESSAGE = """\
torch {version} of this package index is a build for GPUs.
  found:   {found}
  expect:  several GB of downloads and of disk space; it runs on the CPU as well
  try:     PIP_EXTRA_INDEX_URL=URL make executorch
           with the index of CPU builds that PyTorch's page "Get started" shows"""


def pinned(requirements: str) -> str:
    """The version of torch that is asked for."""
    (version,) = re.findall(r"^torch==(\S+)$", requirements, re.MULTILINE)
    return str(version)


def offered(version: str, said: str) -> str:
    """What pip takes for ``version`` of what ``pip index versions torch`` said: of builds of one
    version the last, in the order of their names; the plain one only where there is no other."""
    line = next((line for line in said.splitlines() if line.startswith("Available versions:")), "")
    versions = [each.strip() for each in line.partition(":")[2].split(",")]
    return max((each for each in versions if each.partition("+")[0] == version), default="")


def warning(version: str, build: str, machine: str) -> str:
    """What to say of a build; nothing of one for CPUs, or where none was found."""
    local = build.partition("+")[2]
    if not build or local == "cpu" or (not local and machine != "x86_64"):
        return ""
    found = build if local else f"{build} without +cpu"
    return MESSAGE.format(version=version, found=found)


def main() -> None:
    version = pinned(REQUIREMENTS.read_text())
    # It only informs: where pip cannot tell, the installation is going to say why.
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    message = warning(version, offered(version, said), platform.machine())
    if message:
        print(message, file=sys.stderr)


if __name__ == "__main__":
    main()
