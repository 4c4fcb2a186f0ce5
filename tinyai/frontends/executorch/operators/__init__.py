"""How torch's operators are read: into the vocabulary, or a ``Refusal`` with the reason.

Every file of this folder is found. An operator is one function in one of them (``rows.reads``), for
the quantizer, which sees an exported graph, as for the partitioner, which sees the edge dialect.
"""

from importlib import import_module
from pkgutil import iter_modules

from tinyai.frontends.executorch.operators.rows import AS_ONE, KEPT_WHOLE, READERS

__all__ = ["AS_ONE", "KEPT_WHOLE", "READERS"]

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
