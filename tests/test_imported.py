"""What is done with modules of others once they are imported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tinyai.imported import when_imported


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package whose module "inner" fails when it is imported for the first time."""
    package = tmp_path / "tinyai_test_package"
    package.mkdir()
    (package / "__init__.py").write_text("import os\nvalue = 1\n")
    (package / "inner.py").write_text(
        "import os\nif os.environ.pop('TINYAI_TEST', ''):\n    raise OSError('not yet')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for module in (package.name, f"{package.name}.inner"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return package.name


def test_an_action_is_called_once_with_the_whole_module(name: str) -> None:
    values: list[int] = []
    before = list(sys.meta_path)
    when_imported(name, lambda module: values.append(module.value))
    when_imported(name, lambda module: values.append(module.value + 1))
    assert importlib.util.find_spec(name) is not None  # asked for, not imported
    assert values == []
    importlib.import_module(name)
    importlib.reload(sys.modules[name])
    assert sorted(values) == [1, 2]
    assert sys.meta_path == before


def test_a_module_that_is_imported_already_meets_its_action_at_once() -> None:
    modules: list[ModuleType] = []
    when_imported("sys", modules.append)
    assert modules == [sys]


def test_an_import_that_fails_is_waited_for_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules: list[ModuleType] = []
    when_imported(f"{name}.inner", modules.append)
    monkeypatch.setenv("TINYAI_TEST", "1")
    with pytest.raises(OSError, match="not yet"):
        importlib.import_module(f"{name}.inner")
    assert modules == []
    assert importlib.import_module(f"{name}.inner") in modules


def test_modules_that_are_missing_stay_missing(name: str) -> None:
    when_imported(f"{name}.none", print)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{name}.none")
