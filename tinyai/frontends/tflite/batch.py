"""Another batch than the one that a .tflite file says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tinyai.errors import OptionError
from tinyai.frontends.faults import check_shape, shown
from tinyai.frontends.shapes import Shapes, check_asked
from tinyai.frontends.tflite.file import File, FileOperator
from tinyai.frontends.tflite.tensors import FileTensor


def set_shapes(file: File, shapes: Shapes) -> None:
    """Give inputs other first dimensions, and with them every tensor that is computed from their
    values. Whether that is their batch too each reader and builder finds out: one whose result has
    another shape then refuses its operator.

    Raises ``OptionError`` for shapes of other inputs, for other sizes than the batch, and for more
    than one batch; ``Fault`` where a tensor becomes too large.
    """
    named = {file.tensors[index].name: index for index in file.inputs}
    check_asked(shapes, {name: file.tensors[index].shape for name, index in named.items()})
    whole = {
        named[name]: _whole(file.tensors[named[name]], sizes) for name, sizes in shapes.items()
    }
    other = {index: to for index, to in whole.items() if to != file.tensors[index].shape}
    batches = {to[0] for to in other.values()}
    if len(batches) > 1:
        raise OptionError("input shapes", found=f"batches of {batches}", allowed="one batch")
    for batch in batches:
        for index in _computed_from(other, file.operators):
            of = file.tensors[index]
            if of.shape[:1] == (1,) and of.value is None:
                to = (batch, *of.shape[1:])
                check_shape(f"tensor {of.name!r}", to, 8)
                file.tensors[index] = replace(of, type=replace(of.type, shape=to))
                file.batched.add(index)


def _whole(of: FileTensor, sizes: Iterable[int]) -> tuple[int, ...]:
    """The shape that is asked for: the tensor's own, but for the batch, where the file has 1."""
    to = tuple(own if size < 0 else size for own, size in zip(of.shape, sizes, strict=True))
    if to == of.shape or (of.shape[0] == 1 and to[1:] == of.shape[1:]):
        return to
    raise OptionError(
        "input shapes",
        found=f"{of.name}:{shown(to)}",
        allowed=f"{shown(of.shape)} of the file, with another batch where that is 1",
        hint="convert the model again, for inputs of this size",
    )


def _computed_from(inputs: Iterable[int], operators: Iterable[FileOperator]) -> set[int]:
    """The tensors whose values come from ``inputs``, and not from their shapes alone."""
    found = {*inputs}
    for operator in operators:
        if operator.kind != "SHAPE" and not found.isdisjoint(operator.inputs):
            found.update(operator.outputs)
    return found
