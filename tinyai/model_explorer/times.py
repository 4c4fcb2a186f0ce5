"""A file whose layers are timed on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from tinyai.frontends.files import network_of_file
from tinyai.frontends.page import page_of_network, with_times
from tinyai.report.page import Page
from tinyai.runtime.layers import timed_layers
from tinyai.target import Target


def page_with_times(
    file: str | os.PathLike[str], target: Target | None = None, runs: int = 100
) -> Page:
    """The page of a file whose whole is compiled, with the median of each layer's times in
    ``runs`` runs. Raises what reading and compiling raise."""
    wanted = (target or Target()).for_model(file)
    network = network_of_file(file, wanted)
    compiled, times = timed_layers(network.graph, wanted, runs=runs)
    page = page_of_network(network, compiled, wanted, Path(file).stem, "tinyai")
    return with_times(page, {network.name: times})
