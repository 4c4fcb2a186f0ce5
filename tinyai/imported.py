"""What is done with a module of others once it is imported, by whomever."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Action = Callable[[ModuleType], object]


def when_imported(name: str, action: Action) -> None:
    """Calls ``action`` with the module of this name: at once where it is imported already, else
    when it has been. What ``action`` raises, the import raises."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    else:
        sys.meta_path.insert(0, _Watching(name, action))


class _Watching:
    """Finds one module as the finders behind it do, and has its loader call the action."""

    def __init__(self, name: str, action: Action) -> None:
        self.name, self.action = name, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name or self not in sys.meta_path:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(fullname, path, target) for finder in behind)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_act(module: ModuleType) -> None:
                load(module)
                if module.__name__ == self.name and self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self.action(module)

            spec.loader.exec_module = load_and_act  # type: ignore[method-assign]
        return spec
