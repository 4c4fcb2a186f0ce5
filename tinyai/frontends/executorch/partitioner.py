"""The partitioner: its options, and how it tags what ``program.py`` gives to tinyai."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection
from typing import Any

import executorch.kernels.quantized  # noqa: F401  # kernels of pairs that stay outside
from executorch.exir.backend import partitioner as interface
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.utils import tag_constant_data
from executorch.runtime import Runtime
from torch.export import ExportedProgram
from torch.fx import Node

from tinyai.codegen.c import identifier
from tinyai.errors import OptionError
from tinyai.frontends.executorch.barred import checked_names, without_match
from tinyai.frontends.executorch.edge import BACKEND, target_of
from tinyai.frontends.executorch.explain import nothing_delegated, report_of
from tinyai.frontends.executorch.operators import KEPT_WHOLE
from tinyai.frontends.executorch.program import division_of
from tinyai.frontends.executorch.reader import operator_of
from tinyai.own import own_of
from tinyai.partition.rows import require_none_left
from tinyai.stages import stage
from tinyai.target import Target

# The back end's compile specs that are no options of ``tinyai.Target``.
STATIC, OWN = "static", "backend"


class TinyAIPartitioner(interface.Partitioner):  # type: ignore[misc]
    """Gives to tinyai what it can build, and leaves the rest to other partitioners or to the host.

    ``options`` are those of ``tinyai.Target`` (``isa``, ``arch``, ``threads``, ``tuning``, limits).
    ``operators_not_to_delegate`` are operators of torch, or names such as "aten.add" or
    "aten.add.Tensor", of the model or of the edge dialect. With
    ``strict`` an operator that computes outside of a delegate is a ``BoundaryError`` with the
    report of ``explain``. With ``static`` delegates are C packages that an application links
    (``tinyai.executorch.write_static``); a text is what their names begin with, else "net".
    ``backend`` is the name of a back end of one's own (``tinyai.register_backend``), whose
    composites are taken first, and whose passes and kernels are used in the delegates.

    Raises ``OptionError`` for options that are none.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        operators_not_to_delegate: Collection[Any] = (),
        static: bool | str = False,
        backend: str = "",
        **options: Any,
    ) -> None:
        super().__init__()
        self.target = target_of(options)
        self.own = own_of(backend)
        self.specs = [*compile_specs_of(self.target), *specs_of_static(static)]
        self.specs += [CompileSpec(OWN, backend.encode())] if backend else []
        if not isinstance(strict, bool):
            raise OptionError("option 'strict'", found=repr(strict), allowed="True, False")
        self.strict, self.without = strict, checked_names(operators_not_to_delegate)

    def partition(self, exported_program: ExportedProgram) -> interface.PartitionResult:
        """The program with a tag at each node that goes into a delegate, and a specification for
        each tag. Raises ``BoundaryError`` under ``strict`` where an operator stays outside."""
        with stage("division of an edge program, and its C"):
            division = division_of(exported_program, self.target, self.without, self.own)
        if self.strict:
            hint = "what the report says of each, or TinyAIPartitioner() without strict"
            require_none_left(report_of(division), hint)
        for told in without_match(exported_program, self.without), nothing_delegated(division):
            if told is not None:
                warnings.warn(told, stacklevel=2)
        spec = interface.DelegationSpec(BACKEND, self.specs)
        tags = {}
        for number, region in enumerate(division.regions):
            tag = f"tinyai_{number}"
            tags[tag] = spec
            for node in region.items:
                node.meta["delegation_tag"] = tag
        tag_constant_data(exported_program)
        return interface.PartitionResult(exported_program, tags)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[Any], Callable[[Node], bool] | None]:
        """Operators that are read whole, where tinyai is going to have them. Others are taken
        apart: the runtime has kernels for the parts.

        ExecuTorch asks again of the lowered program, and what remains whole is an error then. Here
        it is none where the runtime has a kernel for it.
        """
        if ep.dialect == "EDGE":
            # What ExecuTorch's own runtime computes, as it is installed.
            names = Runtime.get().operator_registry.operator_names
            kernels = {name.partition(".")[0].replace("::", ".") for name in names}
            return list(KEPT_WHOLE), lambda node: operator_of(node) not in kernels

        @functools.cache
        def delegated() -> set[Node]:
            with stage("division of a program of ATen, and its C"):
                regions = division_of(ep, self.target, self.without, self.own).regions
            return {node for region in regions for node in region.items}

        return list(KEPT_WHOLE), lambda node: node.target in KEPT_WHOLE and node in delegated()


def compile_specs_of(target: Target) -> list[CompileSpec]:
    """The compile specs of the options that differ from their defaults."""
    usual = Target().options()
    said = {name: text for name, text in target.options().items() if text != usual[name]}
    return [CompileSpec(name, text.encode()) for name, text in sorted(said.items())]


def specs_of_static(static: Any) -> list[CompileSpec]:
    """Raises ``OptionError`` for what no name in C begins with."""
    if not isinstance(static, bool | str) or static == "":
        raise OptionError(
            "option 'static'", found=repr(static), allowed="True, False, or what names begin with"
        )
    if static is False:
        return []
    name = "1" if static is True else identifier(static, "option 'static'")
    return [CompileSpec(STATIC, name.encode())]
