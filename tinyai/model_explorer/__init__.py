"""What became of a model, for Model Explorer: an extension of it, and graphs and data as JSON.

``model-explorer --extensions=tinyai.model_explorer model.tflite`` opens a file as the layers of its
regions, with what stays on the host; ``pip install "tinyai[model-explorer]"`` brings it. The
functions here need no package: what they write, Model Explorer reads without the extension too.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tinyai.files import check_place, written_whole
from tinyai.model_explorer.data import data_of_page
from tinyai.model_explorer.graph import graph_of_page
from tinyai.model_explorer.times import page_with_times
from tinyai.report import Report
from tinyai.report.page import Page

__all__ = ["graphs", "node_data", "page_with_times", "write"]


def graphs(shown: Report | Page, name: str = "") -> dict[str, Any]:
    """The graph of a report or page as Model Explorer's JSON has it: a node a layer, a group a
    region, under ``name``, by default that of the page. Of a report that ``from_json`` made it has
    no layers."""
    page = shown.page() if isinstance(shown, Report) else shown
    return {"graphs": [graph_of_page(page, name or page.title)]}


def node_data(shown: Report | Page, name: str = "") -> dict[str, Any]:
    """Numbers of the layers by the names of the data: multiply-accumulates, bytes of weights and of
    the arena in use, microseconds where they were measured. Each is Model Explorer's node data for
    the graph of this ``name`` that ``graphs`` makes."""
    page = shown.page() if isinstance(shown, Report) else shown
    return {each["name"]: {name or page.title: each} for each in data_of_page(page)}


def write(shown: Report | Page, path: str | os.PathLike[str], name: str = "") -> Path:
    """Write ``graphs`` as a .json file, which Model Explorer opens, and ``node_data`` beside it, a
    file a kind: FILE.time.json. Raises ``OptionError`` where no file can be written."""
    file = Path(path)
    texts = {file: json.dumps(graphs(shown, name), indent=1)}
    for kind, data in node_data(shown, name).items():
        texts[file.with_suffix(f".{kind.split()[0].lower()}.json")] = json.dumps(data, indent=1)
    for place, text in texts.items():
        check_place(place)
        with written_whole(place) as beside:
            beside.write_text(text)
    return file
