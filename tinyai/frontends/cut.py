"""``tinyai.cut_file``: a part of a model file as a file of its own."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tinyai.errors import OptionError
from tinyai.files import check_place, written_whole
from tinyai.frontends.attempt import QUANTIZE_THE_REST, attempt_of
from tinyai.frontends.cuttable import CuttableFile, NamedOperator
from tinyai.frontends.faults import missing
from tinyai.frontends.files import is_read
from tinyai.frontends.source_model import SourceModel
from tinyai.model_file import FileOptions, InputShapes
from tinyai.partition.macs import macs
from tinyai.partition.reasons import such_as
from tinyai.safe_text import safe
from tinyai.source import Call, Rounding, Unread, post_order


@dataclass(frozen=True)
class CutFile:
    """What became of ``cut_file``: the ``file`` that was written, its inputs and outputs by name
    with their types, how many operators it has, and how many the model has."""

    file: Path
    inputs: dict[str, str]
    outputs: dict[str, str]
    operators: int
    of: int


def cut_file(
    file: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    input_shapes: InputShapes = "",
    signature: str = "",
) -> CutFile:
    """Write the part of an .onnx or .tflite file between some of its values as a file of the same
    format, with the operators, weights and names as they are: whatever takes the whole takes it.

    ``inputs`` are names of values that become inputs, ``outputs`` of those that become outputs.
    Inputs of the model that are needed beside those that are named stay; without ``outputs`` the
    model's are those of the part, as far as they are computed of ``inputs``. With neither, the part
    is the largest (by multiply-accumulates, then operators) that lies between operators of which
    tinyai makes no integers, such as spectrograms at the beginning and the choice of boxes at the
    end. ``signature`` is that of ``tinyai.compile``, as are ``input_shapes``, which may name all
    sizes of a .tflite file too: with these and nothing to cut off, the whole has them.

    Raises ``OptionError`` for a name that the file does not have, an input that no output needs, an
    output file that ends otherwise than ``file``, and where there is nothing to cut off; what the
    reader of the file raises; ``EnvironmentProblem`` where a package is missing, which is
    ai-edge-litert for .tflite.
    """
    source, place = Path(file), Path(output)
    if not is_read(file) or place.suffix.lower() != source.suffix.lower():
        raise OptionError(
            "files to cut",
            found=safe(f"{source.name}, to {place.name}"),
            allowed=".onnx to .onnx, .tflite to .tflite",
        )
    check_place(place)
    whole = _whole_of(source, input_shapes, signature)
    begins, ends = ([names] if isinstance(names, str) else [*names] for names in (inputs, outputs))
    if begins or ends:
        _require_known(whole, begins, "inputs")
        _require_known(whole, ends, "outputs")
    else:
        begins, ends = _largest(whole, source, fixed=bool(input_shapes))
    if not ends:
        following = _following(whole.operators, begins)
        ends = [name for name in whole.outputs if name in following]
    ends = [*dict.fromkeys(ends)]
    kept, read = _needed(whole.operators, {*begins}, ends)
    _require_needed(begins, ends, read)
    begins = [*dict.fromkeys([*begins, *(name for name in whole.inputs if name in read)])]
    content = whole.part(kept, begins, ends)
    with written_whole(place) as beside:
        beside.write_bytes(content)
    types = {name: whole.type_of(name) for name in (*begins, *ends)}
    return CutFile(
        place,
        {name: types[name] for name in begins},
        {name: types[name] for name in ends},
        len(kept),
        len(whole.operators),
    )


def _whole_of(file: Path, input_shapes: InputShapes, signature: str) -> CuttableFile:
    if file.suffix.lower() == ".onnx":
        from tinyai.frontends.onnx.cut import OnnxWhole

        FileOptions(signature=signature).require_only((), "an .onnx file")
        return OnnxWhole(file, input_shapes)
    if find_spec("tflite") is None:
        raise missing("tflite")
    from tinyai.frontends.tflite.cut import TFLiteWhole

    return TFLiteWhole(file, signature, input_shapes)


def _require_known(whole: CuttableFile, names: Iterable[str], what: str) -> None:
    made = [name for operator in whole.operators for name in operator.makes]
    known = [*whole.inputs, *made] if what == "inputs" else made
    for name in names:
        if name not in known:
            raise OptionError(
                f"{what} of a part",
                found=safe(name),
                allowed=f"a value that an operator of the file makes{safe(such_as(name, known))}",
                hint="tinyai explain FILE, or Netron, shows the names",
            )


def _require_needed(begins: Iterable[str], ends: Sequence[str], read: Collection[str]) -> None:
    unneeded = [name for name in begins if name not in read or name in ends]
    if unneeded:
        raise OptionError(
            "inputs of a part",
            found=safe(", ".join(unneeded)),
            allowed=safe(f"values that {', '.join(ends) or 'outputs'} are computed of", 240),
        )


def _following(operators: Sequence[NamedOperator], begins: Iterable[str]) -> set[str]:
    """What is computed of ``begins``."""
    found = {*begins}
    for operator in operators:
        if not found.isdisjoint(operator.reads):
            found.update(operator.makes)
    return found.difference(begins)


def _needed(
    operators: Sequence[NamedOperator], begins: Collection[str], ends: Iterable[str]
) -> tuple[list[int], set[str]]:
    """The places of the operators that ``ends`` are computed by where ``begins`` are given, and
    the names of what is read, the ends among them."""
    read, kept = {*ends}, []
    for place in reversed(range(len(operators))):
        if not read.difference(begins).isdisjoint(operators[place].makes):
            kept.append(place)
            read.update(operators[place].reads)
    return kept[::-1], read


def _largest(whole: CuttableFile, file: Path, *, fixed: bool) -> tuple[list[str], list[str]]:
    """Between which values the largest part lies that has no operator that stays out: the whole
    where none does, and its shapes became ``fixed``."""
    barred, work = _barred_and_work(whole.read())
    live = [whole.operators[place] for place in _needed(whole.operators, (), whole.outputs)[0]]
    known, parts = _parts_between(live, barred, whole.inputs)
    if fixed and not barred:
        return [*whole.inputs], [*whole.outputs]
    if not barred or not parts:
        raise OptionError(
            "model to cut",
            found=safe(f"{file.name}: {'no' if barred else 'every'} operator becomes integers"),
            allowed="some that do and some that do not, or names of inputs and outputs",
            hint="--inputs and --outputs, in Python inputs= and outputs=",
        )
    part = max(
        parts, key=lambda part: (sum(work.get(operator.name, 0) for operator in part), len(part))
    )
    made = {name for operator in part for name in operator.makes}
    inside = {*map(id, part)}
    used = {name for operator in live if id(operator) not in inside for name in operator.reads}
    read = dict.fromkeys(name for operator in part for name in operator.reads)
    return (
        [name for name in read if name in known and name not in made],
        [name for operator in part for name in operator.makes if name in {*used, *whole.outputs}],
    )


def _barred_and_work(model: SourceModel) -> tuple[set[str], dict[str, int]]:
    """The names of the operators that stay out where the others become integers, and how many
    multiply-accumulates operators have, by name."""
    calls = [each for each in post_order(model.result) if isinstance(each, Call)]
    work: dict[str, int] = {}
    for call in calls:
        work[call.name] = work.get(call.name, 0) + (macs(call) or 0)
    barred = {call.name for call in calls if isinstance(call.origin, Unread)}
    attempt = attempt_of(model, "network", Rounding("upward"))
    if not attempt.floats:  # of a float model, as of floats beside pairs, all are refused
        kept = attempt.refused.items()
        barred |= {call.name for call, row in kept if row.hint != QUANTIZE_THE_REST}
    return barred, work


def _parts_between(
    operators: Sequence[NamedOperator], barred: Collection[str], inputs: Iterable[str]
) -> tuple[Collection[str], Collection[list[NamedOperator]]]:
    """The values that depend on inputs, and the parts that have no barred operator.

    An operator's depth is the largest number of barred ones on a way to it. What has one depth is a
    part: whatever lies between two operators of it has the same.
    """
    depths = dict.fromkeys(inputs, 0)
    parts: dict[int, list[NamedOperator]] = {}
    for operator in operators:
        before = [depths[name] for name in operator.reads if name in depths]
        if before:
            depth, is_barred = max(before), operator.name in barred
            depths.update(dict.fromkeys(operator.makes, depth + is_barred))
            if not is_barred:
                parts.setdefault(depth, []).append(operator)
    return depths, parts.values()
