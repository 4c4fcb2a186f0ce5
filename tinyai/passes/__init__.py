"""Passes over the graph: each takes a ``Graph`` and returns a new one; the graph is verified after
each of them."""

from __future__ import annotations

from collections.abc import Mapping

from tinyai.ir import Graph, verify
from tinyai.passes.drop_channels import drop_channels
from tinyai.passes.drop_copies import drop_copies
from tinyai.passes.drop_idle_steps import drop_idle_steps
from tinyai.passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from tinyai.passes.fold_constants import fold_constants
from tinyai.passes.fold_pads import fold_pads
from tinyai.passes.fuse_epilogues import fuse_epilogues
from tinyai.passes.interleave_planes import interleave_planes
from tinyai.passes.make_tables import make_tables
from tinyai.passes.make_unsigned import make_unsigned
from tinyai.passes.merge_permutes import merge_permutes
from tinyai.passes.narrow_steps import narrow_steps
from tinyai.passes.narrow_transposes import narrow_transposes
from tinyai.passes.permute import permute
from tinyai.passes.remove_unused import remove_unused
from tinyai.passes.rules import Fact, Pass, Rule, check_order
from tinyai.passes.separate_phases import separate_phases
from tinyai.passes.sink_reshapes import sink_reshapes
from tinyai.passes.sink_widening import sink_widening
from tinyai.passes.split_tables import split_tables
from tinyai.passes.tabulate_functions import tabulate_functions

PIPELINE: tuple[Pass, ...] = (
    fold_constants,
    eliminate_common_subexpressions,
    tabulate_functions,
    remove_unused,
    sink_reshapes,
    # Again, for reshapes of one tensor for several operands.
    eliminate_common_subexpressions,
    remove_unused,
    fold_pads,
    fuse_epilogues,
    permute,
    merge_permutes,
    narrow_transposes,
    # Again, for nodes that transpositions of the source model kept apart.
    fuse_epilogues,
    sink_widening,
    drop_copies,
    narrow_steps,
    drop_channels,
    separate_phases,
    interleave_planes,
    make_tables,
    split_tables,
    remove_unused,
)
# What has to hold of a graph before a pass, what holds after it, and what may hold no longer. What
# is not named stays as it was; at first of what passes name only ``APART`` and ``OPEN`` hold.
RULES: Mapping[Pass, Rule] = {
    fold_constants: Rule(makes={Fact.KNOWN}, ends={Fact.USED}),
    # Equal constants make equal nodes.
    eliminate_common_subexpressions: Rule(
        needs={Fact.KNOWN}, makes={Fact.UNIQUE}, ends={Fact.USED}
    ),
    tabulate_functions: Rule(needs={Fact.APART}, makes={Fact.TABULATED}, ends={Fact.USED}),
    # A function whose parts are on both sides of a reshape is no table.
    sink_reshapes: Rule(needs={Fact.TABULATED, Fact.USED}, ends={Fact.UNIQUE, Fact.USED}),
    remove_unused: Rule(makes={Fact.USED}),
    fold_pads: Rule(makes={Fact.PADDED}),
    # A value with two equal users, or one that nobody asks for, would be stored for both.
    fuse_epilogues: Rule(
        needs={Fact.UNIQUE, Fact.USED, Fact.TABULATED}, makes={Fact.FUSED}, ends={Fact.APART}
    ),
    # Only what is stored can be transposed on the way. Where an output that depends on no input is
    # transposed, what is in front of that could be a constant.
    permute: Rule(needs={Fact.FUSED, Fact.PADDED}, makes={Fact.PERMUTED}, ends={Fact.KNOWN}),
    # Nodes that a transposition of the source model kept apart meet.
    merge_permutes: Rule(needs={Fact.PERMUTED}, makes={Fact.CHANNELS_LAST}, ends={Fact.FUSED}),
    narrow_transposes: Rule(needs={Fact.CHANNELS_LAST}),
    # Fusion has shown which values have to be stored, and what is a copy then.
    sink_widening: Rule(needs={Fact.FUSED, Fact.OPEN}, makes={Fact.NARROW}),
    drop_copies: Rule(needs={Fact.FUSED, Fact.NARROW}),
    # It is seen of whole epilogues that a wide value ends narrow.
    narrow_steps: Rule(needs={Fact.FUSED, Fact.OPEN}, makes={Fact.NARROW_STEPS}),
    drop_channels: Rule(
        needs={Fact.FUSED, Fact.CHANNELS_LAST, Fact.OPEN},
        makes={Fact.CHANNELS_DROPPED},
        ends={Fact.USED},
    ),
    # A spread image's channels are taken apart as those of any other.
    separate_phases: Rule(needs={Fact.CHANNELS_DROPPED}, makes={Fact.PHASES}),
    interleave_planes: Rule(needs={Fact.FUSED, Fact.CHANNELS_LAST, Fact.NARROW_STEPS}),
    make_tables: Rule(
        needs={Fact.NARROW, Fact.NARROW_STEPS, Fact.CHANNELS_DROPPED, Fact.PHASES},
        makes={Fact.TABLES},
        ends={Fact.OPEN},
    ),
    # Look-ups that kernels had taken are nodes of their own again.
    split_tables: Rule(needs={Fact.TABLES}, ends={Fact.FUSED}),
}
# What holds of a graph that is optimized.
RESULT = {Fact.USED, Fact.CHANNELS_LAST, Fact.TABLES}
check_order(PIPELINE, RULES, RESULT)


def optimize(graph: Graph) -> Graph:
    """Run the pipeline. Raises ``GraphError`` where a pass breaks a rule of the graph."""
    verify(graph)
    for run in PIPELINE:
        graph = verify(run(graph))
    return graph


__all__ = ["drop_idle_steps", "make_unsigned", "optimize"]
