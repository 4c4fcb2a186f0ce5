"""The samples of docs/backends-tinyai.md run, in their order, as a reader would run them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tests.support.documents import EXECUTORCH, pages, run_page
from tests.support.scripts import ROOT, run_script
from tinyai.executorch import TinyAIPartitioner
from tinyai.target import OPTIONS

PAGE = ROOT / "docs" / "backends-tinyai.md"
ARGUMENTS = inspect.signature(TinyAIPartitioner).parameters.keys() - {"options"}
# What a reader would do next: the outputs are those of the eager graph, but for a step.
AFTER = """
scale = [n for n in quantized.graph.nodes if "dequantize_per_tensor" in str(n.target)][-1].args[1]
steps = (outputs - quantized.module()(*samples[0])).abs().max() / scale
assert steps < 1.01, steps
(delegate,) = (n for n in edge.exported_program().graph.nodes if n.name.startswith("lowered"))
print("as the eager graph")
"""


def samples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_samples_of_the_page_run(tmp_path: Path) -> None:
    first, *others = samples()
    assert len(others) == 5

    said = run_script([first, AFTER, *others], tmp_path / "samples.py", tmp_path)

    assert "as the eager graph" in said
    assert (tmp_path / "backend.o").stat().st_size > 0


@pytest.mark.parametrize("option", sorted({*OPTIONS, *ARGUMENTS} - {"rounding", "abi"}))
def test_the_page_has_every_option_of_the_partitioner(option: str) -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{option}`" in row.split("|")[1] for row in rows)


def test_the_code_of_the_questions_about_executorch_runs(tmp_path: Path) -> None:
    said = [run_page(pages()[place], tmp_path) for place in EXECUTORCH[1:]]
    assert all("clause:      quantization of the result" in text for text in said)
