"""Who may import whom: the layers of the package, no circle of files, TVM only in front ends, and
no test a test.

Read from the source, so that imports inside of functions and for types alone count too.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinyai

ROOT = Path(tinyai.__file__).parent
TESTS = Path(__file__).resolve().parent

# Files that still import one another in a circle: each a circle, which may only get smaller.
CIRCLES: tuple[frozenset[str], ...] = ()

# A module or package may import itself and what has a lower rank. Longer names go before shorter.
RANKS = {
    "tinyai.errors": 0,
    "tinyai._version": 0,
    "tinyai.c_head": 0,
    "tinyai.c_reserved": 0,
    "tinyai.interrupts": 0,
    "tinyai.imported": 0,
    "tinyai.install_tvm": 1,
    "tinyai.tvm_wheel": 0.5,
    "tinyai.tensor_spec": 0,
    "tinyai.dropped": 0,
    "tinyai.files": 0.5,
    "tinyai.pictures": 1,
    "tinyai.safe_text": 0,
    "tinyai.stages": 0,
    "tinyai.traits": 0,
    "tinyai.ir": 1,
    "tinyai.target": 1,
    "tinyai.report": 1,
    "tinyai.source": 2,
    "tinyai.reference": 2,
    "tinyai.builders": 2.5,
    "tinyai.model_file": 2,
    "tinyai.ops": 3,
    "tinyai.arithmetic": 4,
    "tinyai.match": 3,
    "tinyai.vocabulary": 4,
    "tinyai.qdq": 5,
    "tinyai.patterns": 4,
    "tinyai.quantizer": 6,
    "tinyai.lowering": 5,
    "tinyai.partition": 8,
    "tinyai.own": 7,
    "tinyai.passes": 4,
    "tinyai.codegen": 5,
    "tinyai.backend": 6,
    "tinyai.network": 5.5,
    "tinyai.runtime": 7,
    "tinyai.runtime.toolchain": 2,
    "tinyai.runtime.assembler": 2,
    "tinyai.runtime.code_sizes": 3,
    "tinyai.runtime.timing": 0,
    "tinyai.frontends.executorch": 11,
    "tinyai.frontends": 9,
    "tinyai.executorch": 12,
    "tinyai.relax": 12,
    "tinyai.model_explorer": 11,
    "tinyai.checking": 10,
    "tinyai.doctor": 0,
    "tinyai.package": 10,
    "tinyai.cli": 11,
    "tinyai.__main__": 12,
    "tinyai": 12,
}
# The layers of code generation, from the lowest on: the text of C; how tensors are placed; shapes
# and schedules; epilogues and what is proved of them; the contract of instruction sets, and these;
# the lowered graph with the rows of kernels; kernels; and all else, which decides, plans, writes.
# Longer names go before shorter.
CODEGEN = {
    **dict.fromkeys(("c", "ctree", "index", "templates", "definitions", "helpers"), 0),
    "placed": 1,
    "shapes": 2,
    **dict.fromkeys(
        ("steps", "requantization", "line", "quotient", "quantized_add", "linear_add"), 3
    ),
    **dict.fromkeys(("isa.microkernels", "isa.variant", "isa.vectors"), 4),
    "isa": 5,
    "lowered": 6,
    "kernels": 7,
    "": 8,
}
WITH_TORCH = ("frontends/executorch/*.py", "frontends/executorch/operators/*.py")
FRAMEWORKS = {
    "tvm": ("frontends/relay/*.py", "frontends/relax/*.py", "runtime/tvm_module.py"),
    "tvm_ffi": ("frontends/relax/*.py",),
    **dict.fromkeys(("torch", "executorch", "torchao"), WITH_TORCH),
}


def module_name(path: Path, root: Path) -> str:
    parts = ("tinyai", *path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path = ROOT) -> list[Path]:
    return sorted(root.rglob("*.py"))


@functools.cache  # several tests ask for those of all files
def imports(path: Path, root: Path = ROOT) -> tuple[tuple[int, str], ...]:
    """Line and full name of every module that a file imports, wherever in the file."""
    return tuple(_imports(path, root))


@functools.cache
def module_names(root: Path) -> frozenset[str]:
    return frozenset(module_name(path, root) for path in modules(root))


def _imports(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    package = module_name(path, root).split(".")
    package = package if path.name == "__init__.py" else package[:-1]
    known = module_names(root)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:  # "from package import module" imports the module
                inner = f"{source}.{alias.name}"
                yield node.lineno, inner if inner in known else source


def row_of(name: str) -> str | None:
    """The row of the table that a module belongs to; packages hold all below them."""
    if name in RANKS:
        return name
    packages = (row for row in RANKS if row != "tinyai" and name.startswith(f"{row}."))
    return next(packages, None)


def breaches(root: Path = ROOT) -> list[str]:
    """Imports that run against the ranks, as file:line and what is wrong."""
    found = []
    for path in modules(root):
        importer = row_of(module_name(path, root))
        for line, name in imports(path, root):
            if name.split(".")[0] != "tinyai":
                continue
            imported = row_of(name)
            where = f"{path.relative_to(root.parent)}:{line}"
            if importer is None or imported is None:
                continue  # test_every_module_has_a_rank tells
            if importer != imported and RANKS[imported] >= RANKS[importer]:
                found.append(f"{where}: {importer} must not import {name}")
    return found


def framework_imports(root: Path = ROOT) -> list[str]:
    return [found for name, where in FRAMEWORKS.items() for found in imports_of(name, where, root)]


def imports_of(framework: str, where: tuple[str, ...], root: Path) -> list[str]:
    """Imports of a framework outside of the modules that may."""
    allowed = {path for pattern in where for path in root.glob(pattern)}
    return [
        f"{path.relative_to(root.parent)}:{line}: imports {name}"
        for path in modules(root)
        if path not in allowed
        for line, name in imports(path, root)
        if name.split(".")[0] == framework
    ]


def imported_files(root: Path = ROOT) -> dict[str, set[str]]:
    """The files that each file of the package imports, by the names of their modules.

    A module of another package runs that package's ``__init__`` first, so that is imported too;
    modules of one package do not count the ``__init__`` that they are imported by.
    """
    known = module_names(root)
    graph: dict[str, set[str]] = {}
    for path in modules(root):
        name = module_name(path, root)
        imported = {found for _, found in imports(path, root)} & known
        packages = {package for found in imported for package in _packages(found)} & known
        outer = {package for package in packages if not f"{name}.".startswith(f"{package}.")}
        graph[name] = (imported | outer) - {name}
    return graph


def _packages(name: str) -> list[str]:
    """The packages that a module is in, without its own name."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The strongly connected components of more than one file."""
    reached = {name: _reached(graph, name) for name in graph}
    rings = (
        frozenset(other for other in reached[name] if name in reached[other]) for name in graph
    )
    return {ring for ring in rings if len(ring) > 1}


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """The files that a file imports, and those that these import, and so on."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_no_files_import_one_another_in_a_circle() -> None:
    """A file of ``CIRCLES`` that is in none any more has to leave it."""
    assert sorted(map(sorted, circles(imported_files()))) == sorted(map(sorted, CIRCLES))


def codegen_layer(name: str) -> int | None:
    """The number of the layer of ``CODEGEN`` that a module is in, or None."""
    if not name.startswith("tinyai.codegen"):
        return None
    inner = name.removeprefix("tinyai.codegen").removeprefix(".")
    return next(
        layer
        for row, layer in CODEGEN.items()
        if not row or inner == row or inner.startswith(f"{row}.")
    )


def test_code_generation_imports_from_higher_to_lower_layers() -> None:
    """Instruction sets import their contract, never kernels."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: imports {name}"
        for path in modules()
        for line, name in imports(path)
        if (importer := codegen_layer(module_name(path, ROOT))) is not None
        and (imported := codegen_layer(name)) is not None
        and imported > importer
    ]
    assert found == []


def test_every_layer_of_code_generation_has_files() -> None:
    names = [module_name(path, ROOT) for path in modules()]
    inner = [name.removeprefix("tinyai.codegen.") for name in names]
    assert [row for row in CODEGEN if row and row not in inner] == []


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a": "import tinyai.b", "b": ""}, []),
        ({"a": "import tinyai.b", "b": "from tinyai.a import x"}, [["a", "b"]]),
        ({"a": "from tinyai import b", "b": "def f():\n    from . import a"}, [["a", "b"]]),
        ({"a": "if TYPE_CHECKING:\n    import tinyai.b", "b": "import tinyai.a"}, [["a", "b"]]),
        (
            {"a": "import tinyai.b", "b": "import tinyai.c", "c": "import tinyai.a"},
            [["a", "b", "c"]],
        ),
        # A package that re-exports: from inside of it, and from outside.
        (
            {"p/__init__": "from tinyai.p.x import X", "p/x": "from tinyai.p import y"},
            [["p", "p.x"]],
        ),
        ({"p/__init__": "from tinyai.p.x import X", "p/x": "import tinyai.p.y", "p/y": ""}, []),
        ({"p/__init__": "import tinyai.a", "p/x": "", "a": "import tinyai.p.x"}, [["a", "p"]]),
    ],
)
def test_a_circle_would_be_found(
    tmp_path: Path, files: dict[str, str], found: list[list[str]]
) -> None:
    for name, text in {"__init__": "", **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.py").write_text(f"{text}\n")
    rings = circles(imported_files(tmp_path))
    assert [[name.removeprefix("tinyai.") for name in sorted(ring)] for ring in rings] == found


def test_every_module_has_a_rank() -> None:
    names = {module_name(path, ROOT) for path in modules()}
    assert {name for name in names if row_of(name) is None} == set(), "rows that RANKS lacks"
    rows = {row_of(name) for name in names}
    assert {row for row in RANKS if row not in rows} == set(), "rows without a module"


def test_imports_run_from_higher_to_lower_ranks() -> None:
    assert breaches() == []


def test_only_front_ends_import_their_frameworks() -> None:
    assert framework_imports() == []
    for pattern in (each for patterns in FRAMEWORKS.values() for each in patterns):
        assert list(ROOT.glob(pattern)), pattern


def test_nothing_outside_of_front_ends_imports_one() -> None:
    """Not even by name: only the package itself finds front ends with importlib."""
    for path in modules():
        name = module_name(path, ROOT)
        if name == "tinyai" or row_of(name) in (
            "tinyai.frontends",
            "tinyai.frontends.executorch",
            "tinyai.executorch",
            "tinyai.relax",
            "tinyai.checking",
            "tinyai.package",
            "tinyai.model_explorer",
            "tinyai.cli",
        ):
            continue
        assert "tinyai.frontends" not in path.read_text(), name


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("import tinyai.frontends.relay", "tinyai.ir must not import tinyai.frontends.relay"),
        ("from tinyai.passes import optimize", "tinyai.ir must not import tinyai.passes"),
        ("from tinyai import passes", "tinyai.ir must not import tinyai.passes"),
        ("from . import passes", "tinyai.ir must not import tinyai.passes"),
        ("from .passes import optimize", "tinyai.ir must not import tinyai.passes"),
        ("def f():\n    import tinyai", "tinyai.ir must not import tinyai"),
        ("import tinyai.target", "tinyai.ir must not import tinyai.target"),
        ("import tvm", "imports tvm"),
        ("def f():\n    from tvm import relay", "imports tvm"),
        ("import torch", "imports torch"),
    ],
)
def test_a_forbidden_import_is_told_with_file_and_line(
    tmp_path: Path, code: str, complaint: str
) -> None:
    package = tmp_path / "tinyai"
    for name in ("__init__", "ir", "target", "passes/__init__", "frontends/relay"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text("")
    (package / "ir.py").write_text(f"import math\n{code}\n")
    (found,) = breaches(package) + framework_imports(package)
    line = 1 + len(code.splitlines())
    assert found == f"tinyai/ir.py:{line}: {complaint}"


# --- In a process of its own -------------------------------------------------------------------


def imported_tests(path: Path, root: Path = TESTS.parent) -> Iterator[str]:
    """Other files of tests that one imports, in scripts for other processes too."""
    own = ".".join(path.relative_to(root).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.findall(r"\b(?:from|import) (tests[\w.]*)(?: import (\w+))?", node.value)
            names = [".".join(each) for each in found]
        for name in names:
            file = re.match(r"tests(\.\w+)*?\.test_\w+", name)
            if file and file[0] != own:
                yield file[0]


def test_no_test_module_imports_another() -> None:
    """What two of them need is in ``tests/support``."""
    files = sorted(TESTS.rglob("*.py"))
    assert TESTS / "support" / "oracle.py" in files
    assert {str(path): found for path in files if (found := [*imported_tests(path)])} == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import TESTS.ops.test_chains as c", ["tests.ops.test_chains"]),
        ("from TESTS.ops.test_chains import a, b", ["tests.ops.test_chains"] * 2),
        ("from TESTS.ops import test_chains", ["tests.ops.test_chains"]),
        ("def f():\n    from TESTS import test_ir", ["tests.test_ir"]),
        ('run("from TESTS.ops.test_chains import a")', ["tests.ops.test_chains"]),
        ("from TESTS.support.oracle import oracle", []),
        ('run("import TESTS.passes.test_one as t")', []),
    ],
)
def test_an_import_of_a_test_module_would_be_found(
    line: str, found: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "tests" / "passes" / "test_one.py"
    path.parent.mkdir(parents=True)
    path.write_text(line.replace("TESTS", "tests"))  # or this file would be found
    assert [*imported_tests(path, tmp_path)] == found


def run(code: str) -> str:
    process = subprocess.run(
        [sys.executable, "-W", "error::ImportWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_package_imports_without_tvm_and_says_what_its_doors_need() -> None:
    out = run(
        """
        import sys
        sys.modules["tvm"] = None  # import tvm raises ModuleNotFoundError
        import tinyai
        print(tinyai.register())
        for name in ("partition_for_tinyai", "build", "explain"):
            try:
                getattr(tinyai, name)(3)
            except tinyai.TinyAIError as error:
                assert isinstance(error, ImportError)
                print(type(error).__name__, error, sep="\\n")
        relays = {"partition_for_tinyai", "quantize", "build", "seal", "unseal"}
        relays |= {"partition_for", "calibrate"}
        assert all(getattr(tinyai, name) for name in tinyai.__all__ if name not in relays)
        import tinyai.cli, tinyai.vocabulary
        print(tinyai.Target(), sorted(m for m in sys.modules if m.split(".")[0] == "tvm"))
        """
    )
    lines = out.splitlines()
    assert lines[0] == "False"
    for name in ("partition_for_tinyai", "build", "explain"):
        assert f"tinyai.{name} needs a TVM with Relay" in lines
    assert lines.count("EnvironmentProblem") == 3
    assert lines.count("  found:   no module tvm.relay") == 3
    assert lines.count("  allowed: a TVM with Relay, such as 0.17") == 3
    assert lines.count("  try:     python -m tinyai doctor") == 3
    assert lines[-1] == f"{tinyai.Target()} ['tvm']"


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tinyai' has no attribute 'paint'"):
        _ = tinyai.paint


def test_all_public_names_are_there() -> None:
    assert [name for name in tinyai.__all__ if getattr(tinyai, name, None) is None] == []


def test_importing_the_package_imports_neither_tvm_nor_what_its_commands_need() -> None:
    out = run(
        """
        import sys, tinyai, tinyai.cli
        heavy = ("tvm", "numpy", "rich", "jinja2", "onnx", "tflite")
        print([name for name in heavy if name in sys.modules])
        """
    )
    assert out == "[]\n"


def test_a_report_brings_tables_only_when_one_is_asked_for() -> None:
    out = run(
        """
        import sys, tinyai.network
        from tinyai.report import Report
        report = Report((), ())
        text, before = str(report), "rich" in sys.modules
        report.table()
        print(text, before, "rich" in sys.modules)
        """
    )
    assert out.endswith(" False True\n")


@pytest.mark.parametrize("order", ["import tvm, tinyai", "import tinyai, tvm"])
def test_tvm_finds_the_hooks_whichever_is_imported_first(order: str) -> None:
    out = run(
        f"""
        {order}
        print(tvm.get_global_func("relay.ext.tinyai", allow_missing=True) is not None)
        print(tvm.ir.Op.get("nn.conv2d").get_attr("target.tinyai") is not None)
        from tvm.relay.op.contrib.register import get_pattern_table
        print(get_pattern_table("tinyai") is not None)
        from tvm.driver.tvmc.composite_target import REGISTERED_CODEGEN
        print("tinyai" in REGISTERED_CODEGEN)
        """
    )
    assert out.splitlines() == ["True"] * 4


@pytest.mark.parametrize("first", ["frontends.relay.tvmc", "runtime.tvm_module"])
def test_a_door_that_is_imported_before_tvm_registers_the_hooks(first: str) -> None:
    out = run(
        f"""
        import warnings
        warnings.filterwarnings("error", "tinyai")
        import tinyai.{first}, tvm
        print(tvm.get_global_func("relay.ext.tinyai", allow_missing=True) is not None)
        """
    )
    assert out == "True\n"


def test_a_tvm_without_relay_is_imported_in_peace(tmp_path: Path) -> None:
    (tmp_path / "tvm").mkdir()
    (tmp_path / "tvm" / "__init__.py").write_text("")
    out = run(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import tinyai, tvm
        print(tvm.__file__, tinyai.register())
        """
    )
    assert out == f"{tmp_path}/tvm/__init__.py False\n"


def test_a_tvm_that_tinyai_does_not_fit_is_imported_with_a_warning(tmp_path: Path) -> None:
    for name, text in (("__init__", "from tvm import relay"), ("relay", "")):
        (tmp_path / "tvm").mkdir(exist_ok=True)
        (tmp_path / "tvm" / f"{name}.py").write_text(text)
    out = run(
        f"""
        import sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        import tinyai
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import tvm
        print(*(str(each.message).split(":")[0] for each in caught))
        """
    )
    assert out == "tinyai cannot register with this TVM\n"


def test_only_register_changes_tvm_and_a_second_time_it_changes_nothing() -> None:
    """Every module is imported while the package believes that there is no Relay."""
    out = run(
        """
        import importlib, importlib.util, pkgutil, sys
        import tvm, tvm.relay
        relay = sys.modules.pop("tvm.relay")
        from tvm.relay.op.contrib.register import get_pattern_table
        real = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: (
            None if name == "tvm.relay" else real(name, *rest)
        )

        def drivers():
            from tvm.driver.tvmc.composite_target import REGISTERED_CODEGEN
            return "tinyai" in REGISTERED_CODEGEN

        def state():
            names = {str(name) for name in tvm._ffi.registry.list_global_func_names()}
            operators = {
                str(name) for name in tvm.ir.Op.list_op_names()
                if tvm.ir.Op.get(name).has_attr("target.tinyai")
                and tvm.ir.Op.get(name).get_attr("target.tinyai") is not None
            }
            table = get_pattern_table("tinyai") is not None
            return {n for n in names if "tinyai" in n}, operators, table, drivers()

        import tinyai
        sys.modules["tvm.relay"] = relay
        for module in pkgutil.walk_packages(tinyai.__path__, "tinyai."):
            other = "executorch" in module.name or "relax" in module.name
            other |= module.name == "tinyai.model_explorer.main"  # for that program alone
            if not module.name.endswith("__main__") and not other:
                importlib.import_module(module.name)
        print(state())
        importlib.util.find_spec = real
        tinyai.frontends.tvms.find_spec = real
        print(tinyai.register())
        first = state()
        print(sorted(first[0]))
        from tinyai.frontends.relay.spelling import supported
        print(first[1] == set(supported()), *first[2:])
        print(tinyai.register(), state() == first)
        """
    )
    assert out.splitlines() == [
        "(set(), set(), False, False)",
        "True",
        "['relay.ext.tinyai', 'relay.ext.tinyai.constant_updater']",
        "True True True",
        "True True",
    ]
