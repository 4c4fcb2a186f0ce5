"""Images whose channels come in planes are quantized while they are transposed."""

from __future__ import annotations

import numpy as np

from tests.support.pass_graphs import Small, add, assert_becomes
from tinyai.ir import DType, Graph, Operand, Step, Type
from tinyai.ops import Elementwise, Interleave, Transpose
from tinyai.ops.steps import Cast, Clip, Divide, Round
from tinyai.passes import interleave_planes, optimize

TURN = Transpose((0, 2, 3, 1))
FLOAT = DType.FLOAT32


def quantize(b: Small, to: DType = DType.UINT8) -> tuple[Step, ...]:
    scale = b.constant(np.array(0.5, np.float32))
    return Divide(operand=Operand(scale)), Round("even"), Clip(*to.range), Cast(to)


def turned(
    b: Small, shape: tuple[int, ...], *steps: Step, turn: Transpose = TURN, dtype: DType = FLOAT
) -> tuple[str, str]:
    """The names of a tensor with steps, and of its transposition."""
    narrow = b.add(Elementwise(shape), [b.input(Type(shape, dtype))], steps, ("entry",))
    return narrow, b.add(turn, [narrow], (), ("conv",))


def stays(graph: Graph) -> bool:
    return str(interleave_planes(graph)) == str(graph)


def test_colours_become_channels_of_pixels_on_the_way_to_8_bits() -> None:
    b = Small()
    _, image = turned(b, (1, 3, 4, 5), *quantize(b))
    assert_becomes(
        interleave_planes,
        b.graph([image]),
        """
        %t3: uint8[1,4,5,3] = interleave(axis=1) [%in1] >> divide(%c0) >> round(even)\
 >> clip(0, 255) >> cast(uint8)  # entry, conv
        """,
    )


def test_planes_of_images_without_a_batch_and_of_sounds_too() -> None:
    for shape, turn, axis in (
        ((2, 4, 5), Transpose((1, 2, 0)), 0),
        ((1, 2, 50), Transpose((0, 2, 1)), 1),
        ((8, 50), Transpose((1, 0)), 0),
    ):
        b = Small()
        graph = interleave_planes(b.graph([turned(b, shape, *quantize(b), turn=turn)[1]]))
        assert [node.op for node in graph.nodes] == [Interleave(axis)]


def test_many_planes_other_orders_and_other_types_stay() -> None:
    shape = (1, 3, 4, 5)
    for case, turn, dtype in (
        ((1, 9, 4, 5), TURN, FLOAT),
        ((1, 1, 4, 5), TURN, FLOAT),
        (shape, Transpose((0, 3, 2, 1)), FLOAT),
        (shape, Transpose((0, 1, 3, 2)), FLOAT),
        (shape, Transpose((0, 1, 2, 3)), FLOAT),
    ):
        b = Small()
        steps = quantize(b)
        assert stays(b.graph([turned(b, case, *steps, turn=turn, dtype=dtype)[1]])) == (
            (case, turn) != (shape, Transpose((0, 1, 3, 2)))
        )
    b = Small()
    assert stays(b.graph([turned(b, shape, Cast(DType.INT16), dtype=DType.INT8)[1]]))
    b = Small()
    assert stays(b.graph([turned(b, shape, *quantize(b)[:2])[1]]))  # still floats


def test_what_others_read_and_numbers_of_channels_stay() -> None:
    b = Small()
    assert stays(b.graph([*turned(b, (1, 3, 4, 5), *quantize(b))]))
    b = Small()
    channels = b.constant(np.arange(3, dtype=np.float32).reshape(3, 1, 1))
    assert stays(b.graph([turned(b, (1, 3, 4, 5), add(channels), *quantize(b))[1]]))


def test_the_pipeline_leaves_one_node_in_front_of_a_convolution() -> None:
    b = Small()
    _, image = turned(b, (1, 2, 4, 4), *quantize(b, DType.INT8))
    graph = optimize(b.graph([b.conv(image)]))
    assert isinstance(graph.nodes[0].op, Interleave)
    assert len(graph.nodes) == 2
