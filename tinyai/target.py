"""What the code is generated for: a frozen, validated set of options.

A target comes from keyword arguments, from the strings that tvmc hands over, or from a target
string such as ``"tinyai -isa=scalar -threads=2"``. It travels to the code generator as a region's
compile specs, one attribute, because TVM's hook sees nothing but the region's function.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

from tinyai.errors import OptionError

# An architecture, or an instruction set of one, is a folder: code generation has them, and here are
# their names.
_FOLDER = Path(__file__).parent / "codegen" / "isa"


def _folders(folder: Path) -> tuple[str, ...]:
    return tuple(found.name for found in iter_modules([str(folder)]) if found.ispkg)


# The instruction sets of each architecture.
ARCHITECTURES = {name: _folders(_FOLDER / name) for name in _folders(_FOLDER)}
# What every machine runs: C without instructions of any architecture.
PORTABLE = "portable"
# What operating systems and compilers call an architecture otherwise.
_ALIASES = {"amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}
# What instruction sets were called before.
_ISA_ALIASES = {"packed": "generic"}
ISAS = ("auto", "native", *(isa for isas in ARCHITECTURES.values() for isa in isas))
ROUNDINGS = ("upward", "tflite", "onnx", "torch")
# Whose integers each has.
FRAMEWORKS = dict(zip(ROUNDINGS, ("TVM", "TFLite", "ONNX Runtime", "PyTorch"), strict=True))
# The rounding of a model file's own framework, by how the file's name ends.
_ROUNDING_OF_FILE = {".tflite": "tflite", ".onnx": "onnx"}
ABIS = ("packed", "unpacked")
# More than one machine has, of those that are sold: what is above is a slip of the pen.
MOST_THREADS = 512
# The name of the back end among TVM's.
COMPILER = "tinyai"
_ATTRIBUTE_PREFIX = f"{COMPILER}."
# The attribute of a region that holds its compile specs: a JSON object of names and texts.
SPECS = f"{_ATTRIBUTE_PREFIX}compile_specs"


def _choice(
    name: str, allowed: tuple[str, ...], aliases: Mapping[str, str] = MappingProxyType({})
) -> Callable[[object], str]:
    def parse(value: object) -> str:
        text = str(value).strip().lower()
        text = aliases.get(text, text)
        if text not in allowed:
            named = ", ".join(filter(None, allowed))
            raise OptionError(f"option {name!r}", found=value, allowed=named)
        return text

    return parse


def _integer(name: str, low: int, unit: str, most: int = 0) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(str(value), 0)
        except ValueError:
            number = low - 1
        if number < low or 0 < most < number or isinstance(value, bool):
            bound = f", at most {most}" if most else ""
            allowed = f"a whole number >= {low}{bound} ({unit})"
            raise OptionError(f"option {name!r}", found=repr(value), allowed=allowed)
        return number

    return parse


def _path(name: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str | os.PathLike):
            raise OptionError(f"option {name!r}", found=repr(value), allowed="a file, or nothing")
        return str(os.fspath(value)).strip()

    return parse


def default_rounding(model: object) -> str:
    """The rounding of a model where none is asked for: that of a file's framework; of a value its
    own, such as ``SourceModel.rounding``; "upward", TVM's, of Relay, as text or as a module."""
    if isinstance(model, str | os.PathLike):
        return _ROUNDING_OF_FILE.get(Path(model).suffix.lower(), "upward")
    return getattr(model, "rounding", "") or "upward"


def architecture_named(name: str) -> str:
    """The architecture that a machine's name or the first word of a triple means; "portable" for
    one that has no folder."""
    name = name.strip().lower()
    name = _ALIASES.get(name, name)
    return name if name in ARCHITECTURES else PORTABLE


def instruction_set_named(name: str) -> str:
    """The value of the option ``isa`` that a name means, which may be an old one."""
    return _ISA_ALIASES.get(name, name)


def this_architecture() -> str:
    """That of this machine."""
    return architecture_named(platform.machine())


def _option(default: Any, values: str, text: str) -> Any:
    """A field of ``Target``, and what the command line says of its flag."""
    return dataclasses.field(default=default, metadata={"values": values, "help": text})


@dataclass(frozen=True, kw_only=True)
class Target:
    """Options of the code generator; each may be given as a value or as its string.

    - ``isa``: instruction set of the kernels. ``auto`` holds those of every machine of the
      architecture and chooses by the CPU at run time, ``native`` is the strongest of this machine;
      ``amx``, ``avx512vnni``, ``avxvnni``, ``avx2``, ``i8mm``, ``dotprod`` and ``neon`` are one,
      ``generic`` is what ``auto`` runs elsewhere (portable C over the weights that the others read;
      its old name ``packed`` is understood), ``scalar`` is portable C to be read.
    - ``arch``: the architecture of the machine that will run the code, where ``isa`` does not say
      it; by default that of the host's target triple where ``tinyai.build`` or tvmc know it, else
      this machine's.
    - ``threads``: threads that a region may use, where it is large enough, of a pool that belongs
      to the library. Results do not depend on it; the ``scalar`` kernels use one.
    - ``rounding``: meaning of a requantization that names none of its own: TVM's ("upward", its
      default, in int64), or that of TFLite's reference kernels, of ONNX Runtime, or of PyTorch on a
      phone ("torch": XNNPACK's kernels, as ExecuTorch calls them). Where none is asked for, it is
      "tflite" for a .tflite file, "onnx" for an .onnx file, and "upward" for Relay.
    - ``abi``: how the host calls a region. ``packed`` is right for every executor but AOT with
      ``unpacked-api``, whose host code calls ``unpacked`` functions.
    - ``arena_limit``, ``weight_limit``: upper bounds in bytes, 0 for none.
    - ``tuning``: a file that ``tinyai tune`` wrote, which says how layers are cut up; of other
      layers, and without a file, a cost model says it. Results do not depend on it.

    Raises ``OptionError`` for a value that is not allowed.
    """

    isa: str = _option(
        "auto", "NAME", "Instruction set: auto, native, scalar, or one of its names."
    )
    arch: str = _option("", "NAME", "Architecture of the machine that will run the code.")
    threads: int = _option(1, "N", "Threads that a network may use.")
    rounding: str = _option(
        "",
        "NAME",
        "Whose integers: upward (TVM's), tflite, onnx, torch.  "
        "[default: tflite for .tflite, onnx for .onnx, where it was upward before; else upward]",
    )
    abi: str = _option("packed", "NAME", "How TVM's host calls a region: packed, unpacked.")
    arena_limit: int = _option(0, "BYTES", "Refuse to need a larger arena; 0 for no limit.")
    weight_limit: int = _option(0, "BYTES", "Refuse to need more weights; 0 for no limit.")
    tuning: str = _option("", "FILE", "How layers are cut up: a file of tinyai tune.")

    def __post_init__(self) -> None:
        for name, parse in _PARSERS.items():
            object.__setattr__(self, name, parse(getattr(self, name)))
        _check_together(self.isa, self.arch)

    @property
    def architecture(self) -> str:
        """A key of ``ARCHITECTURES``."""
        return self.arch or _architecture_of(self.isa) or this_architecture()

    def here(self) -> Target:
        """The same, of code that runs in this process. Raises ``OptionError`` for the code of
        another architecture."""
        here = this_architecture()
        if self.architecture not in (here, PORTABLE):
            raise OptionError(
                "target of code that runs here",
                found=f"{self.isa}, of {self.architecture}",
                allowed=f"this machine's {here}, or portable C",
                hint="tinyai compile makes it, to run there",
            )
        return self

    @classmethod
    def of(cls, given: Target | str | None) -> Target:
        """What a caller hands over: a target, a target string, or None for the default. Raises
        ``OptionError`` for others."""
        if given is None:
            return cls()
        return given if isinstance(given, cls) else cls.from_options(split_target(given)[0])

    def for_model(self, model: object) -> Target:
        """The target with the rounding of a model, where it asks for none."""
        return self if self.rounding else replace(self, rounding=default_rounding(model))

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Target:
        """Target from option names and values; ``-`` in a name is ``_``.

        Raises ``OptionError`` for an unknown name.
        """
        options = {name.replace("-", "_"): value for name, value in options.items()}
        unknown = sorted(set(options) - set(_PARSERS))
        if unknown:
            raise OptionError(
                "unknown option of the tinyai target",
                found=", ".join(unknown),
                allowed=", ".join(_PARSERS),
                hint="in a target string an option reads -name=value",
            )
        return cls(**options)  # type: ignore[arg-type]  # the parsers check every value

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, str]) -> Target:
        """Target from the attributes of a region; attributes of others are passed over."""
        return cls.from_options(options_of(attributes))

    @staticmethod
    def attribute(name: str) -> str:
        """Name of an attribute that holds a single option of a region, beside its compile specs."""
        return f"{_ATTRIBUTE_PREFIX}{name}"

    def attributes(self) -> dict[str, str]:
        """The options as attributes of a region: one, its compile specs."""
        return {SPECS: json.dumps(self.options(), sort_keys=True)}

    def options(self) -> dict[str, str]:
        """Names and texts of all options."""
        return {name: str(value) for name, value in dataclasses.asdict(self).items()}

    def __str__(self) -> str:
        options = self.options()
        said = (f"-{name}={shlex.quote(value)}" for name, value in options.items() if value)
        return " ".join(["tinyai", *said])


def options_of(attributes: Mapping[str, str]) -> dict[str, str]:
    """The options that a region's attributes say: its compile specs, and single ones, as all were
    until there were compile specs, over these. Raises ``OptionError`` for specs that nobody can
    read."""
    try:
        specs = json.loads(attributes.get(SPECS, "{}"))
        options = {name: text for name, text in specs.items() if isinstance(text, str)}
        if len(options) != len(specs):
            raise ValueError("a value that is no text")
    except (AttributeError, RecursionError, ValueError) as error:
        raise OptionError(
            f"attribute {SPECS} of a region",
            found=f"{attributes[SPECS][:80]!r}: {error}",
            allowed="a JSON object of names and texts",
        ) from None
    single = {name: text for name, text in attributes.items() if name != SPECS}
    return options | {
        name.removeprefix(_ATTRIBUTE_PREFIX): text
        for name, text in single.items()
        if name.startswith(_ATTRIBUTE_PREFIX)
    }


def _architecture_of(isa: str) -> str:
    """The architecture that has an instruction set of this name; nothing where all have it."""
    own = (name for name, isas in ARCHITECTURES.items() if isa in isas and name != PORTABLE)
    return next(own, "")


def _check_together(isa: str, arch: str) -> None:
    here = this_architecture()
    needed = here if isa == "native" else _architecture_of(isa)
    if arch and needed not in ("", arch):
        allowed = ("auto", *ARCHITECTURES[arch], *ARCHITECTURES[PORTABLE])
        raise OptionError(
            f"option 'isa' for arch={arch}", found=isa, allowed=", ".join(dict.fromkeys(allowed))
        )


_PARSERS: dict[str, Callable[[object], object]] = {
    "isa": _choice("isa", ISAS, _ISA_ALIASES),
    "arch": _choice("arch", ("", *ARCHITECTURES), _ALIASES),
    "threads": _integer("threads", 1, "threads", MOST_THREADS),
    "rounding": _choice("rounding", ("", *ROUNDINGS)),
    "abi": _choice("abi", ABIS),
    "arena_limit": _integer("arena_limit", 0, "bytes, 0 for no limit"),
    "weight_limit": _integer("weight_limit", 0, "bytes, 0 for no limit"),
    "tuning": _path("tuning"),
}


# Names of the options.
OPTIONS = tuple(_PARSERS)


def split_target(text: str | Target) -> tuple[dict[str, str], str]:
    """``"tinyai -isa=scalar, llvm -mcpu=x"`` -> options of tinyai, and the host's target string.

    The host is ``llvm`` where none is named, and beside a ``Target``. Raises ``OptionError`` where
    tinyai is missing, named twice, or followed by words that are no ``-name=value``, and for what
    is neither text nor a ``Target``.
    """
    if isinstance(text, Target):
        return text.options(), "llvm"
    if not isinstance(text, str):
        raise OptionError(
            "target",
            found=f"{type(text).__module__}.{type(text).__name__} {str(text)[:80]!r}",
            allowed="a target string, or a tinyai.Target",
            hint='"tinyai -isa=scalar, llvm -mcpu=cascadelake"',
        )
    parts = [part.strip() for part in text.split(",")]
    own = [part for part in parts if part.split(" ")[0] == "tinyai"]
    if len(own) != 1:
        raise OptionError(
            "target string",
            found=repr(text),
            allowed="exactly one part that begins with tinyai",
            hint='"tinyai -isa=scalar, llvm"',
        )
    hosts = [part for part in parts if part and part not in own]
    return _options_of(own[0]), ",".join(hosts) or "llvm"


def with_host(options: Mapping[str, str], host: str) -> dict[str, str]:
    """The options for regions that are called by code for ``host``, a target string of TVM.

    Where it is for another machine than this one, so are the regions. Raises ``OptionError`` where
    the options name a third: both come into one library.
    """
    machine = {name: options[name] for name in ("isa", "arch") if name in options}
    target, named = Target.from_options(machine), host_architecture(host)
    asked = target.arch or _architecture_of(target.isa)
    if named and asked not in ("", named, PORTABLE):
        raise OptionError(
            "architecture of the regions",
            found=f"{asked}, beside {named} of the host {host!r}",
            allowed="one for both",
            hint='a host such as "llvm -mtriple=aarch64-linux-gnu"',
        )
    return {**options, "arch": named} if foreign_triple(host) and not asked else dict(options)


def host_architecture(host: str) -> str:
    """The architecture that a host's target string means; nothing where it does not say one."""
    triple = _triple(host) or (platform.machine() if host.split()[0] == "llvm" else "")
    return triple and architecture_named(triple.split("-")[0])


def foreign_triple(host: str) -> str:
    """The target triple of a host that is another machine than this one; nothing for this one."""
    return "" if host_architecture(host) in ("", this_architecture()) else _triple(host)


def _triple(host: str) -> str:
    words = (word.partition("-mtriple=") for word in host.split())
    return next((triple for before, _, triple in words if triple and not before), "")


def _options_of(part: str) -> dict[str, str]:
    options = {}
    try:
        words = shlex.split(part)[1:]
    except ValueError as error:
        raise OptionError(
            "target string", found=f"{part!r}: {error}", allowed="-name=value"
        ) from None
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not equals:
            raise OptionError("word in the tinyai target", found=repr(word), allowed="-name=value")
        options[name] = value
    return options
