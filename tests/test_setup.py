"""Setting up: packing a TVM with Relay, the environment of ``make``, and one's own TVM."""

import base64
import csv
import errno
import hashlib
import importlib.metadata
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tinyai
from tests.support.paths import MODELS, ROOT
from tinyai import install_tvm, tvm_wheel
from tinyai.errors import EnvironmentProblem

SOURCE_WHEEL = "bitblas-0.1.0.post1-py3-none-manylinux1_x86_64.whl"
# What each environment depends on: a change of one brings it up to date.
INPUTS = {
    "env": [
        "pyproject.toml",
        "tests/requirements.txt",
        "tinyai/install_tvm.py",
        "tinyai/tvm_wheel.py",
        "tinyai/tvm_include/README",
    ],
    "executorch-env": [
        "pyproject.toml",
        "tests/executorch/requirements.txt",
        "tests/executorch/torch_build.py",
    ],
    "docs-env": ["docs/requirements.txt"],
}
FOLDERS = {"env": ".venv", "executorch-env": ".venv-executorch", "docs-env": ".venv-docs"}
STEPS = {
    "env": ["-m venv", "--requirement", "install-tvm", "--editable", "--quiet check"],
    "executorch-env": ["-m venv", "torch_build.py", "--requirement", "--editable"],
    "docs-env": ["-m venv", "--requirement", "--quiet check"],
}
PYTHON312 = shutil.which("python3.12")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

FAKE_LIBRARY = """
int cuInit(int); int cuGetErrorName(int, const char **);
int cudaFree(void *); const char *cudaGetErrorString(int); int nvrtcVersion(int *, int *);
int sum(void) { int v; return cuInit(0) + cudaFree(0) + nvrtcVersion(&v, &v); }
const char *text(void) { return cudaGetErrorString(1); }
const char *name(void) { const char *t = "unset"; cuGetErrorName(1, &t); return t; }
"""


@pytest.fixture(autouse=True)
def isolated_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep pip away from the network and from this machine's settings."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("CC", raising=False)


def write_source_wheel(folder: Path, library: bytes) -> Path:
    """A small wheel that is laid out as the pinned one."""
    folder.mkdir(exist_ok=True)
    path = folder / SOURCE_WHEEL
    members = {
        "bitblas/__init__.py": b"",
        f"{tvm_wheel.PYTHON_ROOT}tvm/__init__.py": b"__version__ = '0.17.dev0'\n",
        f"{tvm_wheel.PYTHON_ROOT}tvm/.gitignore": b"*.so\n",
        f"{tvm_wheel.PYTHON_ROOT}tvm/relay/__init__.py": (
            b"import os\nos.mkdir('made-at-import')\nvar = str\n"
        ),
        f"{tvm_wheel.PYTHON_ROOT}setup.py": b"",
        tvm_wheel.LIBRARY: library,
        f"{tvm_wheel.TVM_ROOT}LICENSE": b"Apache License\n",
        f"{tvm_wheel.TVM_ROOT}licenses/LICENSE.rang.txt": b"Unlicense\n",
        "bitblas-0.1.0.post1.dist-info/LICENSE": b"MIT License\n",
        "bitblas-0.1.0.post1.dist-info/METADATA": (
            b"Metadata-Version: 2.1\nName: bitblas\nVersion: 0.1.0.post1\n"
        ),
        "bitblas-0.1.0.post1.dist-info/WHEEL": (
            b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-manylinux1_x86_64\n"
        ),
        "bitblas-0.1.0.post1.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in members.items():
            wheel.writestr(name, data)
    return path


def compile_library(folder: Path) -> bytes:
    """A library that asks for CUDA's, with the run path and symbol versions of the real one."""
    folder.mkdir()
    compiler = tvm_wheel.find_compiler()
    names = ["cuInit", "cuGetErrorName", "cudaFree", "cudaGetErrorString", "nvrtcVersion"]
    stubs = [tvm_wheel.build_stub(stub, names, folder, compiler) for stub in tvm_wheel.STUBS]
    (folder / "tvm.c").write_text(FAKE_LIBRARY)
    run_path = f"-Wl,-rpath,{tvm_wheel.OLD_RUN_PATH.decode()}"
    command = ["gcc", "-shared", "-fPIC", "-o", str(folder / "libtvm.so"), str(folder / "tvm.c")]
    subprocess.run([*command, run_path, *map(str, stubs)], check=True)
    return (folder / "libtvm.so").read_bytes()


@pytest.fixture(scope="module")
def source_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small source wheel with a library that really needs its stand-ins."""
    folder = tmp_path_factory.mktemp("source")
    return write_source_wheel(folder / "wheels", compile_library(folder / "library"))


@pytest.fixture
def offer(source_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let pip find the small source wheel and take it for the pinned one."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(source_wheel.parent))
    digest = hashlib.sha256(source_wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(install_tvm, "SOURCE_SHA256", digest)
    return source_wheel


def left_behind(cache: Path) -> list[str]:
    """Names of what is in the cache, besides its lock."""
    found = (path.relative_to(cache).as_posix() for path in cache.rglob("*"))
    return sorted(name for name in found if name != "relay-tvm.lock")


# --- packing TVM ---


@needs_gcc
def test_packed_wheel_is_built_once_and_then_needs_neither_network_nor_compiler(
    offer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = install_tvm.packed_wheel(tmp_path, sys.executable)
    assert left_behind(tmp_path) == [wheel.parent.name, f"{wheel.parent.name}/{wheel.name}"]
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert install_tvm.packed_wheel(tmp_path, "no-python") == wheel


@needs_gcc
def test_packed_wheel_records_the_hash_and_size_of_every_file(offer: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(install_tvm.packed_wheel(tmp_path, sys.executable)) as wheel:
        record = f"{tvm_wheel.DIST_INFO}/RECORD"
        rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
        assert sorted(name for name, *_ in rows) == sorted(wheel.namelist())
        assert rows.pop() == [record, "", ""]
        for name, digest, size in rows:
            data = wheel.read(name)
            own = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={own}", str(len(data))), name


@needs_gcc
def test_packed_wheel_holds_tvm_its_licenses_and_nothing_else(offer: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(install_tvm.packed_wheel(tmp_path, sys.executable)) as wheel:
        names = set(wheel.namelist())
    info = tvm_wheel.DIST_INFO
    licenses = {"LICENSE", "licenses/LICENSE.rang.txt", "bitblas/LICENSE"}
    libraries = {"libtvm.so", "libcuda.so.1", "libcudart.so.12", "libnvrtc.so.12"}
    assert names == {
        *(f"tvm/{name}" for name in libraries),
        *(f"tvm/include/{name}" for name, _ in tvm_wheel.include_files()),
        "tvm/configs/host/default.json",
        "tvm/__init__.py",
        "tvm/relay/__init__.py",
        *(f"{info}/licenses/{name}" for name in licenses),
        *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")),
    }
    assert any(name.startswith("tvm/include/") for name in names)  # export_library wants a file


@needs_gcc
def test_packed_library_loads_beside_stand_ins_that_report_no_device(
    offer: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(install_tvm.packed_wheel(tmp_path / "cache", sys.executable)) as wheel:
        wheel.extractall(tmp_path)
    script = (
        "import ctypes, sys\n"
        "tvm = ctypes.CDLL(sys.argv[1])\n"
        "tvm.text.restype = tvm.name.restype = ctypes.c_char_p\n"
        "print(tvm.sum(), tvm.text().decode(), tvm.name().decode(), sep='|')"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "tvm/libtvm.so")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    no_device = tvm_wheel.NO_DEVICE_TEXT
    assert output.strip() == f"{3 * tvm_wheel.NO_DEVICE}|{no_device}|{no_device}"


@needs_gcc
def test_same_source_is_packed_to_the_same_bytes(offer: Path, tmp_path: Path) -> None:
    first, second = (
        install_tvm.packed_wheel(tmp_path / name, sys.executable).read_bytes() for name in "ab"
    )
    assert first == second


@needs_gcc
def test_two_processes_at_once_pack_only_once(
    source_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads = []

    def slow_download(python: str, folder: Path) -> Path:
        downloads.append(folder)
        time.sleep(0.3)  # long enough for the other to arrive
        return source_wheel

    monkeypatch.setattr(install_tvm, "download", slow_download)
    wheels: list[Path] = []
    threads = [
        threading.Thread(target=lambda: wheels.append(install_tvm.packed_wheel(tmp_path, "python")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wheels) == 2
    assert len(set(wheels)) == len(downloads) == 1


@needs_gcc
def test_debris_of_a_killed_build_is_cleared(offer: Path, tmp_path: Path) -> None:
    debris = tmp_path / ".relay-tvm-killed"
    debris.mkdir()
    (debris / tvm_wheel.WHEEL_NAME).write_bytes(b"half of it")
    install_tvm.packed_wheel(tmp_path, sys.executable)
    assert not debris.exists()


@needs_gcc
def test_wheel_with_another_hash_is_refused_and_leaves_nothing_behind(
    source_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(source_wheel.parent))
    found = hashlib.sha256(source_wheel.read_bytes()).hexdigest()
    with pytest.raises(EnvironmentProblem, match="not the one that is pinned") as error:
        install_tvm.packed_wheel(tmp_path, sys.executable)
    assert f"found:   sha256 {found}" in str(error.value)
    assert f"allowed: sha256 {install_tvm.SOURCE_SHA256}" in str(error.value)
    assert left_behind(tmp_path) == []


@needs_gcc
def test_wheel_out_of_reach_is_an_error_that_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="could not be downloaded") as error:
        install_tvm.packed_wheel(tmp_path, sys.executable)
    assert "No matching distribution found for bitblas" in str(error.value)
    assert "PIP_FIND_LINKS" in str(error.value)
    assert left_behind(tmp_path) == []


@needs_gcc
def test_full_disk_is_an_error_that_leaves_nothing_behind(
    offer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tvm_wheel.WheelWriter, "_add_record", no_space)
    with pytest.raises(EnvironmentProblem, match="cannot be written") as error:
        install_tvm.packed_wheel(tmp_path, sys.executable)
    assert "No space left on device" in str(error.value)
    assert "XDG_CACHE_HOME" in str(error.value)
    assert left_behind(tmp_path) == []


@needs_gcc
def test_too_small_a_disk_is_refused_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_tvm, "NEEDED_MEGABYTES", 10**9)
    with pytest.raises(EnvironmentProblem, match="too little disk space") as error:
        install_tvm.packed_wheel(tmp_path, sys.executable)
    assert "at least 1000000000 MB" in str(error.value)


def test_cache_that_cannot_be_written_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentProblem, match=r"cannot be written.*\n.*file") as error:
        install_tvm.packed_wheel(tmp_path / "file" / "cache", sys.executable)
    assert "XDG_CACHE_HOME" in str(error.value)


def test_missing_compiler_is_an_error_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "icc -x")
    with pytest.raises(EnvironmentProblem, match="no C compiler") as error:
        install_tvm.packed_wheel(tmp_path / "cache", sys.executable)
    assert "none of icc, gcc, cc, clang on PATH" in str(error.value)
    assert "apt install gcc" in str(error.value)
    assert left_behind(tmp_path / "cache") == []


def test_missing_nm_is_an_error_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gcc").write_text("#!/bin/sh\necho nm\n")
    (tmp_path / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match=r"no nm(.|\n)*apt install binutils"):
        tvm_wheel.find_compiler()


@pytest.mark.parametrize("machine", [("Darwin", "arm64"), ("Linux", "aarch64")])
def test_other_machines_are_sent_to_a_tvm_of_their_own(machine: tuple[str, str]) -> None:
    with pytest.raises(EnvironmentProblem, match=f"{machine[0]} {machine[1]}(.|\n)*from source"):
        install_tvm.check_platform(*machine)


def test_library_without_the_expected_run_path_is_refused() -> None:
    with pytest.raises(EnvironmentProblem, match="its run path 0 times"):
        tvm_wheel.patched_library(b"\x7fELF")


def test_failing_step_is_shown_with_its_command_and_last_line() -> None:
    command = [sys.executable, "-c", "raise ValueError('seen')"]
    with pytest.raises(
        EnvironmentProblem, match=r"-c 'raise ValueError(.|\n)*found:   ValueError: seen"
    ):
        tvm_wheel.run(command)


@pytest.mark.parametrize("value", [None, ""])
def test_cache_is_below_home_where_nothing_else_is_said(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert install_tvm.cache_folder() == Path("/home/someone/.cache/tinyai")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert install_tvm.cache_folder() == Path("/cache/tinyai")


def test_tvm_of_this_environment_sees_no_cuda_device_and_says_why() -> None:
    found = importlib.metadata.distributions(name="apache-tvm")
    if tvm_wheel.VERSION not in [distribution.version for distribution in found]:
        pytest.skip("this environment has a TVM of its own, not the packed one")
    import tvm

    assert not tvm.cuda(0).exist
    with pytest.raises(tvm.TVMError, match=tvm_wheel.NO_DEVICE_TEXT):
        tvm.nd.array([1.0], tvm.cuda(0))


# --- environments ---


def make_environment(folder: Path) -> Path:
    """An environment with all packages of this one, but pip, TVM and tinyai; its python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    ours = Path(importlib.metadata.distribution("click").locate_file(""))
    left_out = ("pip", "tvm", "apache_tvm", "tinyai", "__editable__")
    for entry in ours.iterdir():
        if not entry.name.startswith(left_out):
            (site / entry.name).symlink_to(entry)
    return folder / "bin/python"


def site_packages(python: Path) -> Path:
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    return site


def install(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Install into an environment without pip, by this environment's."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    command += ["--disable-pip-version-check", "--no-build-isolation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an environment's python, away from the source tree."""
    return subprocess.run(
        [str(python), *arguments],
        cwd=python.parent,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )


def stub_tvm(site: Path, name: str, code: str = "__version__ = '0.14.0'\n") -> None:
    """Install a ``tvm`` without Relay as the distribution ``name`` 0.14.0."""
    (site / "tvm").mkdir(exist_ok=True)
    (site / "tvm/__init__.py").write_text(code)
    record = site / f"{name.replace('-', '_')}-0.14.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.14.0\n")
    (record / "RECORD").write_text("tvm/__init__.py,,\n")


@pytest.fixture(scope="module")
def source_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packed, for setuptools writes into the tree that it builds."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "tinyai", tree / "tinyai", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "Makefile"):
        shutil.copy(ROOT / name, tree)
    return tree


def make_wheel(tree: Path) -> Path:
    """What ``make wheel`` builds in a tree, with the packages of this environment."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    # A path of its own: that of the environment may have a space.
    link = tree.parent / f"{tree.name}_environment"
    if not link.is_symlink():
        link.symlink_to(Path(sys.prefix))
    command = ["make", "--old-file=env", "wheel", f"BIN={link / 'bin'}"]
    process = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    (path,) = (tree / "build/wheel").iterdir()
    assert process.stdout == f"build/wheel/{path.name}\n"
    return path


@pytest.fixture(scope="module")
def wheel(source_tree: Path) -> Path:
    return make_wheel(source_tree)


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> Path:
    """An environment with tinyai's wheel, installed without its dependencies, and no TVM; its
    python."""
    python = make_environment(tmp_path / "environment")
    process = install(python, "--no-deps", str(wheel))
    assert process.returncode == 0, process.stderr
    return python


def test_tinyai_can_be_imported_without_any_tvm(environment: Path) -> None:
    process = run(environment, "-W", "error", "-c", "import tinyai; print(tinyai.__file__)")
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip().startswith(str(environment.parent.parent))


def test_installed_package_has_its_type_marker_and_templates(environment: Path) -> None:
    installed = site_packages(environment) / "tinyai"
    for path in (ROOT / "tinyai").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert (installed / path.relative_to(ROOT / "tinyai")).is_file(), path
    assert (installed / "py.typed").is_file()


def test_the_wheel_is_pure_python_and_holds_the_package_and_its_licence_alone(wheel: Path) -> None:
    version = tinyai.__version__
    assert wheel.name == f"tinyai-{version}-py3-none-any.whl"
    info = f"tinyai-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {name.partition("/")[0] for name in names} == {"tinyai", info}
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        metadata = archive.read(f"{info}/METADATA").decode()
    assert f"\nVersion: {version}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nDescription-Content-Type: text/markdown\n" in metadata
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc"))]


def test_the_same_sources_are_the_same_wheel_and_a_file_of_the_past_is_not_in_it(
    source_tree: Path, wheel: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(source_tree, other)
    assert (other / "build/lib/tinyai").is_dir()  # setuptools packs what lies there
    (other / "build/lib/tinyai/past.py").touch()
    assert make_wheel(other).read_bytes() == wheel.read_bytes()


# What a package index's user has: no TVM, a C compiler, and a folder of one's own.
NETWORK_TO_C = """
import numpy as np
import tinyai
from tinyai.source import Expr, SourceType
from tinyai.vocabulary import call, constant

data = Expr((SourceType((1, 8), "int8"),))
weights = np.arange(32, dtype="int8").reshape(4, 8)
sums = call("dense", SourceType((1, 4), "int32"), data, constant(weights))
graph = tinyai.graph_of("net", [data], sums, tinyai.Rounding())
for isa in ("scalar", "auto"):
    target = tinyai.Target(isa=isa)
    values = np.arange(8, dtype="int8").reshape(1, 8)
    (result,) = tinyai.Runner(graph, target)(values)
    assert (result == values @ weights.T.astype("int32")).all()
    tinyai.emit_c(graph, isa, target)
"""


@needs_gcc
def test_the_installed_wheel_turns_a_graph_into_a_c_package_without_tvm(environment: Path) -> None:
    process = run(environment, "-W", "error", "-c", NETWORK_TO_C)
    assert process.returncode == 0, process.stderr
    for isa in ("scalar", "auto"):
        folder = environment.parent / isa
        sources = [path.name for path in folder.glob("*.c")]
        subprocess.run(["gcc", "-std=c99", *sources, "-o", "net"], cwd=folder, check=True)
        assert run(folder / "net").stdout == "OK\n"


def test_the_changelog_begins_with_the_version() -> None:
    sections = re.findall("^## (.+)$", (ROOT / "docs/changelog.md").read_text(), re.MULTILINE)
    assert sections[0].split()[0] == tinyai.__version__


def test_doctor_without_tvm_says_what_needs_one_and_what_to_try(environment: Path) -> None:
    process = run(environment, "-m", "tinyai", "doctor")
    assert process.returncode == 0, process.stderr
    assert "note: no TVM is installed: .tflite and .onnx files are read" in process.stdout
    assert "  try: `tinyai install-tvm`" in process.stdout


def test_doctor_reports_a_tvm_built_from_source(environment: Path) -> None:
    stub_tvm(site_packages(environment), "tvm")
    process = run(environment, "-m", "tinyai", "doctor", "--json")
    facts = json.loads(process.stdout)["tvm"]
    assert facts["distributions"] == ["tvm 0.14.0"]
    assert facts["location"] == str(site_packages(environment) / "tvm")


def test_doctor_warns_of_two_distributions(environment: Path) -> None:
    for name in ("tvm", "apache-tvm"):
        stub_tvm(site_packages(environment), name)
    process = run(environment, "-m", "tinyai", "doctor")
    assert "warning: 2 distributions provide the package tvm" in process.stdout, process.stderr
    assert "apache-tvm 0.14.0, tvm 0.14.0" in process.stdout


@pytest.mark.parametrize("code", ["raise OSError('libtvm.so: no such file')", "raise RuntimeError"])
def test_doctor_reports_a_tvm_that_cannot_be_imported(environment: Path, code: str) -> None:
    stub_tvm(site_packages(environment), "tvm", code)
    process = run(environment, "-m", "tinyai", "doctor")
    assert process.returncode == 2, process.stderr
    assert "tvm cannot be imported: " in process.stdout, process.stderr


def test_installing_tinyai_asks_for_no_tvm_and_its_extra_for_one_with_relay(
    wheel: Path, tmp_path: Path
) -> None:
    python = make_environment(tmp_path / "environment")
    process = install(python, str(wheel))  # offline: what is missing fails
    assert process.returncode == 0, process.stderr
    process = install(python, f"{wheel}[relay]")
    assert process.returncode != 0
    assert "No matching distribution found for apache-tvm<0.20" in process.stderr


def test_the_command_tells_its_version_and_its_help(environment: Path) -> None:
    command = environment.parent / "tinyai"
    for options in (["--version"], ["--help"]):
        process = run(command, *options)
        assert process.stdout.startswith(
            {"--version": "tinyai 0", "--help": "Usage: tinyai"}[options[0]]
        )


def test_a_command_that_needs_tvm_says_how_to_get_one(environment: Path) -> None:
    (environment.parent / "net.relay").write_bytes(b"a model")
    for command in ("explain", "bench", "tvmc"):
        process = run(environment, "-m", "tinyai", command, "net.relay")
        assert process.returncode == 2, process.stderr
        assert process.stderr.startswith(f"error: {command} needs a TVM with Relay\n")
        assert "  try:     python -m tinyai doctor" in process.stderr


def test_install_tvm_leaves_a_tvm_built_from_source_alone(environment: Path) -> None:
    stub_tvm(site_packages(environment), "tvm")
    with pytest.raises(EnvironmentProblem, match="no pip"):
        install_tvm.check_python(str(environment))
    (site_packages(environment) / "pip").mkdir()
    (site_packages(environment) / "pip/__init__.py").touch()
    with pytest.raises(EnvironmentProblem, match="found:   the distribution tvm"):
        install_tvm.check_python(str(environment))
    shutil.rmtree(site_packages(environment) / "tvm-0.14.0.dist-info")
    install_tvm.check_python(str(environment))


@needs_gcc
def test_packed_tvm_asks_for_distutils_where_python_has_none(offer: Path, tmp_path: Path) -> None:
    wheel = install_tvm.packed_wheel(tmp_path, sys.executable)
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"{tvm_wheel.DIST_INFO}/METADATA").decode()
    required = [Requirement(line) for line in re.findall(r"^Requires-Dist: (.+)$", text, re.M)]
    (setuptools,) = (each for each in required if each.name == "setuptools")
    assert setuptools.marker
    assert setuptools.marker.evaluate({"python_version": "3.12"})
    assert not setuptools.marker.evaluate({"python_version": "3.11"})


@pytest.mark.slow
@pytest.mark.skipif(PYTHON312 is None, reason="no Python 3.12")
def test_python_3_12_gets_a_tvm_that_compiles_a_model(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # for once with the network
    subprocess.run([str(PYTHON312), "-m", "venv", str(tmp_path / "environment")], check=True)
    python = tmp_path / "environment/bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{wheel}[tflite]"], check=True)
    process = run(python, "-m", "tinyai", "install-tvm")
    assert process.returncode == 0, process.stderr
    model, library = MODELS / "kws_ref_model.tflite", tmp_path / "net.so"
    process = run(python, "-m", "tinyai", "compile", str(model), "-o", str(library))
    assert process.returncode == 0, process.stderr
    assert library.is_file()


@needs_gcc
def test_packed_tvm_is_installed_once(
    offer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin/python"
    wheel = install_tvm.packed_wheel(tmp_path / "cache", sys.executable)
    install_tvm.install(str(python), wheel)
    marker = site_packages(python) / tvm_wheel.DIST_INFO / "RECORD"
    before = marker.stat().st_ino
    install_tvm.install(str(python), wheel)
    assert marker.stat().st_ino == before
    assert os.access(site_packages(python) / "tvm/libtvm.so", os.X_OK)
    assert not (tmp_path / "made-at-import").exists()


# --- make ---

# Stands in for every Python that the Makefile runs: logs its arguments, copies itself where a
# virtual environment is asked for, and fails in the step that is named by FAIL.
FAKE_PYTHON = """#!/bin/sh
echo "$@" >> log
for last; do :; done
case "$*" in
  *"$FAIL"*) exit 1 ;;
  *"-m venv"*) sleep 0.2; mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;
esac
"""


@dataclass(frozen=True)
class Checkout:
    """A folder with what the Makefile's environments depend on, and a stand-in for Python; one of
    its targets, and the folder that this makes."""

    folder: Path
    target: str

    @property
    def environment(self) -> Path:
        return self.folder / FOLDERS[self.target]

    def make(self, fail: str = "never") -> subprocess.CompletedProcess[str]:
        """Run the target with the stand-in for Python, which fails in the step ``fail``."""
        # A make that runs the tests hands its own flags on.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        return subprocess.run(
            ["make", self.target, "PYTHON=./python"],
            cwd=self.folder,
            env=environment | {"FAIL": fail},
            capture_output=True,
            text=True,
            check=False,
        )

    def steps(self) -> int:
        """How many times Python was run so far."""
        return len((self.folder / "log").read_text().splitlines())


@pytest.fixture(params=FOLDERS)
def checkout(tmp_path: Path, request: pytest.FixtureRequest) -> Checkout:
    folder = tmp_path / "checkout"
    for name in ("Makefile", *(name for names in INPUTS.values() for name in names)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "python").write_text(FAKE_PYTHON)
    (folder / "python").chmod(0o755)
    return Checkout(folder, request.param)


def test_second_make_does_nothing(checkout: Checkout) -> None:
    assert checkout.make().returncode == 0
    done = checkout.steps()
    assert done > 3
    assert checkout.make().returncode == 0
    assert checkout.steps() == done


def test_half_built_environment_starts_anew(checkout: Checkout) -> None:
    for step in STEPS[checkout.target]:
        shutil.rmtree(checkout.environment, ignore_errors=True)
        assert checkout.make(fail=step).returncode != 0, step
        assert not (checkout.environment / ".ready").exists(), step
        (checkout.environment / "debris").touch()
        assert checkout.make().returncode == 0, step
        assert not (checkout.environment / "debris").exists(), step
        assert (checkout.environment / ".ready").exists(), step


def test_changed_input_brings_the_environment_up_to_date(checkout: Checkout) -> None:
    checkout.make()
    (checkout.environment / "kept").touch()
    for later, name in enumerate(INPUTS[checkout.target], 1):
        done = checkout.steps()
        changed = time.time() + 10 * later
        os.utime(checkout.folder / name, (changed, changed))
        assert checkout.make().returncode == 0
        assert checkout.steps() > done, name
        assert (checkout.environment / "kept").exists()


def test_environment_that_make_did_not_make_is_left_alone(checkout: Checkout) -> None:
    checkout.environment.mkdir()
    (checkout.environment / "mine").touch()
    process = checkout.make()
    assert process.returncode != 0
    found = f"found:   a folder {checkout.environment.name} that this Makefile did not make"
    assert found in process.stderr
    assert (checkout.environment / "mine").exists()


def test_two_makes_at_once_build_one_environment(checkout: Checkout) -> None:
    threads = [threading.Thread(target=checkout.make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (checkout.folder / "log").read_text().count("-m venv") == 1
    assert (checkout.environment / ".ready").exists()


def test_unfit_python_is_named_with_what_is_allowed(checkout: Checkout) -> None:
    process = checkout.make(fail="sys.version_info")
    assert process.returncode != 0
    assert "allowed: Python 3.11 or 3.12" in process.stderr
    assert "PYTHON=/path/to/python3.11" in process.stderr
    assert not checkout.environment.exists()


def exact_pins(file: str) -> dict[str, str]:
    """The version of each distribution of a file of requirements, which must all be exact."""
    from packaging.requirements import Requirement

    lines = (ROOT / file).read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    versions = {pin.name.lower().replace("_", "-"): str(pin.specifier) for pin in pins}
    assert all(version.startswith("==") for version in versions.values())
    return {name: version.removeprefix("==") for name, version in versions.items()}


def test_pins_meet_the_ranges_of_the_project() -> None:
    """What pip check cannot see: the extra ``test`` is nobody's requirement."""
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    executorch = [*project["dependencies"], *extras.pop("executorch")]
    assert extras.pop("model-explorer")  # in an environment of `make pages`, by its own pins
    ranges = [*project["dependencies"], *itertools.chain(*extras.values())]
    files = {
        "tests/requirements.txt": ranges,
        "tests/executorch/requirements.txt": executorch,
        "docs/requirements.txt": project["dependencies"],
    }
    for file, texts in files.items():
        versions = exact_pins(file)
        for wanted in map(Requirement, texts):
            if wanted.name not in ("apache-tvm", "tinyai"):
                assert versions[wanted.name.lower()] in wanted.specifier, wanted
