"""A transposed convolution becomes plain convolutions, one for each phase of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tinyai.ir import (
    Array,
    DType,
    Graph,
    Node,
    Op,
    Operand,
    Step,
    Tensor,
    Type,
    every_step,
    step_types,
    unused_name,
)
from tinyai.ops import Concatenate, Conv2d, Reshape
from tinyai.ops.window import NHWC, Window
from tinyai.passes.drop_channels import channels_of

CHANNELS = 3  # of NHWC


def separate_phases(graph: Graph) -> Graph:
    """The graph without convolutions of spread images, where these are channels-last, in one group
    and with constant weights.

    Of an image that is spread by ``s`` rows, the results of rows ``s*q + p`` of one *phase* ``p``
    see the same rows of the weights, and with them neighbouring rows of the image: a convolution
    of the image as it is. The phases of the columns see windows that overlap, so that one
    convolution computes them as channels: ``[n, q, columns, phases * channels]`` has the memory of
    ``[n, q, columns * phases, channels]``. The phases of the rows lie between each other's rows,
    where the concatenation lets them be written.
    """
    separating = _Separating(graph)
    for node in graph.nodes:
        separating.take(node)
    return replace(
        graph,
        nodes=tuple(separating.nodes),
        tensors=separating.tensors,
        constants=separating.constants,
    )


@dataclass(frozen=True)
class _Taps:
    """The window of the image that some phases of one dimension see together: its ``size``, how far
    it reaches ``before`` the image and ``after`` it; and for each phase its elements of the kernel,
    each with its place in the window."""

    size: int
    before: int
    after: int
    places: tuple[tuple[tuple[int, int], ...], ...]

    @classmethod
    def of(
        cls, window: Window, axis: int, image: int, results: int, phases: Iterable[int]
    ) -> _Taps:
        """Of windows that take ``results`` places of an image."""
        spread, padding = window.upsample[axis], window.padding[axis]
        seen = [
            [
                ((phase + tap - padding) // spread, tap)
                for tap in range(window.kernel[axis])
                if (phase + tap - padding) % spread == 0
            ]
            for phase in phases
        ]
        offsets = [0, *(offset for each in seen for offset, _ in each)]
        before = -min(offsets)
        # Elements of the image that no window sees get weights of zero.
        size = max(max(offsets) + before + 1, image + before - results + 1)
        places = tuple(tuple((offset + before, tap) for offset, tap in each) for each in seen)
        return cls(size, before, results - 1 + size - image - before, places)


class _Separating:
    """The nodes of a graph so far, each transposed convolution taken apart."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes: list[Node] = []
        self.tensors, self.constants = dict(graph.tensors), dict(graph.constants)

    def take(self, node: Node) -> None:
        op = node.op
        if not isinstance(op, Conv2d) or not self._fits(node, op):
            self.nodes.append(node)
            return
        _, height, width, _ = self._graph.type(node.inputs[0]).shape
        n, rows, columns, channels = self._graph.type(node.output).shape
        (down, along), kernel = op.window.upsample, op.window.kernel
        across = _Taps.of(op.window, 1, width, columns // along, range(along))
        each = [_Taps.of(op.window, 0, height, rows // down, [p]) for p in range(down)]
        if sum(taps.size for taps in each) * across.size >= down * kernel[0] * kernel[1]:
            self.nodes.append(node)  # windows that hardly overlap: nothing is saved
            return
        epilogue = tuple(self._step(step, along, channels) for step in node.epilogue)
        node = replace(node, epilogue=epilogue)
        parts = [self._phase(node, op, taps, across) for taps in each]
        of = self.tensors[parts[0]].type.shape
        if down > 1:
            apart = Reshape((*of[:2], 1, *of[2:]))
            parts = [self._moved(node, apart, [part]) for part in parts]
            parts = [self._moved(node, Concatenate(2), parts)]
        whole = Reshape((n, rows, columns, channels))
        self.nodes.append(replace(node, op=whole, inputs=tuple(parts), epilogue=()))

    def _phase(self, node: Node, op: Conv2d, rows: _Taps, columns: _Taps) -> str:
        """The convolution of one phase of the rows."""
        padding = (rows.before, columns.before, rows.after, columns.after)
        op = replace(op, window=Window((rows.size, columns.size), padding=padding))
        weights = _weights(self.constants[node.inputs[1]], rows, columns)
        return self._add(replace(node, op=op, inputs=(node.inputs[0], self._constant(weights))))

    def _fits(self, node: Node, op: Conv2d) -> bool:
        """Whether a node is a transposed convolution that can be taken apart."""
        window = op.window
        plain = window.strides == window.dilation == (1, 1) != window.upsample
        if not plain or op.layout != NHWC or op.groups > 1 or node.inputs[1] not in self.constants:
            return False
        _, *size, _ = self._graph.type(node.output).shape
        whole = all(count % far == 0 for count, far in zip(size, window.upsample, strict=True))
        return whole and all(map(self._repeats, every_step(node.epilogue)))

    def _repeats(self, step: Step) -> bool:
        """Whether a step's numbers are those of channels, so that neighbours can repeat them."""
        if step.keeps_channels or step.along not in (None, CHANNELS):
            return False
        if step.operand is None:
            return True
        value = self.constants.get(step.operand.tensor)
        return value is not None and value.size == channels_of(value)

    def _step(self, step: Step, times: int, channels: int) -> Step:
        """A step with the numbers of the channels so many times."""
        if step.along is not None:
            step = step.with_elements([*range(channels)] * times, CHANNELS)

        def repeated(operand: Operand) -> Operand:
            name, value = operand.tensor, self.constants[operand.tensor]
            if value.size > 1:
                name = self._constant(np.tile(value, times))
            return Operand(name, tuple(self._step(each, times, channels) for each in operand.steps))

        return step.with_operand(repeated)

    def _moved(self, node: Node, op: Op, inputs: list[str]) -> str:
        return self._add(replace(node, op=op, inputs=tuple(inputs), epilogue=()))

    def _add(self, node: Node) -> str:
        """Append a node, whose result is a new tensor."""
        computed = node.op.infer(*(self.tensors[name].type for name in node.inputs))
        dtype = step_types(computed.dtype, node.epilogue)[-1]
        output = self._tensor(Type(computed.shape, dtype))
        self.nodes.append(replace(node, output=output))
        return output

    def _constant(self, value: Array) -> str:
        value.setflags(write=False)
        name = self._tensor(Type(value.shape, DType(value.dtype.name)))
        self.constants[name] = value
        return name

    def _tensor(self, of: Type) -> str:
        name = unused_name("t", self.tensors)
        self.tensors[name] = Tensor(name, of)
        return name


def _weights(weights: Array, rows: _Taps, columns: _Taps) -> Array:
    """[channels, kernel…, in] -> [phases of the columns * channels, window…, in], for one phase of
    the rows; 0 where a phase does not see the window."""
    channels, *_, read = weights.shape
    found = np.zeros((len(columns.places), channels, rows.size, columns.size, read), weights.dtype)
    for phase, along in enumerate(columns.places):
        for y, row in rows.places[0]:
            for x, column in along:
                found[phase, :, y, x] = weights[:, row, column]
    return found.reshape(-1, *found.shape[2:])
