"""The lowered graph: what each step decides of a small graph, and the rules of its verifier."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from tests.support.example_graphs import Qnn
from tinyai.codegen.borders import with_borders
from tinyai.codegen.concatenate_in_place import plan_in_place
from tinyai.codegen.isa import variants_of
from tinyai.codegen.isa.portable.generic import VARIANT as GENERIC
from tinyai.codegen.kernels import KERNELS, choose_kernels
from tinyai.codegen.lowered import KernelChoice, Lowered, Prepared, print_lowered, verify_lowered
from tinyai.codegen.placed import Storage, Subview
from tinyai.codegen.schedules import with_schedules
from tinyai.codegen.shapes.schedule import Schedule, Tile
from tinyai.errors import GraphError
from tinyai.ir import Builder, DType, Graph, Type, operand_tensors, print_graph, verify
from tinyai.ops import Concatenate, Conv2d, Elementwise, Reshape, Transpose
from tinyai.ops.steps import Relu
from tinyai.ops.window import Window
from tinyai.passes import optimize
from tinyai.target import Target
from tinyai.traits import Border

IMAGE = Type((1, 4, 4, 8), DType.INT8)
BY_NAME = {kernel.name: kernel for kernel in KERNELS}


def network() -> Qnn:
    return Qnn(Builder("g"), "NHWC", np.random.default_rng(0))


def chosen(graph: Graph, isa: str = "generic", threads: int = 1) -> Lowered:
    return choose_kernels(verify(graph), Target(isa=isa, threads=threads))


def scheduled(graph: Graph) -> Lowered:
    return with_schedules(chosen(graph), {})


def placed(graph: Lowered) -> Lowered:
    return plan_in_place(with_borders(graph))[0]


def decisions(graph: Lowered) -> str:
    """What is printed below the graph."""
    return print_lowered(graph).removeprefix(f"{print_graph(graph)}\n")


def assert_decides(graph: Lowered, expected: str) -> None:
    assert decisions(verify_lowered(graph)) == textwrap.dedent(expected).strip()


def in_a_row(*, window: int = 3, between: bool = False) -> Graph:
    """A convolution, and one that reads its result by windows of this size; between them a
    reshape, if wanted."""
    net = network()
    made = net.conv(net.builder.input(IMAGE), 16, 1, "first")
    if between:
        made = net.builder.add(Reshape((1, 2, 8, 16)), [made])
    return net.builder.graph([net.conv(made, 16, window, "second")])


def joined(axis: int, *, window: int = 1) -> Graph:
    """Two convolutions, joined along an axis, and one that reads the result."""
    net = network()
    image = net.builder.input(IMAGE)
    sides = [net.conv(image, 32, 1, "left"), net.conv(image, 32, 1, "right")]
    both = net.builder.add(Concatenate(axis), sides)
    return net.builder.graph([net.conv(both, 16, window, "last")])


# --- What the steps decide -----------------------------------------------------------------------


def test_a_row_serves_each_node_in_each_section_and_better_ones_say_what_they_lack() -> None:
    b = Builder("g")
    x = b.input(Type((1, 4, 4, 8), DType.INT16))
    weight = b.constant(np.ones((16, 1, 1, 8), np.int8))
    graph = chosen(b.graph([b.add(Conv2d(Window((1, 1))), [x, weight])]), "auto")
    assert tuple(graph.variants) == variants_of(Target())
    for isa, rows in graph.variants.items():
        choice = rows["t2"]
        tiled = isa.rows[-2]  # not that of AMX, whose tiles are instead of these
        best = "scalar" if tiled == "generic" else tiled
        assert choice.kernel.name == f"conv2d_patches_{best}"
        assert choice.rejected == (f"conv2d_tile_{tiled} rejected: data of int16",)


def test_code_is_for_several_threads_where_a_kernel_shares_its_work() -> None:
    b = Builder("g")
    b.add(Elementwise(IMAGE.shape), [b.input(IMAGE)], (Relu(),))
    assert chosen(b.graph(["t1"]), "scalar", threads=3).threads == 1
    assert chosen(in_a_row(), threads=3).threads == 3


def test_a_layer_whose_kernel_leaves_a_choice_gets_the_cheapest_schedule() -> None:
    assert_decides(
        scheduled(in_a_row(between=True)),
        """
        lowered for 1 thread(s) {
          %t3: generic: conv2d_tile_generic; cut into tiles 8x16, stripes of 16 outputs, windows written out
          %t4: generic: reshape_scalar
          %t7: generic: conv2d_tile_generic; cut into tiles 8x16, stripes of 16 outputs, windows in a loop
        }
        """,  # noqa: E501
    )


def test_a_schedule_that_is_given_goes_before_the_cheapest() -> None:
    given = Schedule((Tile(4, 16),), 8, unrolled=False)
    graph = with_schedules(chosen(in_a_row()), {}, {"t6": given})
    assert graph.schedules["t6"] == given != graph.schedules["t3"]


def test_an_image_gets_the_border_that_windows_read() -> None:
    graph = with_borders(scheduled(in_a_row()))
    assert_decides(
        graph,
        """
        lowered for 1 thread(s) {
          %t3: generic: conv2d_tile_generic; cut into tiles 8x16, stripes of 16 outputs, windows written out; stored with a border of 1 1 1 1 around it, all 0
          %t6: generic: conv2d_tile_generic; cut into tiles 8x16, stripes of 16 outputs, windows written out
        }
        """,  # noqa: E501
    )
    image = graph.stored("t3")
    assert (image.strides, image.first) == ((6 * 6 * 16, 6 * 16, 16, 1), 7 * 16)
    assert image.bytes == 6 * 6 * 16 + 128


@pytest.mark.parametrize(
    "graph",
    [in_a_row(window=1), in_a_row(between=True)],
    ids=["no window reaches over the edge", "the reader cannot"],
)
def test_an_image_without_a_use_for_a_border_has_none(graph: Graph) -> None:
    lowered = scheduled(graph)
    assert decisions(with_borders(lowered)) == decisions(lowered)


def test_an_image_that_is_added_to_sums_of_windows_needs_no_border_of_theirs() -> None:
    """It had one, which may be no value of its type."""
    net = network()
    image = net.conv(net.builder.input(IMAGE), 16, 1, "first")
    other = net.conv(image, 16, 1, "second")
    total = net.residual(net.conv(other, 16, 3, "third"), image)
    wide = net.conv(total, 512, 1, "wide")  # of which the arena has to hold more
    graph = optimize(net.builder.graph([net.conv(wide, 16, 1, "last")]))
    (reader,) = (node for node in graph.nodes if image in operand_tensors(node.epilogue))
    assert isinstance(reader.op, Conv2d)
    bordered = with_borders(scheduled(graph)).storage
    assert other in bordered
    assert image not in bordered


@pytest.mark.parametrize("channels", [3, 20])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
def test_a_transposed_image_gets_a_border_where_its_reader_turns_no_signs(
    dtype: DType, channels: int
) -> None:
    builder = Builder("g")
    planes = builder.input(Type((1, channels, 20, 20), dtype))
    image = builder.add(Transpose((0, 2, 3, 1)), [planes])
    weight = builder.constant(np.ones((16, 3, 3, channels), np.int8))
    window = Window((3, 3), padding=(1, 1, 1, 1))
    graph = builder.graph([builder.add(Conv2d(window), [image, weight])])
    lowered = with_borders(with_schedules(chosen(graph, "avx512vnni"), {}))
    assert (image in lowered.storage) is (dtype is DType.UINT8)
    verify_lowered(lowered)


def test_kernels_without_a_form_for_borders_read_copies() -> None:
    lowered = chosen(in_a_row(), "scalar")
    assert not with_borders(lowered).storage


def test_inputs_of_a_concatenation_are_parts_of_its_result() -> None:
    stretch = Storage(Type((1, 4, 4, 32), DType.INT8), subview=Subview("t7", 0, (1024, 128, 32, 1)))
    channels = Storage(
        Type((1, 4, 4, 32), DType.INT8), subview=Subview("t7", 0, (1024, 256, 64, 1))
    )

    def second(of: Storage, offset: int) -> Storage:
        assert of.subview
        return replace(of, subview=replace(of.subview, offset=offset))

    for axis, first, offset in ((1, stretch, 4 * 128), (3, channels, 32)):
        graph = placed(scheduled(joined(axis)))
        assert graph.storage == {"t3": first, "t6": second(first, offset)}
        assert (first.dense, first.plain) == (axis == 1, axis == 1)
        assert graph.copied(graph.makers["t7"]) == []


def test_parts_lie_inside_of_the_border_of_the_whole() -> None:
    assert_decides(
        placed(scheduled(joined(3, window=3))),
        """
        lowered for 1 thread(s) {
          %t3: generic: conv2d_tile_generic; cut into tiles 8x32, stripes of 16 outputs, windows written out; stored in %t7 from byte 448, strides (2304, 384, 64, 1)
          %t6: generic: conv2d_tile_generic; cut into tiles 8x32, stripes of 16 outputs, windows written out; stored in %t7 from byte 480, strides (2304, 384, 64, 1)
          %t7: generic: concatenate_scalar; stored with a border of 1 1 1 1 around it, all 0
          %t10: generic: conv2d_tile_generic; cut into tiles 8x16, stripes of 16 outputs, windows in a loop
        }
        """,  # noqa: E501
    )


def test_makers_and_readers_are_known_however_tensors_are_stored() -> None:
    graph = placed(scheduled(joined(3)))
    assert graph.makers["t7"].inputs == ("t3", "t6")
    assert [node.output for node in graph.readers["in0"]] == ["t3", "t6"]


def test_a_lowered_graph_cannot_be_changed() -> None:
    graph = chosen(in_a_row())
    with pytest.raises(FrozenInstanceError):
        graph.threads = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.storage["t3"] = Storage(IMAGE)  # type: ignore[index]


# --- What the verifier refuses -------------------------------------------------------------------

AROUND = Border(1, 1, 1, 1, 0)


def rows(kernel: str, *outputs: str) -> Callable[[Lowered], Lowered]:
    """These nodes, or all of them, get another row."""

    def changed(graph: Lowered) -> Lowered:
        row, found = BY_NAME[kernel], dict(graph.variants[GENERIC])
        for name in outputs or graph.makers:
            node, fits = graph.makers[name], row.op is type(graph.makers[name].op)
            prepared = row.prepare(graph, node) if fits else found[name].prepared
            assert isinstance(prepared, Prepared)
            found[name] = KernelChoice(row, prepared)
        return replace(graph, variants={GENERIC: found})

    return changed


def bordered(name: str, border: Border = AROUND) -> Callable[[Lowered], Lowered]:
    return lambda graph: graph.with_storage({name: Storage(graph.type(name), border)})


def subview(name: str = "t6", **change: object) -> Callable[[Lowered], Lowered]:
    """The tensor in another place than its own."""

    def changed(graph: Lowered) -> Lowered:
        place = Subview("t7", 480, (2304, 384, 64, 1))
        return graph.with_storage(
            {name: Storage(graph.type(name), subview=replace(place, **change))}
        )  # type: ignore[arg-type]

    return changed


def without_rows_of(name: str) -> Callable[[Lowered], Lowered]:
    def changed(graph: Lowered) -> Lowered:
        left = {output: row for output, row in graph.variants[GENERIC].items() if output != name}
        return replace(graph, variants={GENERIC: left})

    return changed


def without_schedule_of(name: str) -> Callable[[Lowered], Lowered]:
    def changed(graph: Lowered) -> Lowered:
        choice = graph.variants[GENERIC][name]
        uncut = replace(choice, prepared=replace(choice.prepared, schedule=None))
        return replace(graph, variants={GENERIC: graph.variants[GENERIC] | {name: uncut}})

    return changed


WRONG = {
    "a node without a row": (without_rows_of("t7"), "kernels of generic", "%t7"),
    "a row of another operator": (
        rows("conv2d_tile_generic", "t7"),
        "kernel of %t7 for generic",
        "conv2d_tile_generic, for conv2d on generic",
    ),
    "a row of another instruction set": (
        rows("conv2d_tile_avx2", "t3"),
        "kernel of %t3 for generic",
        "conv2d_tile_avx2, for conv2d on avx2",
    ),
    "a choice without a schedule": (without_schedule_of("t10"), "schedule of %t10", "none"),
    "a border around an input": (bordered("in0"), "storage of %in0", "not made by a node"),
    "a border around an output": (bordered("t10"), "storage of %t10", "an output"),
    "storage of nothing": (
        lambda graph: graph.with_storage({"t99": Storage(IMAGE, AROUND)}),
        "storage of %t99",
        "not made by a node",
    ),
    "storage of another type": (
        lambda graph: graph.with_storage({"t7": Storage(IMAGE, AROUND)}),
        "storage of %t7",
        "int8[1,4,4,8]",
    ),
    "a border and a subview": (
        lambda graph: graph.with_storage({"t6": replace(graph.stored("t6"), border=AROUND)}),
        "storage of %t6",
        "a border and a subview",
    ),
    "a border that its type cannot hold": (
        bordered("t7", replace(AROUND, value=128)),
        "storage of %t7",
        "a border of 128",
    ),
    "a border of less than nothing": (
        bordered("t7", replace(AROUND, left=-1)),
        "storage of %t7",
        "int8[1,4,4,64]",
    ),
    "a border that its reader cannot read": (
        bordered("t3"),
        "storage of %t3",
        "read by %t7: concatenate_scalar",
    ),
    "a subview that its maker cannot write": (
        rows("conv2d_patches_scalar", "t3"),
        "storage of %t3",
        "written by %t3: conv2d_patches_scalar",
    ),
    "a subview of nothing": (subview(whole="t99"), "storage of %t6", "in %t99"),
    "a subview of what joins nothing": (subview(whole="t3"), "storage of %t6", "in %t3"),
    "a subview in the border of its whole": (
        subview(offset=447),
        "storage of %t6",
        "bytes 447 to 1823",
    ),
    "a subview that ends after its whole": (
        subview(offset=481),
        "storage of %t6",
        "bytes 481 to 1857",
    ),
    "a subview with too few strides": (subview(strides=(64, 1)), "storage of %t6", "2 strides"),
    "a subview where nobody expects it": (subview(offset=448), "storage of %t6", "no reader"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_decision_that_breaks_a_rule_is_refused_with_what_was_found(name: str) -> None:
    change, what, found = WRONG[name]
    graph = verify_lowered(placed(scheduled(joined(3, window=3))))
    with pytest.raises(GraphError) as raised:
        verify_lowered(change(graph))
    assert raised.value.what.startswith(what)
    assert found in str(raised.value.found)
