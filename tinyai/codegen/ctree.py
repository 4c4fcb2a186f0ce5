"""Statements of C as a tree, which Python builds and prints.

Expressions are text: what they compute is decided where the tree is built. A statement may be left
out where it is not wanted (None), or be several (a list), so that loop nests read here like the C
that they become.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinyai.codegen.index import Axis

INDENT = "    "


class Statement:
    """One statement, or a comment."""

    def write(self, lines: list[str], indent: str) -> None:
        """Append the lines, each after ``indent``."""
        raise NotImplementedError


# What is in a block: text is a statement as it is, its semicolon included, or an empty line.
Code = Statement | str | None | Iterable["Code"]


def write(code: Code, lines: list[str], indent: str = "") -> None:
    """Append the lines of any code."""
    if isinstance(code, str):
        lines.append(indent + code if code else "")
    elif isinstance(code, Statement):
        code.write(lines, indent)
    elif code is not None:
        for each in code:
            write(each, lines, indent)


def text(code: Code, indent: str = "") -> str:
    """Code as C."""
    lines: list[str] = []
    write(code, lines, indent)
    return "\n".join(lines)


@dataclass(frozen=True)
class Comment(Statement):
    says: str

    def write(self, lines: list[str], indent: str) -> None:
        lines.append(f"{indent}/* {self.says} */")


@dataclass(frozen=True)
class Declare(Statement):
    """A variable; its type says whether it is constant."""

    type: str
    name: str
    value: str | int | None = None

    def write(self, lines: list[str], indent: str) -> None:
        space = "" if self.type.endswith("*") else " "
        start = "" if self.value is None else f" = {self.value}"
        lines.append(f"{indent}{self.type}{space}{self.name}{start};")


def let(name: str, value: str | int) -> Declare:
    """A number of elements, bytes or places that stays as it is."""
    return Declare("const ptrdiff_t", name, value)


@dataclass(frozen=True)
class Assign(Statement):
    to: str
    value: str | int
    sign: str = "="

    def write(self, lines: list[str], indent: str) -> None:
        lines.append(f"{indent}{self.to} {self.sign} {self.value};")


@dataclass(frozen=True, init=False)
class CallStatement(Statement):
    function: str
    arguments: tuple[str | int, ...]

    def __init__(self, function: str, *arguments: str | int) -> None:
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "arguments", arguments)

    def write(self, lines: list[str], indent: str) -> None:
        lines.append(f"{indent}{self.function}({', '.join(map(str, self.arguments))});")


@dataclass(frozen=True, init=False)
class Block(Statement):
    """Code in braces, after a ``head`` such as that of a loop, if any."""

    head: str
    body: tuple[Code, ...]

    def __init__(self, *body: Code, head: str = "") -> None:
        object.__setattr__(self, "head", head)
        object.__setattr__(self, "body", body)

    def write(self, lines: list[str], indent: str) -> None:
        lines.append(f"{indent}{self.head} {{" if self.head else f"{indent}{{")
        write(self.body, lines, indent + INDENT)
        lines.append(f"{indent}}}")


class For(Block):
    """Counts a variable from ``begin`` to before ``end``, in steps of one or more."""

    def __init__(
        self, var: str, begin: str | int, end: str | int, *body: Code, step: int = 1
    ) -> None:
        counted = f"++{var}" if step == 1 else f"{var} += {step}"
        super().__init__(*body, head=f"for (ptrdiff_t {var} = {begin}; {var} < {end}; {counted})")


class While(Block):
    def __init__(self, condition: str, *body: Code) -> None:
        super().__init__(*body, head=f"while ({condition})")


@dataclass(frozen=True, init=False)
class If(Block):
    """``otherwise`` is the code after "else"."""

    otherwise: tuple[Code, ...]

    def __init__(self, condition: str, *body: Code, otherwise: Sequence[Code] = ()) -> None:
        super().__init__(*body, head=f"if ({condition})")
        object.__setattr__(self, "otherwise", tuple(otherwise))

    def write(self, lines: list[str], indent: str) -> None:
        super().write(lines, indent)
        if self.otherwise:
            lines[-1] += " else {"
            write(self.otherwise, lines, indent + INDENT)
            lines.append(f"{indent}}}")


def nest(axes: Sequence[Axis], *body: Code, cut: str | None = None) -> Code:
    """Code inside of a loop for each axis, the first one outermost. That of the axis ``cut`` goes
    from the variable ``begin`` to ``end``."""
    code: Code = body
    for axis in reversed(axes):
        ends = ("begin", "end") if axis.var == cut else (0, axis.count)
        code = For(axis.var, *ends, code)
    return code
