"""How ONNX's operators are read: into the vocabulary, or a ``Refusal`` with the reason.

Every file of this folder is found. An operator is one function in one of them (``rows.reads``).
"""

from importlib import import_module
from pkgutil import iter_modules

from tinyai.frontends.onnx.operators.rows import READERS

__all__ = ["READERS"]

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
