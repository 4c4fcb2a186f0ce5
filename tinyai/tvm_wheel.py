"""Packs the TVM inside of BitBLAS's wheel as a wheel of its own, named apache-tvm.

What changes on the way:

* three small libraries stand in for CUDA's: each function reports "no device";
* libtvm.so looks for them beside itself;
* ``tvm/include`` exists (see tvm_include/README);
* tvmc finds the configuration that it starts with;
* from Python 3.12 on it asks for setuptools, which brings the distutils that TVM imports.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyai.errors import EnvironmentProblem

SOURCE_REQUIREMENT = "bitblas==0.1.0.post1"
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


def include_files() -> list[tuple[str, Path]]:
    """The files of ``tvm/include``: (path below it, file), sorted."""
    files = (path for path in INCLUDE.rglob("*") if path.is_file())
    return sorted((path.relative_to(INCLUDE).as_posix(), path) for path in files)


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
