"""Nobody reads generated C, but the one module that reads its head.

Read from the source: which files import regular expressions, and which take text apart. Each of
them has a row here that says what text it is. And tried: a network is compiled in every way while
its C is text that cannot be searched.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tinyai
from tests.support.example_graphs import random_inputs, small_network
from tinyai.backend import CompileSpec, compile_graph
from tinyai.c_head import CODE, Head, head_of, head_of_file, with_lines
from tinyai.codegen.c_source import CSource
from tinyai.network import network_of_graph
from tinyai.package import package_of
from tinyai.runtime.runner import Runner
from tinyai.target import Target

ROOT = Path(tinyai.__file__).parent
# The folders through which C goes. What reads it, c_head.py, is in none of them.
FOLDERS = "codegen", "backend", "runtime", "package", "checking"
SEARCHES = {
    *("count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace"),
    *("rfind", "rindex", "rpartition", "rsplit", "split", "splitlines", "startswith"),
}
LISTS = "the place of something in a list"
OPTIONS = "names of options and instruction sets"
FILES = "names of files"
COMPILER = "the user's words for a compiler, or what it prints"
# What is searched, as the source spells it, by file.
SEARCHED = {
    "codegen/c.py": {"shown": "names of the model, which a comment is to hold"},
    "codegen/ctree.py": {"self.type": "a type, which a kernel has just named"},
    "codegen/emit.py": {
        "list(self.graph.makers)": LISTS,
        "self.graph.inputs": LISTS,
    },
    "codegen/isa/__init__.py": {"list(ISA_FLAGS)": LISTS},
    "codegen/kernels/channels.py": {"form.numbers": LISTS},
    "codegen/kernels/transpose.py": {"copy.in_steps": LISTS},
    "codegen/run_function.py": {"of.dtype": "the name of a dtype"},
    "codegen/schedules.py": {
        "entry['panels']": "a tuning file",
        "str(machine)": "a tuning file",
        "tile": "a tuning file",
    },
    "codegen/steps.py": {"self.params": LISTS},
    "backend/sharing.py": {"APART": "the macro's own lines", "key": "names of named data"},
    "backend/tinyai_backend.py": {"name": OPTIONS},
    "runtime/bundle.py": {"data": "whether bytes are a library, by the first four of them"},
    "runtime/library.py": {
        "content": "a compiled library, for the constant that says what it is",
        "f'{wrong[0]:g}'": "a number",
        "facts": LISTS,
        "known": LISTS,
        "os.path": FILES,
    },
    "runtime/headers.py": {"identity": COMPILER, "word": COMPILER, "words[0]": COMPILER},
    "runtime/kept.py": {"path.stem": FILES},
    "runtime/link.py": {"facts": LISTS},
    "runtime/manifest.py": {"facts": LISTS},
    "runtime/package.py": {
        "file": FILES,
        "file.name": FILES,
        "manifests[0]": FILES,
        "name": FILES,
        "word": COMPILER,
    },
    "runtime/toolchain.py": {
        "arguments": LISTS,
        "flag": COMPILER,
        "names[0]": COMPILER,
        "shlex": COMPILER,
        "triple": COMPILER,
        "word": COMPILER,
    },
    "runtime/code_sizes.py": {"line": COMPILER, "said.stdout": COMPILER},
    "package/measure.py": {"said.stdout": COMPILER},
    "checking/arithmetic.py": {
        "graph.inputs": LISTS,
        "list(graph.makers)": LISTS,
        "step.name": "the name of a step",
    },
    "checking/onnxruntime.py": {"node.op_type": "an operator of a model file"},
}
REGULAR_EXPRESSIONS = {
    "c_reserved.py": "a name that a network is to have",
    "codegen/templates.py": "empty lines that a template's conditions leave, while it is rendered",
    "frontends/executorch/static.py": "paths in a list of files",
    "frontends/relay/text.py": "Relay's text",
    "frontends/tflite/litert.py": "which operator LiteRT does not know",
    "install_tvm.py": "what tools print",
    "frontends/shapes.py": "shapes of inputs, as tvmc writes them",
    "network.py": "the name of a file, of which an identifier is made",
    "package/measure.py": "what gcc and size print",
    "runtime/code_sizes.py": "the compiler's name, and what nm prints",
    "partition/macs.py": "names of operators",
    "partition/rows.py": "names of operators in reasons",
    "tvm_wheel.py": "names of CUDA's functions in TVM's libraries",
}


def python_files(root: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        yield path.relative_to(root).as_posix(), ast.parse(path.read_text())


def searched(tree: ast.Module) -> set[str]:
    """What a module takes apart or looks into, as its source spells it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in SEARCHES:
                found.add(ast.unparse(_first(node.func.value)))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            left, (right, *_) = node.left, node.comparators
            literal = isinstance(left, ast.JoinedStr) or isinstance(
                getattr(left, "value", None), str | bytes
            )
            if literal and not isinstance(right, ast.Tuple | ast.List | ast.Set | ast.Dict):
                found.add(ast.unparse(right))
    return found - {"os"}  # files that change places


def _first(node: ast.expr) -> ast.expr:
    """What a chain of searches begins with."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in SEARCHES
    ):
        node = node.func.value
    return node


def imports_re(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.Import) and any(each.name == "re" for each in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "re")
        for node in ast.walk(tree)
    )


def test_every_search_where_c_goes_through_is_of_some_other_text() -> None:
    """A row that nothing needs has to go."""
    found = {
        file: texts
        for file, tree in python_files(ROOT)
        if file.startswith(FOLDERS) and (texts := searched(tree))
    }
    assert found == {file: set(rows) for file, rows in SEARCHED.items()}


def test_every_regular_expression_is_for_some_other_text() -> None:
    found = {file for file, tree in python_files(ROOT) if imports_re(tree)}
    assert found == REGULAR_EXPRESSIONS.keys()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("text.replace('a', 'b').split()", {"text"}),
        ("x = '#include' in source.text", {"source.text"}),
        ("x = f'{a}' not in code", {"code"}),
        ("x = b'a' in code", {"code"}),
        ("code.partition('\\n')[0]", {"code"}),
        ("os.replace(a, b)", set()),
        ("replace(graph, name='x')", set()),
        ("x = 'a' in ('a', 'b')", set()),
        ("x = name in names", set()),
    ],
)
def test_a_search_would_be_found(line: str, found: set[str]) -> None:
    assert searched(ast.parse(line)) == found


def test_a_regular_expression_would_be_found() -> None:
    for line in ("import re", "from re import compile", "def f():\n    import re as r"):
        assert imports_re(ast.parse(line))


# --- Tried ---------------------------------------------------------------------------------------


class Unread(str):
    """C that can be written to a file and not be searched."""

    __slots__ = ()


def _refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("generated text is read")


for _name in (*(SEARCHES - {"count"}), "__contains__", "__getitem__", "translate"):
    setattr(Unread, _name, _refuse)


def test_a_network_is_compiled_in_every_way_while_its_c_cannot_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    written = CSource.written
    monkeypatch.setattr(CSource, "written", staticmethod(lambda *args: Unread(written(*args))))
    graph, target = small_network(), Target(isa="scalar")
    network = network_of_graph(graph, "small")
    with pytest.raises(AssertionError, match="generated text is read"):
        _ = "x" in compile_graph(graph, target).source.text
    expected = Runner(graph, target)(*random_inputs(graph, 0))
    tinyai.compile(network, tmp_path / "net.so", target)
    tinyai.Model(package_of(network, target).write(tmp_path / "net"))
    tinyai.lower({"one": graph, "two": graph}, [CompileSpec("isa", b"generic")])
    found = tinyai.Model(tmp_path / "net.so").run(random_inputs(graph, 0))
    assert [a.tolist() for a in found] == [a.tolist() for a in expected]


# --- The head ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [Head("net"), Head("a_1", ("avx2", "generic")), Head("x", (), {"key.h": CODE, "k": "int8_t"})],
)
def test_a_head_is_read_as_it_was_written(head: Head, tmp_path: Path) -> None:
    file = tmp_path / "net.c"
    file.write_text("".join(head.lines) + "* more\n*/\n")
    assert head_of_file(file) == head == head_of("".join(head.lines))


TITLE, FACTS = Head("net", ("avx2", "generic")).lines


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int answer;\n",
        TITLE,
        f"{TITLE}* target tinyai -isa=auto\n",  # of before there were heads
        f"{TITLE}{FACTS[:-5]}\n",
        f"{TITLE}{FACTS.replace('/1', '/2')}",
        f"{TITLE}* tinyai.c/1 []\n",
        f"{TITLE}* tinyai.c/1 7\n",
        f"// {TITLE}{FACTS}",
        f"\n{TITLE}{FACTS}",
        f"/* net {FACTS}",
    ],
)
def test_what_has_no_head_is_no_file_of_ours(text: str) -> None:
    assert head_of(text) is None


def test_lines_are_replaced_whole() -> None:
    assert with_lines("a\nab\na\nb", {"a\n": "c\n\n", "b": ""}) == "c\n\nab\nc\n\n"
