"""Another batch than the one that a .tflite file says."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tinyai.errors import OptionError, UsageWarning
from tinyai.frontends.faults import check_shape, shown
from tinyai.frontends.shapes import Shapes, check_asked
from tinyai.frontends.tflite.file import File, FileOperator
from tinyai.frontends.tflite.tensors import FileTensor
from tinyai.safe_text import safe
from tinyai.source import require

# Operators along the axes that their second input names.
_ALONG_AXES = {"REVERSE_V2", "CUMSUM", "ARG_MAX", "ARG_MIN", "MEAN", "SUM"}
_ALONG_AXES |= {"REDUCE_MAX", "REDUCE_MIN"}
# Operators of which the shape of a value is all that counts.
_OF_SHAPES = {"SHAPE", "RANK"}


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


def tell_open_shapes(model: Any, file: File) -> None:
    """Warn of an input that has a size of 1 in the place of one that the file leaves open, behind
    the batch: images of one pixel, or sequences of one word, are not what anybody means."""
    for index in file.inputs:
        signature = model.Subgraphs(0).Tensors(index).ShapeSignatureAsNumpy()
        of = file.tensors[index]
        named = [] if isinstance(signature, int) else [int(size) for size in signature]
        if len(named) != len(of.shape) or not any(
            said < 0 and size == 1 for said, size in zip(named[1:], of.shape[1:], strict=True)
        ):
            continue
        sizes = ["?" if size < 0 else str(size) for size in named]
        warnings.warn(
            UsageWarning(
                f"shape of input {safe(of.name)}",
                found=f"[{', '.join(sizes)}], taken as {shown(of.shape)}",
                allowed="fixed dimensions",
                hint=f"tinyai cut FILE -o FIXED.tflite --input-shapes {safe(of.name)}:"
                f"{'x'.join(map(str, of.shape))}, with your sizes",
            ),
            stacklevel=4,
        )


def require_own_images(file: File, operator: FileOperator) -> None:
    """Refuse an operator along the images of a batch that the file does not have: it would mix
    them, or pick some, where it worked on one."""
    data, axes, *_ = (*operator.inputs, -1, -1)
    if operator.kind not in _OF_SHAPES and not file.batched.isdisjoint(operator.inputs):
        alone = [file.tensors[n].shape for n in operator.outputs if n not in file.batched]
        require(not alone, "result", alone, "one for each image: the batch is not the file's")
    if operator.kind in _ALONG_AXES and data in file.batched and axes >= 0:
        rank, known = len(file.tensors[data].shape), file.tensors[axes].value
        named = [] if known is None else [int(axis) % rank for axis in known.reshape(-1)]
        require(0 not in named, "axes", named, "those of an image: the batch is not the file's")


def _whole(of: FileTensor, sizes: Iterable[int]) -> tuple[int, ...]:
    """The shape that is asked for: the tensor's own, but for the batch, where the file has 1."""
    to = tuple(own if size < 0 else size for own, size in zip(of.shape, sizes, strict=True))
    if to == of.shape or (of.shape[0] == 1 and to[1:] == of.shape[1:]):
        return to
    raise OptionError(
        "input shapes",
        found=f"{of.name}:{shown(to)}",
        allowed=f"{shown(of.shape)} of the file, with another batch where that is 1",
        hint="tinyai cut FILE -o FIXED.tflite --input-shapes ..., which writes it for this size",
    )


def _computed_from(inputs: Iterable[int], operators: Iterable[FileOperator]) -> set[int]:
    """The tensors whose values come from ``inputs``, and not from their shapes alone."""
    found = {*inputs}
    for operator in operators:
        if operator.kind not in _OF_SHAPES and not found.isdisjoint(operator.inputs):
            found.update(operator.outputs)
    return found
