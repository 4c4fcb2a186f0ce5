"""The code of guides and questions runs as it stands there."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import tinyai
from tests.support.documents import (
    EXECUTORCH,
    RELAX,
    ROOT,
    Block,
    blocks,
    pages,
    run_page,
    script_of,
    write_network,
)

HERE = [place for place in pages() if place not in ("README.md", *EXECUTORCH, *RELAX)]
MOST_NOT_RUN = 10
# The ten lines of this one, which take most of its time, have a test of their own.
SLOW = ("guides/relay.md",)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that pages call by these names: models, an input, samples."""
    folder = tmp_path_factory.mktemp("files")
    write_network(folder)
    shutil.copy(ROOT / "benchmarks" / "digits" / "digits.onnx", folder / "float.onnx")
    samples = np.random.default_rng(0).random((8, 1, 1, 8, 8), np.float32)
    np.savez(folder / "samples.npz", image=samples)
    quantized = tinyai.quantize_file(folder / "float.onnx", [{"image": x} for x in samples])
    quantized.save(folder / "net.onnx")
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "place", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in HERE]
)
def test_the_code_of_a_page_runs(place: str, files: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(files, tmp_path / "here")
    run_page(pages()[place], folder)


def test_code_that_does_not_run_has_a_reason_and_there_is_little_of_it() -> None:
    reasons = [
        f"{place}: {block.reason}"
        for place, page in pages().items()
        for block in blocks(page)
        if block.reason
    ]
    print(f"{len(reasons)} blocks of code do not run:", *reasons, sep="\n  ")
    assert len(reasons) <= MOST_NOT_RUN


@pytest.mark.parametrize(
    "place", [place for place in pages() if place.startswith(("guides/", "questions/"))]
)
def test_a_guide_ends_with_a_command_for_the_readers_own_file(place: str) -> None:
    text = pages()[place].read_text()
    assert text.count("\n## With your own file\n") == 1
    last = text.partition("\n## With your own file\n")[2]
    assert "```sh\n" in last
    assert "\n## " not in last


def test_a_block_that_names_a_file_becomes_it_and_python_shares_names(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# a.py\none = 1\n```\n```c\n/* b.c */\nint b;\n```\n```text\nno\n```\n"
        "<!-- not run: why -->\n```sh\nexit 1\n```\n```sh\ncat b.c a.py\n```\n"
        "```python\nassert one\nprint('end')\n```\n"
    )
    assert blocks(page)[2] == Block("sh", "exit 1\n", "why")
    out = run_page(page, tmp_path)
    assert out.split() == ["/*", "b.c", "*/", "int", "b;", "#", "a.py", "one", "=", "1", "end"]
    with pytest.raises(ValueError, match="a block of c without the name of a file"):
        script_of([Block("c", "int b;\n", "")])
