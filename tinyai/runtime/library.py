"""A compiled network as a library with a plain C interface: loaded and run without TVM.

Beside its entry a library has a constant ``tinyai_library``: JSON that tells the entry's name, the
arena's size, and the inputs and outputs. What is read here is written by ``tinyai.runtime.link``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyai.errors import EnvironmentProblem, FormatError, OptionError
from tinyai.files import no_file
from tinyai.tensor_spec import TensorSpec

Array = npt.NDArray[Any]

# The constant of a library, and the version of what it holds: another one for other keys or
# another way to call the entry. One with state is called by functions ENTRY_step and ENTRY_reset.
CONSTANT, FORMAT = "tinyai_library", "tinyai.library/1"
FORMAT_WITH_STATE = "tinyai.library/2"
_ALIGNMENT = 64  # of arena and state, in bytes


class Library:
    """A library that ``tinyai.compile`` wrote: ``run`` computes the network.

    ``inputs`` and ``outputs`` are its ``TensorSpec``s in the source model's order; ``name`` is the
    network's, ``target`` what it was compiled for, ``arena_bytes`` the memory that a call needs.
    ``facts`` is all that it says of itself, ``handle`` the library as ctypes has it.

    A network with state has ``state_bytes`` of it, which this object holds from one ``run`` to the
    next: its calls take turns, and ``reset`` lets it begin anew.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        """Load a library. Raises ``OptionError`` where there is no such file, ``FormatError`` for
        what is no library, one of something else, for another machine, or of another version."""
        path = Path(file)
        self._take(path, *_loaded(path))

    def _take(self, path: Path, facts: dict[str, Any], handle: ctypes.CDLL) -> None:
        """Become what a library, or a part of one, says of itself."""
        self.path, self.handle, self.facts = path, handle, facts
        self.name: str = facts["name"]
        self.target: str = facts["target"]
        self.arena_bytes: int = facts["arena_bytes"]
        self.inputs = _specs(facts["inputs"])
        self.outputs = _specs(facts["outputs"])
        self.state_bytes: int = facts.get("state_bytes", 0)
        step, pointers = ("_step", 4) if self.state_bytes else ("", 3)
        self._entry: Callable[..., int] = _entry(path, handle, f"{facts['entry']}{step}", pointers)
        if self.state_bytes:
            self._turn = threading.Lock()
            self._state = _Aligned(_state_bytes(path, handle, facts["entry"]))
            self._begin = _entry(path, handle, f"{facts['entry']}_reset", 1)
            self.reset()
        self._rooms: deque[_Room] = deque()  # pop and append are safe among threads
        self._wanted = [(each.shape, np.dtype(each.dtype)) for each in self.inputs]
        self._made = [(each.shape, np.dtype(each.dtype)) for each in self.outputs]

    def run(
        self, x: Array | Sequence[Array] | Mapping[str, Array], *, scaled: bool = False
    ) -> list[Array]:
        """The outputs for one input: new arrays, in the order of ``outputs``.

        ``x`` is the array of the only input, or a list or tuple of all in the order of ``inputs``,
        or a dict of them by name; shapes and dtypes are those of ``inputs``. With ``scaled`` inputs
        are real numbers and outputs float32: scale and zero point are applied where they are known,
        rounding to the nearest integer, halves to the even one, and bounding. An input of the dtype
        that it has in ``inputs`` is taken as it is: it is quantized already.

        Calls may overlap in threads: each has an arena of its own, which is kept for later calls.
        Those of a network with state take turns. Raises ``OptionError`` for what is no such input,
        ``EnvironmentProblem`` where the CPU lacks the instructions that the library was compiled
        to.
        """
        arrays = self._arrays(x)
        if scaled:
            arrays = [_quantized(a, spec) for a, spec in zip(arrays, self.inputs, strict=True)]
        outputs = [np.empty(shape, dtype) for shape, dtype in self._made]
        try:
            room = self._rooms.pop()
        except IndexError:
            room = _Room(len(arrays), len(outputs), self.arena_bytes)
        kept = room.point(arrays, self._wanted, self.inputs, outputs)
        if self.state_bytes:
            with self._turn:
                returned = self._entry(room.inputs, room.outputs, room.arena, self._state.start)
        else:
            returned = self._entry(room.inputs, room.outputs, room.arena)
        self._rooms.append(room)
        del kept
        if returned != 0:
            raise _no_cpu()
        if scaled:
            return [_real(a, spec) for a, spec in zip(outputs, self.outputs, strict=True)]
        return outputs

    def reset(self) -> None:
        """Let the next ``run`` begin from the initial state. A network without state has none."""
        if self.state_bytes:
            with self._turn:
                self._begin(self._state.start)

    def __call__(
        self, x: Array | Sequence[Array] | Mapping[str, Array], *, scaled: bool = False
    ) -> list[Array]:
        """``run``."""
        return self.run(x, scaled=scaled)

    def __reduce__(self) -> tuple[Any, ...]:
        """A library is pickled by its path: what reads it begins from the initial state."""
        return Library, (os.path.abspath(self.path),)

    def __repr__(self) -> str:
        ends = [", ".join(map(str, each)) for each in (self.inputs, self.outputs)]
        return f"<{type(self).__name__} {self.name}: {' -> '.join(ends)}>"

    def _arrays(self, x: Any) -> list[Any]:
        """``x`` as a list, an array for each input."""
        if isinstance(x, np.ndarray):
            found = [x]
        elif isinstance(x, Mapping):
            names = [each.name for each in self.inputs]
            if set(x) != set(names):
                raise OptionError(
                    "names of inputs",
                    found=", ".join(map(repr, list(x)[:8])) or "none",
                    allowed=", ".join(map(repr, names)),
                    hint="model.inputs tells names, shapes and dtypes",
                )
            found = [x[name] for name in names]
        elif isinstance(x, list | tuple):
            found = list(x)
        else:
            raise OptionError(
                "input",
                found=type(x).__name__,
                allowed="a numpy array, a list or tuple of arrays, or a dict of arrays by name",
            )
        if len(found) != len(self.inputs):
            raise OptionError(
                "number of inputs",
                found=len(found),
                allowed=f"{len(self.inputs)}: {', '.join(repr(each.name) for each in self.inputs)}",
            )
        return found


class _Aligned:
    """Memory that begins at ``start``, a multiple of 64."""

    __slots__ = ("_memory", "start")

    def __init__(self, size: int) -> None:
        self._memory = np.empty(size + _ALIGNMENT, np.uint8)
        first = self._memory.ctypes.data
        self.start: int = first + -first % _ALIGNMENT


class _Room:
    """What a call needs beside its arrays: pointers to them, and an arena."""

    __slots__ = ("_memory", "arena", "inputs", "outputs")

    def __init__(self, inputs: int, outputs: int, arena_bytes: int) -> None:
        self.inputs = (ctypes.c_void_p * max(inputs, 1))()
        self.outputs = (ctypes.c_void_p * max(outputs, 1))()
        self._memory = _Aligned(arena_bytes)
        self.arena = self._memory.start

    def point(
        self,
        arrays: list[Any],
        wanted: list[tuple[tuple[int, ...], np.dtype[Any]]],
        specs: Sequence[TensorSpec],
        outputs: list[Array],
    ) -> list[Array]:
        """Let the pointers be those of arrays; returns what has to live as long."""
        kept = []
        for place, (array, (shape, dtype)) in enumerate(zip(arrays, wanted, strict=True)):
            if type(array) is not np.ndarray:
                array = _array(array, specs[place])
            if array.shape != shape or array.dtype != dtype:
                raise _misfit(array, specs[place])
            if specs[place].limits is not None:
                _require_within(array, specs[place])
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                array = np.array(array, order="C")
            kept.append(array)
            self.inputs[place] = array.__array_interface__["data"][0]
        for place, array in enumerate(outputs):
            self.outputs[place] = array.__array_interface__["data"][0]
        return kept


# --- Inputs and outputs --------------------------------------------------------------------------


def _require_within(array: Array, spec: TensorSpec) -> None:
    """Refuse indices of which there is no element: code would take another one."""
    assert spec.limits is not None
    low, high = spec.limits
    if array.size and not low <= array.min() <= array.max() <= high:
        raise OptionError(
            f"indices in input {spec.name!r}",
            found=f"{array.min()} .. {array.max()}",
            allowed=f"{low} .. {high}",
        )


def _array(value: Any, spec: TensorSpec) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise OptionError(
            f"input {spec.name!r}",
            found="a masked array, whose masked values are none",
            allowed=f"a numpy array {spec}",
            hint="array.filled(value)",
        )
    if isinstance(value, np.ndarray):  # a kind of its own: a matrix, a masked or a mapped array
        return np.asarray(value)
    raise OptionError(
        f"input {spec.name!r}", found=type(value).__name__, allowed=f"a numpy array {spec}"
    )


def _misfit(array: Array, spec: TensorSpec) -> OptionError:
    floats = array.dtype.kind == "f" and array.shape == spec.shape and spec.scale is not None
    shape = ",".join(map(str, array.shape))
    return OptionError(
        f"input {spec.name!r}",
        found=f"{array.dtype}[{shape}]",
        allowed=spec,
        hint="scaled=True takes real numbers" if floats else "model.inputs tells what is wanted",
    )


def _quantized(value: Any, spec: TensorSpec) -> Array:
    """Real numbers as what an input wants."""
    array = value if type(value) is np.ndarray else _array(value, spec)
    dtype = np.dtype(spec.dtype)
    if array.dtype.kind not in "fiub" or array.shape != spec.shape:
        raise _misfit(array, spec)
    if array.dtype == dtype:
        return array
    if spec.scale is None and dtype.kind != "f":
        raise OptionError(
            f"input {spec.name!r}",
            found=f"{array.dtype}, and no scale is known",
            allowed=spec,
            hint="integers, as the model has them",
        )
    with np.errstate(over="ignore"):
        real: npt.NDArray[np.float32] = array.astype(np.float32)
    wrong = array[~np.isfinite(real)]
    if wrong.size:
        allowed = f"numbers up to {np.finfo(np.float32).max:.4g}"
        raise OptionError(
            f"input {spec.name!r}", found=f"{wrong[0]:g}".replace("nan", "NaN"), allowed=allowed
        )
    if spec.scale is None:
        return np.asarray(real.astype(dtype))
    info = np.iinfo(dtype)
    steps = np.rint(real / np.float32(spec.scale)) + np.float32(spec.zero_point or 0)
    return np.asarray(np.clip(steps, info.min, info.max).astype(dtype))


def _real(array: Array, spec: TensorSpec) -> Array:
    if spec.scale is None:
        return array
    centred = array.astype(np.float32) - np.float32(spec.zero_point or 0)
    return np.asarray(np.float32(spec.scale) * centred)


def _no_cpu() -> EnvironmentProblem:
    from tinyai.doctor import cpu_name

    return EnvironmentProblem(
        "this CPU cannot run the code",
        found=cpu_name(),
        allowed="one with the instructions of the option isa",
        hint="isa=auto, which every CPU of the architecture runs",
    )


# --- Files ---------------------------------------------------------------------------------------

# Of the loader's: it takes a path that it knows for the library that it has, whatever lies there
# now. So a library that was compiled anew is loaded by another spelling of its path.
_SPELLINGS: dict[str, list[tuple[int, ...]]] = {}
_LOCK = threading.Lock()
_MACHINES = {3: "x86", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}


def _loaded(path: Path) -> tuple[dict[str, Any], ctypes.CDLL]:
    """What a library says of itself, and the library."""
    wrong = no_file(path)
    if wrong:
        raise OptionError(
            "library",
            found=f"{_shown(path)}, {wrong}",
            allowed="a library that tinyai compile wrote",
            hint="tinyai compile MODEL -o net.so",
        )
    check_elf(path)
    try:
        with executable(path):
            handle = ctypes.CDLL(_spelled(path))
    except OSError as error:
        raise _no_library(path, _shown(error)) from None
    try:
        start = ctypes.c_char.in_dll(handle, CONSTANT)
    except ValueError:
        raise _no_library(path, f"a library without {CONSTANT}") from None
    try:
        facts = json.loads(ctypes.string_at(ctypes.addressof(start)))
        written, by = facts["format"], facts["tinyai"]
    except (ValueError, KeyError, TypeError):
        raise _no_library(path, f"{CONSTANT} that cannot be read") from None
    if written != (FORMAT_WITH_STATE if "state_bytes" in facts else FORMAT):
        raise FormatError(
            "library of another version",
            found=f"{_shown(path)}: {_shown(written)}, of tinyai {_shown(by)}",
            allowed=FORMAT,
            hint="compile the model again, or run it by that version of tinyai",
        )
    return facts, handle


def facts_of_library(file: str | os.PathLike[str]) -> dict[str, Any]:
    """What a library that was just written says of itself, and its size. It is found in the bytes
    by its beginning, for the library may be for another machine."""
    content = Path(file).read_bytes()
    formats = (json.dumps({"format": each})[:-1].encode() for each in (FORMAT, FORMAT_WITH_STATE))
    start = max(map(content.find, formats))
    facts: dict[str, Any] = json.loads(content[start : content.index(b"\0", start)])
    return {"size": len(content), **facts}


@contextlib.contextmanager
def executable(path: Path) -> Iterator[None]:
    """What fails within, where a library is loaded, fails because of its folder where that is
    mounted so that no code may be executed: then the error is an ``EnvironmentProblem``."""
    try:
        yield
    except Exception:  # of ctypes, or TVM's
        if not os.statvfs(path.parent).f_flag & os.ST_NOEXEC:
            raise
        raise EnvironmentProblem(
            "a compiled library cannot be loaded",
            found=f"{_shown(path.parent)}, mounted with noexec",
            allowed="a folder from which code may be executed",
            hint="TMPDIR set to another folder; XDG_CACHE_HOME for what is kept",
        ) from None


def _shown(value: object) -> str:
    return ascii(str(value))[1:-1][:200]


def _no_library(path: Path, found: str) -> FormatError:
    hint = "tinyai compile MODEL -o net.so; TVM's own libraries are for tvm.runtime.load_module"
    return FormatError(
        "library",
        found=f"{_shown(path)}: {found}",
        allowed="a library that tinyai compile wrote, for this machine",
        hint=hint,
    )


def check_elf(path: Path) -> None:
    """Raise ``FormatError`` for what the loader tells badly, or not at all: it maps a file that was
    cut off, and dies."""
    with path.open("rb") as file:
        head = file.read(64)
        size = os.fstat(file.fileno()).st_size
    if head[:4] in (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"):
        return  # macOS: the loader tells
    if head[:4] != b"\x7fELF":
        raise _no_library(path, f"{size} bytes that begin with {head[:12]!r}")
    if head[4:6] != b"\x02\x01" or len(head) < 64:
        return  # not of 64 bits, low bytes first: the loader tells
    (machine,) = struct.unpack_from("<H", head, 18)
    (sections,) = struct.unpack_from("<Q", head, 40)
    each, count = struct.unpack_from("<HH", head, 58)
    if sections + each * count > size:
        raise _no_library(path, f"{size} bytes of {sections + each * count}: it was cut off")
    here = _MACHINES.get(machine, str(machine))
    wanted = {"x86_64": 62, "aarch64": 183, "riscv64": 243}.get(os.uname().machine)
    if wanted is not None and machine != wanted:
        raise _no_library(path, f"a library for {here}")


def _spelled(path: Path) -> str:
    """The path, spelled otherwise for each file that lay there."""
    whole, stat = str(path.resolve()), path.stat()
    key = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
    with _LOCK:
        known = _SPELLINGS.setdefault(whole, [])
        if key not in known:
            known.append(key)
        number = known.index(key)
    folder, name = os.path.split(whole)
    return os.path.join(folder, *(["."] * number), name)


def _specs(data: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    tuples = ("shape", "limits")  # lists in JSON
    return tuple(
        TensorSpec(**{**each, **{name: tuple(each[name]) for name in tuples if name in each}})
        for each in data
    )


def _entry(path: Path, handle: ctypes.CDLL, name: str, pointers: int) -> Callable[..., int]:
    try:
        entry: Any = getattr(handle, name)
    except AttributeError:
        raise _no_library(path, f"no function {_shown(name)}") from None
    entry.restype = ctypes.c_int32
    entry.argtypes = [ctypes.c_void_p] * pointers
    return entry  # type: ignore[no-any-return]


def _state_bytes(path: Path, handle: ctypes.CDLL, name: str) -> int:
    """What the functions of an entry with state keep."""
    try:
        return ctypes.c_int64.in_dll(handle, f"{name}_state_bytes").value
    except ValueError:
        raise _no_library(path, f"no constant {_shown(name)}_state_bytes") from None
