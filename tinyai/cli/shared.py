"""What the commands share: options, errors and exit codes, what is printed and how.

Exit codes: 0 fine; 1 the model (unreadable, refused, different); 2 options and environment;
3 a fault of tinyai's own; 130 Ctrl-C.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tinyai.cli.progress import Bar, is_terminal
from tinyai.errors import (
    BoundaryError,
    DefectError,
    DefectWarning,
    EnvironmentProblem,
    FormatError,
    LimitError,
    ModelError,
    OptionError,
    TinyAIError,
    UnsupportedError,
    UsageWarning,
)
from tinyai.interrupts import STARTED
from tinyai.model_file import FileOptions, check_model
from tinyai.safe_text import safe
from tinyai.stages import IMPORTS, OWN_IMPORTS, stage, watched
from tinyai.target import FRAMEWORKS, Target, default_rounding, split_target

if TYPE_CHECKING:
    from rich.console import Console

    from tinyai.report import HostRow, Report

FINE, MODEL, USAGE, FAULT = 0, 1, 2, 3
_OF_THE_MODEL = (BoundaryError, FormatError, LimitError, ModelError, UnsupportedError)
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_LINES, _COLUMNS = 20, 400  # of a message: it fits a screen
_HELP = {"help_option_names": ["-h", "--help"]}

_QUIET = ContextVar("_QUIET", default=False)
F = TypeVar("F", bound=Callable[..., Any])


# --- Commands ------------------------------------------------------------------------------------


class Command(click.Command):
    """A command whose help ends with ``examples``."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = tuple(examples)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Example" if len(self.examples) == 1 else "Examples"):
                for line in self.examples:  # not wrapped, to be copied
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def command(
    name: str, *examples: str, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """A function as the command ``name`` whose help ends with ``examples``. What is foreseen to
    fail ends with a message and an exit code, without a traceback. A bar shows the stages on a
    terminal; ``-v`` tells them with their times, ``-q`` leaves out what is no result."""

    def made(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def run(*args: Any, verbose: bool = False, quiet: bool = False, **kwargs: Any) -> Any:
            if verbose and quiet:
                raise click.UsageError("--verbose and --quiet say the opposite of one another")
            token = _QUIET.set(quiet)
            try:
                with _messages(verbose), _watched(verbose, quiet):
                    return function(*args, **kwargs)
            finally:
                _QUIET.reset(token)

        settings.setdefault("context_settings", _HELP)
        whole = click.command(name, cls=Command, examples=examples, **settings)(run)
        if not settings["context_settings"].get("ignore_unknown_options"):
            told = "Tell stages and times, and where an error arose."
            whole.params.append(click.Option(["-v", "--verbose"], is_flag=True, help=told))
            told = "Print the result alone: no bar, no notes, no next steps."
            whole.params.append(click.Option(["-q", "--quiet"], is_flag=True, help=told))
        return whole

    return made


def file_options(function: F) -> F:
    """``--input-shapes``, ``--signature`` and ``--state``, which the function gets as
    ``reading``."""

    @functools.wraps(function)
    def run(
        *args: Any, input_shapes: str, signature: str, state: Sequence[str], **kwargs: Any
    ) -> Any:
        pairs = {pair.partition("=")[0]: pair.partition("=")[2] for pair in state}
        if len(pairs) < len(state) or not all(pairs.values()):
            found = " ".join(state)
            raise OptionError("--state", found=found, allowed="OUTPUT=INPUT, each output once")
        return function(*args, reading=FileOptions(input_shapes, signature, pairs), **kwargs)

    decorated: Any = signature_option(run)
    told = "An output of an .onnx file that is an input of the next call. Once for each."
    decorated = click.option("--state", multiple=True, metavar="OUTPUT=INPUT", help=told)(decorated)
    return shapes_option(decorated)  # type: ignore[no-any-return]


def backend_option(function: F) -> F:
    """``--backend FILE``, which is run; the function gets the name of what it registers as
    ``backend``, "" without one."""

    @functools.wraps(function)
    def run(*args: Any, backend: str | None, **kwargs: Any) -> Any:
        name = ""
        if backend is not None:
            with stage(OWN_IMPORTS):
                from tinyai.own import backend_of_file
            name = backend_of_file(backend)
        return function(*args, backend=name, **kwargs)

    return click.option(  # type: ignore[return-value]
        "--backend",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="A Python file that registers a back end of your own, which goes before tinyai.",
    )(run)


def require_no_backend(backend: str, file: str) -> None:
    """Raises ``OptionError`` for a back end of one's own beside what is measured region by region,
    as TVM divides it."""
    if backend:
        raise OptionError(
            "--backend",
            found=f"{backend} beside {file}",
            allowed="beside an .onnx or .tflite file",
            hint="tinyai.partition_for cuts out of a module what a back end of one's own takes",
        )


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
html_option = click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page of HTML to look at, too.",
)
_SHAPES = (
    "'data:1x3x32x32 other:1x8', or as tvmc's; 'rate=16000' for an input of an .onnx file that "
    "always has this value."
)
shapes_option = click.option("--input-shapes", default="", help=_SHAPES)
signature_option = click.option(
    "--signature", default="", metavar="NAME", help="Of a .tflite file that has several."
)


# --- Options of the target -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RequestedTarget:
    """The target that options ask for: tinyai's options as text, by name, those that
    ``partition_for_tinyai`` has beside the target's among them, and the host's target string."""

    options: dict[str, str]
    host: str

    @property
    def target(self) -> Target:
        """Raises ``OptionError`` for options that are not the target's alone."""
        return Target.from_options(self.options)

    @property
    def is_of_target(self) -> bool:
        """Whether none of the options is the partition's."""
        return set(self.options) <= {each.name for each in dataclasses.fields(Target)}

    def for_model(self, model: object) -> RequestedTarget:
        """With the rounding of a model, where none is asked for. Raises what ``check_model`` does
        for a file, before TVM is imported."""
        if isinstance(model, str):
            check_model(model)
        rounding = Target(rounding=self.options.get("rounding", "")).for_model(model).rounding
        return dataclasses.replace(self, options={**self.options, "rounding": rounding})


def tell_rounding(model: object, asked: RequestedTarget, *, aside: bool) -> None:
    """Print whose integers the code of a model has; ``aside`` on the error output."""
    rounding, own = asked.options["rounding"], default_rounding(model)
    told = f"rounding: {rounding} ({FRAMEWORKS[rounding]}'s integers"
    told += "" if own == rounding else f"; --rounding {own} gives {FRAMEWORKS[own]}'s"
    note(f"{told})", aside=aside)


def target_options(function: F) -> F:
    """A flag for each field of ``Target``, and ``--target`` for all in one string, which flags
    override; the function gets them as ``asked``."""
    fields = dataclasses.fields(Target)

    @functools.wraps(function)
    def run(*args: Any, target: str, **kwargs: Any) -> Any:
        options, host = split_target(target)
        flags = {each.name: kwargs.pop(each.name) for each in fields}
        options |= {name: value for name, value in flags.items() if value is not None}
        return function(*args, asked=RequestedTarget(options, host), **kwargs)

    decorated: Any = run
    for each in reversed(fields):
        flag, kind = f"--{each.name.replace('_', '-')}", each.metadata.get("values", "TEXT")
        default = f"  [default: {each.default}]" if each.default not in ("", 0) else ""
        said = each.metadata.get("help", "") + default
        decorated = click.option(flag, each.name, metavar=kind, help=said)(decorated)
    told = "Options in one string: 'tinyai -isa=scalar -threads=2'."
    option = click.option("--target", default="tinyai", show_default=True, help=told)
    return option(decorated)  # type: ignore[no-any-return]


# --- What is printed -----------------------------------------------------------------------------


def is_quiet() -> bool:
    return _QUIET.get()


def note(text: str, *, aside: bool = False) -> None:
    """Print what is no result, unless ``--quiet`` leaves it out; ``aside`` on the error output."""
    if not _QUIET.get():
        click.echo(text, err=aside)


def show_warnings_as_errors_are() -> None:
    """Let warnings of tinyai's be printed as its errors, without a line of Python."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if isinstance(message, UsageWarning | DefectWarning):
            lines = map(_cut, str(message).splitlines())
            click.echo("warning: " + "\n".join(lines), err=True)
        else:
            usual(message, category, *where, **more)

    warnings.showwarning = show


def next_steps(*commands: Sequence[object]) -> None:
    """Print commands that a user may want next, to be copied into a shell."""
    if commands:
        note("next:\n" + "\n".join(f"  {shlex.join(map(str, words))}" for words in commands))


def print_json(value: object) -> None:
    """JSON on the standard output: ASCII, two spaces deep."""
    click.echo(json.dumps(value, indent=2))


def console() -> Console:
    """For tables: a file or a pipe has room for a row a layer."""
    from rich.console import Console

    made = Console(highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 180
    return made


# --- Errors --------------------------------------------------------------------------------------


@contextlib.contextmanager
def relay_for(name: str) -> Iterator[None]:
    """Imports within need a TVM with Relay: without one the error says so."""
    try:
        with stage(IMPORTS):
            yield
    except Exception as error:  # a broken TVM raises exceptions of any kind
        raise EnvironmentProblem(
            f"{name} needs a TVM with Relay",
            found=" ".join(str(error).splitlines()[:1]) or type(error).__name__,
            allowed="a TVM with Relay, such as 0.17",
            hint="python -m tinyai doctor",
        ) from None


def exit_code(error: BaseException) -> int:
    """What a command ends with for an exception."""
    if isinstance(error, _OF_THE_MODEL):
        return MODEL
    foreseen = isinstance(error, TinyAIError | OSError | MemoryError)
    return FAULT if isinstance(error, DefectError) or not foreseen else USAGE


@contextlib.contextmanager
def _messages(verbose: bool) -> Iterator[None]:
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except OSError as error:
        if isinstance(error, TinyAIError):
            _fail(error, error, verbose)
        if error.errno == errno.EPIPE:  # who reads our output has enough of it: click's to end
            raise
        printed = _was_printing(error)
        _fail(error, _of_the_output(error) if printed else _of_the_system(error), verbose)
    except MemoryError as error:
        _fail(error, _no_memory(), verbose)
    except TinyAIError as error:
        _fail(error, error, verbose)
    except Exception as error:
        _fail(error, _fault(error), verbose)


def _watched(verbose: bool, quiet: bool) -> contextlib.AbstractContextManager[None]:
    """Stages told or shown, within the block."""
    if verbose:
        return watched(_tell_stage, STARTED)
    if quiet or not is_terminal():
        return contextlib.nullcontext()
    return watched(lambda *_: None, display=Bar())


def _tell_stage(name: str, seconds: float) -> None:
    click.echo(f"{seconds:8.3f} s  {name}", err=True)


def _fail(raised: BaseException, shown: TinyAIError, verbose: bool) -> NoReturn:
    code = exit_code(shown)
    if verbose:
        click.echo("".join(traceback.format_exception(raised)), err=True)
    click.echo(f"error: {_screen(shown)}", err=True)
    if code == FAULT:
        told = "This is a fault of tinyai's own, not of yours. Please report it: the model, the "
        told += "command, and what it prints with -v."
        click.echo(told, err=True)
    sys.exit(code)


def _screen(error: TinyAIError) -> str:
    """The message of an error, as much of it as a screen holds."""
    if isinstance(error, BoundaryError):
        return _of_boundary(error)
    lines = [_cut(line) for line in str(error).splitlines()]
    if len(lines) > _LINES:  # compilers say much: what to try comes last
        left = len(lines) - _LINES + 1
        lines = [*lines[: _LINES - 5], f"  ... {left} lines more: -v", *lines[-4:]]
    return "\n".join(lines)


def _cut(line: str) -> str:
    """The line, its end left out if it is long; names of files in it do not steer the terminal."""
    line = "".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in line)
    return line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…"


def _of_boundary(error: BoundaryError) -> str:
    """The error with a line an operator of the host: ``explain`` has the whole of it."""
    report: Report = error.report
    rows = report.computing or report.host
    lines = str(error).partition("\n\n")[0].splitlines()
    groups: dict[tuple[str, str, str], list[HostRow]] = {}
    for row in rows:  # whatever the operator, the same is said once
        clause = row.reason.clause.replace(row.operator, "OPERATOR")
        groups.setdefault((clause, row.reason.found, row.reason.allowed), []).append(row)
    shown = [f"  host: {_host_line(group)}" for group in list(groups.values())[:8]]
    left = sum(map(len, list(groups.values())[8:]))
    more = [f"  ... {left} operators more"] if left else []
    return "\n".join([*map(_cut, lines), *shown, *more, "  the whole report: tinyai explain FILE"])


def _host_line(rows: Sequence[HostRow]) -> str:
    """Why operators are on the host that are there for the same reason."""
    row, reason = rows[0], rows[0].reason
    name = f" {safe(row.name, 40)!r}" if row.name else ""
    more = f" and {len(rows) - 1} operators more" if len(rows) > 1 else ""
    return (
        f"{safe(row.operator, 40)}{name}{more}: {safe(reason.clause, 60)}: "
        f"found {safe(reason.found, 60)}; allowed {safe(reason.allowed, 60)}"
    )


def _of_the_system(error: OSError) -> TinyAIError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return EnvironmentProblem(
        "a file cannot be written" if full else "the system refuses",
        found=error,
        allowed="room for the C, objects and the library" if full else "a file that can be used",
        hint="free some space, or set TMPDIR to a folder that has it"
        if full
        else "permissions and free space; TMPDIR names the folder for what is in between",
    )


def _was_printing(error: OSError) -> bool:
    """Whether what was printed cannot be written; then it is let go, for Python would try again
    when it ends."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if str(frame.f_globals.get("__name__")).partition(".")[0] not in ("click", "rich"):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _of_the_output(error: OSError) -> TinyAIError:
    return EnvironmentProblem(
        "standard output cannot be written",
        found=error.strerror,
        allowed="a terminal, a pipe, or a file with room",
        hint="send what is printed elsewhere, or free some space",
    )


def _no_memory() -> TinyAIError:
    return EnvironmentProblem(
        "not enough memory",
        found="the system gave no more",
        allowed="some ten times the size of the weights",
        hint="end other programs, or use another machine",
    )


def _fault(error: Exception) -> DefectError:
    where = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in where if frame.filename.startswith(_PACKAGE)] or where[-1:]
    place = f" in {os.path.basename(ours[-1].filename)}, line {ours[-1].lineno}" if ours else ""
    said = " ".join(str(error).split())[:_COLUMNS]
    return DefectError(
        f"a fault of tinyai's own{place}",
        found=f"{type(error).__name__}: {said}" if said else type(error).__name__,
        allowed="no exception, whatever the model and the options",
    )
