"""The extension that Model Explorer loads: an adapter of files, and times as data of its nodes.

Model Explorer imports this module by its name; nothing of tinyai does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from model_explorer import (
    Adapter,
    AdapterMetadata,
    GetConfigEditorsResult,
    ModelExplorerGraphs,
    NodeDataProvider,
    NodeDataProviderFilter,
    NodeDataProviderMetadata,
    NodeDataProviderResult,
)
from model_explorer import graph_builder as theirs
from model_explorer.node_data_builder import GradientItem, GraphNodeData, NodeDataResult

from tinyai.errors import TinyAIError
from tinyai.frontends.files import explain_file
from tinyai.model_explorer.data import data_of_page
from tinyai.model_explorer.graph import graph_of_page
from tinyai.model_explorer.times import page_with_times
from tinyai.target import Target

_ADAPTER = "tinyai"


class TinyAIAdapter(Adapter):  # type: ignore[misc]  # of another package
    """Opens a quantized .tflite or .onnx file as the layers that tinyai makes of it."""

    metadata: ClassVar[AdapterMetadata] = AdapterMetadata(
        id=_ADAPTER,
        name="tinyai",
        description="Layers of the C that tinyai makes of a file, and what stays on the host.",
        source_repo="",
        fileExts=["tflite", "onnx"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """The graph of a file, under its own name."""
        page = explain_file(model_path, Target()).page(Path(model_path).stem)
        ours = graph_of_page(page, page.title)
        return {"graphs": [theirs.Graph(ours["id"], [_their_node(each) for each in ours["nodes"]])]}


class TinyAITimes(NodeDataProvider):  # type: ignore[misc]  # of another package
    """Measures the layers of a file on this machine."""

    metadata: ClassVar[NodeDataProviderMetadata] = NodeDataProviderMetadata(
        id="tinyai_times",
        name="tinyai: times of layers",
        description="Compiles the file, and takes the time of each layer on this machine.",
        icon="timer",
        filter=NodeDataProviderFilter(modelFileExts=["tflite", "onnx"], adapterIds=[_ADAPTER]),
    )

    def get_config_editors(self, provider_id: str) -> GetConfigEditorsResult:
        """There is nothing to choose."""
        return GetConfigEditorsResult(configEditors=[])

    def run(
        self,
        provider_id: str,
        model_path: str,
        graph_id: str,
        config_values: dict[str, Any],
        graph: Any,
    ) -> NodeDataProviderResult:
        """Microseconds, and what else is known of the layers; an error says what went wrong."""
        try:
            found = data_of_page(page_with_times(model_path))
        except TinyAIError as error:
            return NodeDataProviderResult(error=str(error))
        return NodeDataProviderResult(
            result=[
                GraphNodeData(
                    name=each["name"],
                    results={k: NodeDataResult(**v) for k, v in each["results"].items()},
                    gradient=[GradientItem(**stop) for stop in each["gradient"]],
                )
                for each in found
            ]
        )


def _their_node(node: dict[str, Any]) -> theirs.GraphNode:
    style = node.get("style")
    return theirs.GraphNode(
        id=node["id"],
        label=node["label"],
        namespace=node["namespace"],
        attrs=_pairs(node["attrs"]),
        incomingEdges=[theirs.IncomingEdge(**edge) for edge in node["incomingEdges"]],
        outputsMetadata=[
            theirs.MetadataItem(each["id"], _pairs(each["attrs"]))
            for each in node.get("outputsMetadata", ())
        ],
        style=theirs.GraphNodeStyle(**style) if style else None,
    )


def _pairs(attributes: list[dict[str, str]]) -> list[theirs.KeyValue]:
    return [theirs.KeyValue(**each) for each in attributes]
