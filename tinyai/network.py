"""A whole model as one graph, with nothing on a host: what libraries and C packages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinyai.c_reserved import is_reserved
from tinyai.codegen.c import identifier
from tinyai.codegen.kernels import Kernel
from tinyai.errors import OptionError
from tinyai.ir import Array, DType, Graph, QParams, Type, verify
from tinyai.ops.gather import index_limits
from tinyai.reference import run_graph
from tinyai.report import Report

# What the ends of a network are: as the model has them, or integers without the quantize and
# dequantize that it begins and ends with.
ENDS = ("model", "int8")


@dataclass(frozen=True)
class Port:
    """An input or output. ``name`` is the source model's: any text. ``quant`` says which real
    numbers its integers stand for, as the source model does; None where that is not known, and for
    floats. ``limits`` are the least and the largest integer of an input of indices."""

    name: str
    type: Type
    quant: QParams | None = None
    limits: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The port as plain values, for JSON."""
        facts = {"name": self.name, "dtype": str(self.type.dtype), "shape": list(self.type.shape)}
        if self.limits is not None:
            facts["limits"] = list(self.limits)
        if self.quant is None:
            return facts
        scale, zero_point, axis = list(self.quant.scale), self.quant.zero_point, self.quant.axis
        return {**facts, "scale": scale, "zero_point": zero_point, "axis": axis}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Port:
        """The port of what ``to_dict`` made. Raises one of Python's errors for anything else."""
        shape = tuple(map(int, facts["shape"]))
        if min(shape, default=1) < 1:
            raise ValueError(f"shape {shape}")
        quant = None
        if "scale" in facts:
            axis = facts["axis"]
            scale = tuple(map(float, facts["scale"]))
            quant = QParams(scale, int(facts["zero_point"]), None if axis is None else int(axis))
        limits = None
        if "limits" in facts:
            low, high = facts["limits"]
            limits = int(low), int(high)
        return cls(str(facts["name"]), Type(shape, DType(facts["dtype"])), quant, limits)

    def spec(self) -> dict[str, Any]:
        """The port as ``tinyai.runtime.library.TensorSpec`` has it: scale and zero point where they
        are one for all."""
        quant = self.quant
        single = quant if quant and len(quant.scale) == 1 and not self.type.dtype.is_float else None
        return {
            "name": self.name,
            "shape": list(self.type.shape),
            "dtype": str(self.type.dtype),
            "scale": single.scale[0] if single else None,
            "zero_point": single.zero_point if single else None,
            **({} if self.limits is None else {"limits": list(self.limits)}),
        }


@dataclass(frozen=True)
class State:
    """A value that a network keeps from one call to the next; ``initial`` are its bytes before the
    first call, elements in C's order and with their low bytes first."""

    port: Port
    initial: bytes

    @property
    def value(self) -> Array:
        """The initial value as an array."""
        of = self.port.type
        flat = np.frombuffer(self.initial, of.dtype.numpy.newbyteorder("<"))
        return flat.astype(of.dtype.numpy).reshape(of.shape)


@dataclass(frozen=True)
class Network:
    """``graph`` computes the whole model: its inputs are ``inputs``, its outputs ``outputs``, in
    the source model's order. ``name`` is a C identifier, and the graph's. ``report`` is what
    ``tinyai.explain`` said of the model, where it was asked. ``rounding`` is the one that the graph
    was made for. ``kernels`` are those of a back end of one's own, for its operators. ``states``
    are further inputs and outputs of the graph, behind the others: each before and after a call."""

    name: str
    graph: Graph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    report: Report | None = None
    rounding: str = "upward"
    kernels: tuple[Kernel, ...] = ()
    states: tuple[State, ...] = ()

    def run(self, calls: Iterable[Sequence[Array]]) -> Iterator[list[Array]]:
        """The reference's outputs for the inputs of calls in a row, the first from the initial
        state: after the network's outputs come the states, as the next call finds them."""
        values = [state.value for state in self.states]
        for inputs in calls:
            results = run_graph(self.graph, [*inputs, *values])
            values = results[len(self.outputs) :]
            yield results


def network_of_graph(graph: Graph, name: str = "") -> Network:
    """The network of a graph that was made by hand: its tensors' names are those of the ports. The
    name is the graph's, if ``name`` says nothing. Raises ``OptionError`` for a ``name`` that is no
    C identifier or C's own, ``GraphError`` for a graph that breaks a rule."""
    graph = verify(replace(graph, name=entry_name(name) if name else c_name(graph.name)))

    def port(tensor: str) -> Port:
        of = graph.tensors[tensor]
        return Port(of.name, of.type, of.quant, index_limits(graph, tensor))

    ins, outs = tuple(map(port, graph.inputs)), tuple(map(port, graph.outputs))
    return Network(graph.name, graph, ins, outs)


def c_name(text: str) -> str:
    """A C identifier that is like ``text``, such as the name of a file, and none of C's own."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:60]
    name = name if name[:1].isalpha() else f"net_{name}".rstrip("_")
    # What ends as C's types do is one of theirs with more in front of it, too.
    others = (name, f"net_{name}", f"{name}_net")
    return next(each for each in others if not is_reserved(each))


def entry_name(name: str) -> str:
    """A name that a user gave a network. Raises ``OptionError`` for one that is no C identifier, or
    C's own."""
    if is_reserved(identifier(name, "name")):
        raise OptionError(
            "name",
            found=name,
            allowed="a name that C, C++, their libraries and compilers do not have",
            hint=c_name(name),
        )
    return name
