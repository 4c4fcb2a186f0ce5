"""Brings a TVM that still has Relay into a Python environment (Linux, x86-64).

Apache TVM's own wheels start after the release that removed Relay. The wheel of BitBLAS carries a
complete TVM 0.17 with Relay, but asks for PyTorch and for CUDA's libraries. ``tinyai install-tvm``
downloads that wheel (its sha256 is pinned), packs the TVM inside as a wheel of its own
(``tvm_wheel.py``), and installs it.

The packed wheel is built once and kept in ``$XDG_CACHE_HOME/tinyai`` (``~/.cache/tinyai``).
Needs a C compiler and its binutils, and pip in the environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tinyai import tvm_wheel
from tinyai.errors import EnvironmentProblem
from tinyai.tvm_wheel import (
    SOURCE_REQUIREMENT,
    WHEEL_NAME,
    find_compiler,
    include_files,
    last_line,
    repack,
    run,
)

SOURCE_SHA256 = "5beaf38899671dc35da63ff31b8d7bea4d98a2c929a102fe40d2f3004cec391b"
SOURCE_MEGABYTES = 82
# The cache holds, for a moment, the download, the library and the packed wheel.
NEEDED_MEGABYTES = 500


def install_tvm(python: str = sys.executable, *, dependencies: bool = True) -> None:
    """Install the packed TVM for the environment of ``python``, with the packages that it needs
    unless ``dependencies`` is False. Raises ``EnvironmentProblem`` where that is not possible."""
    check_platform(platform.system(), platform.machine())
    check_python(python)
    install(python, packed_wheel(cache_folder(), python), dependencies=dependencies)


def check_platform(system: str, machine: str) -> None:
    """Raise EnvironmentProblem unless the wheel's binaries run on this kind of machine."""
    if (system, machine) != ("Linux", "x86_64"):
        raise EnvironmentProblem(
            "the packed TVM does not run on this machine",
            found=f"{system} {machine}",
            allowed="Linux x86_64",
            hint="build a TVM with Relay from source (below 0.20); its distribution is named tvm",
        )


def check_python(python: str) -> None:
    """Raise EnvironmentProblem where ``python`` has no pip, or a TVM that was built from source."""
    others = run([python, "-c", _LOOK]).stdout.split()
    if "pip" not in others:
        raise EnvironmentProblem(
            "the environment has no pip, which installs TVM",
            found=python,
            allowed="a Python with pip",
            hint=f"{python} -m ensurepip, or name another by --python",
        )
    if "tvm" in others:
        raise EnvironmentProblem(
            "the environment has a TVM already",
            found="the distribution tvm",
            allowed="none, or the distribution apache-tvm, which is replaced",
            hint="python -m tinyai doctor tells whether it has Relay; else pip uninstall tvm",
        )


_LOOK = (
    "from importlib.metadata import distributions as found\n"
    "from importlib.util import find_spec\n"
    "print(*['pip'] * bool(find_spec('pip')), *['tvm'] * any(found(name='tvm')))"
)


def cache_folder() -> Path:
    """The folder that keeps the packed wheel between environments."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tinyai"


def packed_wheel(cache: Path, python: str) -> Path:
    """Return the packed wheel, building it first unless ``cache`` holds it already.

    Concurrent callers wait for each other. A build that fails leaves no file behind.
    """
    wheel = cache / f"relay-tvm-{recipe_key()}" / WHEEL_NAME
    if wheel.exists():
        return wheel
    with disk_errors(cache), locked(cache):
        if not wheel.exists():  # another process may have built it while we waited
            build_wheel(wheel, python)
    return wheel


def recipe_key() -> str:
    """A short hash of all that the packed wheel is made from, besides the pinned source."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(Path(tvm_wheel.__file__).read_bytes())
    for name, path in include_files():
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``folder`` (created if missing), and clear old debris.

    The lock file stays: removing it would let two processes lock two different files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "relay-tvm.lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another process that packs TVM")
            fcntl.flock(handle, fcntl.LOCK_EX)
        for debris in folder.glob(".relay-tvm-*"):  # of a build that was killed
            shutil.rmtree(debris, ignore_errors=True)
        yield


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full disk, or a folder that cannot be written, into a EnvironmentProblem."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            "the packed TVM cannot be written",
            found=str(error),
            allowed=f"{NEEDED_MEGABYTES} MB of free disk in a folder to write to: {folder}",
            hint="free some space, or point XDG_CACHE_HOME to another folder",
        ) from error


def build_wheel(wheel: Path, python: str) -> None:
    """Download the source, repack it, and move the result to ``wheel`` in one step."""
    cache = wheel.parent.parent
    compiler = find_compiler()
    check_space(cache)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".relay-tvm-") as folder:
        scratch = Path(folder)
        report(f"downloading {SOURCE_REQUIREMENT} ({SOURCE_MEGABYTES} MB), which holds TVM")
        source = download(python, scratch)
        started = time.monotonic()
        report("packing TVM as a wheel of its own")
        packed = repack(source, scratch, compiler)
        wheel.parent.mkdir(exist_ok=True)
        os.replace(packed, wheel)
        megabytes = wheel.stat().st_size / 1e6
        report(f"packed {megabytes:.0f} MB in {time.monotonic() - started:.0f} s: {wheel}")


def check_space(folder: Path) -> None:
    """Raise EnvironmentProblem unless the build fits on the disk of ``folder``."""
    free = shutil.disk_usage(folder).free // 1_000_000
    if free < NEEDED_MEGABYTES:
        raise EnvironmentProblem(
            "too little disk space to pack TVM",
            found=f"{free} MB free at {folder}",
            allowed=f"at least {NEEDED_MEGABYTES} MB",
            hint="free some space, or point XDG_CACHE_HOME to another folder",
        )


def download(python: str, folder: Path) -> Path:
    """Let pip fetch the source wheel into ``folder``; pip checks the pinned sha256."""
    requirements = folder / "source.txt"
    requirements.write_text(f"{SOURCE_REQUIREMENT} --hash=sha256:{SOURCE_SHA256}\n")
    # pip's progress bar goes to stdout, straight to the user; stderr is kept for the error.
    command = [python, "-m", "pip", "download", "--no-deps", "--require-hashes"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:"]
    command += ["--requirement", str(requirements), "--dest", str(folder)]
    process = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if process.returncode == 0:
        (wheel,) = folder.glob("*.whl")
        return wheel
    if "DO NOT MATCH THE HASHES" in process.stderr:
        got = re.findall(r"Got\s+([0-9a-f]{64})", process.stderr)
        raise EnvironmentProblem(
            f"the wheel {SOURCE_REQUIREMENT} is not the one that is pinned",
            found=f"sha256 {got[0] if got else 'that differs'}",
            allowed=f"sha256 {SOURCE_SHA256}",
            hint="clear pip's cache (pip cache purge), or use another package index",
        )
    raise EnvironmentProblem(
        f"the wheel {SOURCE_REQUIREMENT} could not be downloaded",
        found=last_line(process.stderr),
        allowed="a package index, or a folder named by PIP_FIND_LINKS, that offers it",
        hint="check the network and pip's settings (pip config list), then run again",
    )


def install(python: str, wheel: Path, *, dependencies: bool = False) -> None:
    """Install ``wheel`` for ``python`` unless this very file is installed, and try Relay."""
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if installed_sha256(python) != hashlib.sha256(wheel.read_bytes()).hexdigest():
        report(f"installing {wheel.name}")
        run([*command, "--no-deps", "--no-index", "--force-reinstall", str(wheel)])
    if dependencies:
        report("installing the packages that TVM needs")
        run([*command, str(wheel)])
    # Without TOPHUB_LOCATION=NONE, TVM looks for tuning logs on the network.
    settings = os.environ | {"TOPHUB_LOCATION": "NONE"}
    with tempfile.TemporaryDirectory() as folder:  # TVM makes one where it is imported
        run([python, "-c", _TRY, folder], settings)


_TRY = """
import os, sys
os.chdir(sys.argv[1])
from tvm import relay
relay.var('x')
"""


def installed_sha256(python: str) -> str | None:
    """The sha256 of the wheel that apache-tvm was installed from, or None if unknown."""
    script = (
        "from importlib.metadata import distributions as found\n"
        "d = next(found(name='apache-tvm'), None)\n"
        "print(d and d.read_text('direct_url.json') or '{}')"
    )
    origin = json.loads(run([python, "-c", script]).stdout)
    digest: str | None = origin.get("archive_info", {}).get("hashes", {}).get("sha256")
    return digest


def report(text: str) -> None:
    """Print one line of progress."""
    print(f"install-tvm: {text}", flush=True)
