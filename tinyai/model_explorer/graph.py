"""The graph of a page as plain values, in the form of Model Explorer's JSON."""

from __future__ import annotations

from typing import Any

from tinyai.report.anatomy import Anatomy, LayerFacts, TensorFacts
from tinyai.report.page import Page
from tinyai.report.rows import HostRow, RegionRow
from tinyai.safe_text import safe

_NAME = 200  # the longest text of an attribute, in characters
_HOST = {"backgroundColor": "#fdeadd", "borderColor": "#a33b00"}
_DIFFERENT = {"backgroundColor": "#ffd6d6", "borderColor": "#b00020"}

Node = dict[str, Any]


def layer_id(region: int, number: int) -> str:
    """The name of a layer's node: that of its address in a page, too."""
    return f"{region}.{number}"


def graph_of_page(page: Page, name: str) -> dict[str, Any]:
    """A node for each layer, each operator of the host, and each input and output of the model;
    layers are in a group of their region's symbol. The first layer that differed in a check has a
    colour of its own."""
    first = (page.comparison or {}).get("first") or {"names": ()}
    made = _Graph(page, frozenset(first["names"]))
    return {"id": name, "nodes": list(made.nodes.values())}


class _Graph:
    """Nodes by their names, and which of them makes a value."""

    def __init__(self, page: Page, different: frozenset[str]) -> None:
        self.nodes: dict[str, Node] = {}
        self.makers: dict[int, tuple[str, str]] = {}  # node and its output
        self.different = different
        for number, row in enumerate(page.host):
            self.nodes[f"host {number}"] = _host(row, number)
            for place, value in enumerate(row.flow.makes):
                self.makers[value] = (f"host {number}", str(place))
        for number, region in enumerate(page.regions):
            if region.anatomy:
                self._layers(region, region.anatomy, number)
        flows = [*(row.flow for row in page.host), *(row.flow for row in page.regions)]
        read = {value for flow in flows for value in flow.reads}
        for number, region in enumerate(page.regions):
            if region.anatomy:
                self._join(region, region.anatomy, number, read)
        for number, row in enumerate(page.host):
            for value in row.flow.reads:
                self._edge(f"host {number}", *self._maker(value, ""))

    def _layers(self, region: RegionRow, anatomy: Anatomy, number: int) -> None:
        tensors = {each.name: each for each in anatomy.tensors}
        for layer in anatomy.layers:
            tensor = tensors[f"result {layer.number}"]
            node = _layer(layer, tensor, region.symbol, layer_id(number, layer.number))
            if not self.different.isdisjoint(layer.sources):
                node["style"] = _DIFFERENT
                node["attrs"].append({"key": "check", "value": "the first layer that differs"})
            self.nodes[node["id"]] = node
        for name, value in zip(anatomy.outputs, region.flow.makes, strict=False):
            if name.startswith("result "):
                self.makers[value] = (layer_id(number, int(name.removeprefix("result "))), "0")

    def _join(self, region: RegionRow, anatomy: Anatomy, number: int, read: set[int]) -> None:
        known: dict[str, tuple[str, str]] = {}
        inputs = [tensor for tensor in anatomy.tensors if tensor.first < 0]
        for place, tensor in enumerate(inputs):
            label = f"{tensor.name} {tensor.type}"
            if place < len(region.flow.reads):
                known[tensor.name] = self._maker(region.flow.reads[place], label)
            else:
                known[tensor.name] = self._port(f"value {number}.{tensor.name}", label)
        for layer in anatomy.layers:
            known[f"result {layer.number}"] = (layer_id(number, layer.number), "0")
            for each in layer.reads:
                self._edge(layer_id(number, layer.number), *known[each])
        types = {tensor.name: tensor.type for tensor in anatomy.tensors}
        for place, name in enumerate(anatomy.outputs):
            made = region.flow.makes[place : place + 1]
            if not read.intersection(made):
                label = f"output {place} {types[name]}"
                self._edge(self._port(f"value {number}.output {place}", label)[0], *known[name])

    def _maker(self, value: int, label: str) -> tuple[str, str]:
        return self.makers.get(value) or self._port(f"value {value}", label or "input")

    def _port(self, name: str, label: str) -> tuple[str, str]:
        self.nodes.setdefault(name, _node(name, label, "", {}))
        return name, "0"

    def _edge(self, reader: str, maker: str, output: str) -> None:
        edges = self.nodes[reader]["incomingEdges"]
        edges.append(
            {
                "sourceNodeId": maker,
                "sourceNodeOutputId": output,
                "targetNodeInputId": str(len(edges)),
            }
        )


def _node(name: str, label: str, group: str, attributes: dict[str, str]) -> Node:
    attrs = [{"key": key, "value": value} for key, value in attributes.items() if value]
    return {"id": name, "label": label, "namespace": group, "attrs": attrs, "incomingEdges": []}


def _layer(layer: LayerFacts, tensor: TensorFacts, symbol: str, name: str) -> Node:
    attributes = {
        "names": ", ".join(safe(each, _NAME) for each in layer.sources),
        "operator": layer.attributes,
        "then": layer.steps,
        "left out": layer.stored,
        "multiply-accumulates": f"{layer.macs:,}" if layer.macs else "",
        "bytes of weights": f"{layer.weight_bytes:,}" if layer.weight_bytes else "",
        "memory": f"{tensor.bytes:,} bytes in {tensor.space} at {tensor.offset:,}",
    }
    for serving in layer.servings:
        attributes[serving.isa] = serving.kernel or "no code is needed"
        attributes[f"{serving.isa}: slower because"] = "; ".join(serving.slower)
    node = _node(
        name, f"{layer.operator} {layer.number}", safe(symbol).replace("/", "_"), attributes
    )
    facts = {"__tensor_tag": f"result {layer.number}", "shape": layer.result}
    if tensor.scale:
        one, many = f"scale {tensor.scale[0]:.6g}", f"{len(tensor.scale)} scales"
        scale = one if tensor.axis is None else f"{many} along axis {tensor.axis}"
        facts["quantization"] = f"{scale}, zero point {tensor.zero_point}"
    attrs = [{"key": key, "value": value} for key, value in facts.items()]
    node["outputsMetadata"] = [{"id": "0", "attrs": attrs}]
    return node


def _host(row: HostRow, number: int) -> Node:
    reason = row.reason
    attributes = {
        "name": safe(row.name, _NAME),
        "type": safe(row.type),
        "clause": safe(reason.clause),
        "found": safe(reason.found),
        "allowed": safe(reason.allowed),
        "try": safe(row.hint, 2 * _NAME),
    }
    node = _node(f"host {number}", safe(row.operator), "on the host", attributes)
    return node | {"style": _HOST} if row.computes else node
