"""Passes over the graph: each takes a ``Graph`` and returns a new one; the graph is verified after
each of them."""

from __future__ import annotations

from tinyai.ir import Graph, verify
from tinyai.passes.drop_channels import drop_channels
from tinyai.passes.drop_copies import drop_copies
from tinyai.passes.drop_idle_steps import drop_idle_steps
from tinyai.passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from tinyai.passes.fold_constants import fold_constants
from tinyai.passes.fold_pads import fold_pads
from tinyai.passes.fuse_epilogues import fuse_epilogues
from tinyai.passes.make_tables import make_tables
from tinyai.passes.make_unsigned import make_unsigned
from tinyai.passes.merge_permutes import merge_permutes
from tinyai.passes.narrow_steps import narrow_steps
from tinyai.passes.narrow_transposes import narrow_transposes
from tinyai.passes.permute import permute
from tinyai.passes.remove_unused import remove_unused
from tinyai.passes.separate_phases import separate_phases
from tinyai.passes.sink_widening import sink_widening
from tinyai.passes.split_tables import split_tables
from tinyai.passes.tabulate_functions import tabulate_functions

PIPELINE = (
    # Constants first: what is known needs no code, and equal constants make equal nodes.
    fold_constants,
    # Before fusion, so that a value with two equal users has one user, and can be fused.
    eliminate_common_subexpressions,
    # Before fusion, while a function stands between two tensors of 8 bits.
    tabulate_functions,
    remove_unused,
    fold_pads,
    fuse_epilogues,
    # After fusion, for only what is stored can be transposed on the way. Before all that asks who
    # reads a value: a transposition between two nodes hides the one from the other.
    permute,
    merge_permutes,
    narrow_transposes,
    # Again, for nodes that transpositions of the source model kept apart.
    fuse_epilogues,
    # After fusion has shown which values have to be stored: store them narrow.
    sink_widening,
    drop_copies,
    # With epilogues whole, so that it is seen that a wide value ends narrow.
    narrow_steps,
    # With epilogues whole and channels last: before tables, which hide what steps do to a channel.
    drop_channels,
    # After it, for it takes a spread image's channels apart as those of any other.
    separate_phases,
    # Last of those that change steps: a table hides what it is made of.
    make_tables,
    split_tables,
    remove_unused,
)


def optimize(graph: Graph) -> Graph:
    """Run the pipeline. Raises ``GraphError`` where a pass breaks a rule of the graph."""
    verify(graph)
    for run in PIPELINE:
        graph = verify(run(graph))
    return graph


__all__ = ["drop_idle_steps", "make_unsigned", "optimize"]
