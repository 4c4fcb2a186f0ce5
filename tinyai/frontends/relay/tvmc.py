"""tinyai in TVM's own drivers: ``tvmc`` target strings and the registry of pattern tables."""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.relay.op.contrib.register import register_pattern_table

from tinyai.errors import OptionError, TinyAIError, ToolchainError
from tinyai.frontends.relay.composites import RegisteredTable
from tinyai.frontends.relay.load import importers_refusal, importers_shapes, load_model
from tinyai.frontends.relay.options import check_options
from tinyai.frontends.relay.partition import partition_for_tinyai
from tinyai.frontends.shapes import parse_shapes
from tinyai.imported import when_imported
from tinyai.model_file import IMPORTED, RELAY_TEXT, check_file
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import (
    COMPILER,
    FRAMEWORKS,
    default_rounding,
    foreign_triple,
    split_target,
    with_host,
)


def register_drivers() -> None:
    """Make ``get_pattern_table("tinyai")`` and ``tvmc`` targets such as
    ``"tinyai -isa=scalar, llvm"`` work, the latter once the driver is imported. Again changes
    nothing."""
    register_pattern_table(COMPILER, RegisteredTable)
    partition = functools.partial(partition_for_tinyai, sealed=True)

    def register_target(composite_target: Any) -> None:
        codegen = {"config_key": None, "pass_pipeline": partition}
        composite_target.REGISTERED_CODEGEN[COMPILER] = codegen

    when_imported("tvm.driver.tvmc.composite_target", register_target)


def run_tvmc(arguments: Sequence[str]) -> int:
    """TVM's command line with tinyai among its targets; its exit code.

    Model files come in through ``load_model``, and what is wrong with the options or the output is
    told before anything is compiled. Raises ``TinyAIError`` with these messages.
    """
    from tvm.driver.tvmc import autotuner, compiler, frontends
    from tvm.driver.tvmc.main import _main

    register_drivers()
    with (
        _changed(sys, "argv", ["tvmc", *arguments]),
        _changed(frontends, "load_model", _load(frontends)),
        _changed(compiler, "drive_compile", _checked(compiler.drive_compile)),
        _changed(compiler, "parse_shape_string", _shapes),
        _changed(autotuner, "parse_shape_string", _shapes),
    ):
        return int(_main(list(arguments)) or 0)


@contextlib.contextmanager
def _changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """TVM's driver offers no place for a loader of one's own: its names are exchanged meanwhile."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _load(frontends: Any) -> Any:
    """tvmc's ``load_model``, with our checks for the files that we know."""
    theirs = frontends.load_model

    def load(
        path: str, model_format: str | None = None, shape_dict: Any = None, **more: Any
    ) -> Any:
        kind = f".{model_format}" if model_format else Path(path).suffix.lower()
        # Of a text TVM takes inputs without such a shape for weights, and makes ones of them.
        ours = kind in IMPORTED or (kind == RELAY_TEXT[0] and not shape_dict)
        if ours and not more:
            shapes = {
                name: [-1 if isinstance(dim, tvm.tir.Any) else int(dim) for dim in dims]
                for name, dims in (shape_dict or {}).items()
            }
            return frontends.TVMCModel(*load_model(path, shapes, kind))
        try:
            return theirs(path, model_format, shape_dict, **more)
        except (frontends.TVMCException, TinyAIError):
            raise
        except Exception as error:  # importers and parsers of files raise exceptions of any kind
            raise importers_refusal(path, kind, error) from error

    return load


def _shapes(text: str) -> dict[str, list[Any]]:
    try:
        return importers_shapes(parse_shapes(text))
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _checked(drive_compile: Any) -> Any:
    """tvmc's command ``compile``: target, output and file are looked at before the work begins, and
    the output is written whole or not at all."""

    def drive(args: argparse.Namespace) -> Any:
        rounding = ""
        if any(part.split()[:1] == [COMPILER] for part in str(args.target).split(",")):
            args.target, rounding = _for_host(str(args.target), args)
        with _whole(Path(args.output)) as beside:
            check_file(Path(args.FILE))
            args.output = str(beside)
            try:
                code = drive_compile(args)
            except RuntimeError as error:  # of TVM's own calls of the C++ compiler
                if not str(error).startswith("Compilation error"):
                    raise
                raise ToolchainError(
                    "the C++ compiler, which TVM calls, failed",
                    found=str(error).removeprefix("Compilation error:").strip()[:4000],
                    allowed="exit code 0",
                    hint="python -m tinyai doctor; df on the folder for temporary files (TMPDIR)",
                ) from None
        if rounding:
            print(f"rounding: {rounding} ({FRAMEWORKS[rounding]}'s integers)", file=sys.stderr)
        return code

    return drive


def _for_host(target: str, args: argparse.Namespace) -> tuple[str, str]:
    """The target string, checked, with the architecture of the host's triple, whose compiler links
    where the command names none, and the rounding of the file, which is the second value; that is
    empty where the string has one."""
    options, host = split_target(target)
    triple = getattr(args, "target_llvm_mtriple", None)
    host = f"{host} -mtriple={triple}" if triple else host
    told, rounding = with_host(options, host), ""
    if not told.get("rounding"):
        kind = getattr(args, "model_format", None)
        rounding = default_rounding(f"model.{kind}" if kind else args.FILE)
        told = told | ({"rounding": rounding} if rounding else {})
    check_options(told)
    if foreign_triple(host) and not args.cross_compiler:
        args.cross_compiler = Toolchain.of(None, foreign_triple(host)).command()[0]
    said = "".join(f" -{name}={told[name]}" for name in told.keys() - options.keys())
    parts = (part + said if part.split()[:1] == [COMPILER] else part for part in target.split(","))
    return ",".join(parts), rounding


@contextlib.contextmanager
def _whole(output: Path) -> Iterator[Path]:
    """A path in a folder beside ``output``; what is there in the end comes to its place."""
    parent = output.absolute().parent
    try:
        if output.is_dir():
            raise IsADirectoryError(errno.EISDIR, "a folder")
        folder = tempfile.TemporaryDirectory(dir=parent, prefix=".tinyai-")
    except OSError as error:
        raise OptionError(
            "output file",
            found=f"{output}: {error.strerror}",
            allowed="a file in a folder that can be written",
            hint="--output FILE",
        ) from None
    with folder:
        yield Path(folder.name) / output.name
        for path in Path(folder.name).iterdir():  # dumps are beside it
            os.replace(path, parent / path.name)
