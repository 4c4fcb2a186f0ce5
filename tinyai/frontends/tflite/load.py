"""A .tflite file as a model in the vocabulary, without TVM: it is checked, then read."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from tinyai.errors import owning_faults
from tinyai.frontends.faults import faults_of, missing
from tinyai.frontends.norms import with_norms
from tinyai.frontends.shapes import Shapes, parse_shapes
from tinyai.frontends.source_model import SourceModel
from tinyai.frontends.tflite import checks
from tinyai.model_file import InputShapes, check_model
from tinyai.safe_text import safe
from tinyai.stages import READERS_IMPORTS, stage


def read_model(
    file: str | os.PathLike[str], signature: str = "", input_shapes: InputShapes = ""
) -> SourceModel:
    """The model of a .tflite file: that of a ``signature``, which is named where it has several.
    ``input_shapes``, as in ``"data:8x32x32x3"``, are those of another batch.

    Raises ``OptionError`` where there is no such file or signature, and for shapes that its inputs
    cannot have; ``ModelError`` for a file that
    contradicts itself or cannot be read, ``EnvironmentProblem`` where tflite is missing.
    """
    path, shapes = Path(file), parse_shapes(input_shapes)
    check_model(path, ".tflite")
    if find_spec("tflite") is None:
        raise missing("tflite")
    with faults_of(path, ".tflite"):
        content = path.read_bytes()
    return model_of(content, path, signature, shapes)


def model_of(
    content: bytes, path: Path, signature: str = "", shapes: Shapes = MappingProxyType({})
) -> SourceModel:
    """``read_model`` of the content of a file that messages name as ``path``."""
    with stage(READERS_IMPORTS):
        import tflite

        from tinyai.frontends.tflite.batch import set_shapes, tell_open_shapes
        from tinyai.frontends.tflite.file import File
        from tinyai.frontends.tflite.operators import READERS
        from tinyai.frontends.tflite.reader import Reading
        from tinyai.frontends.tflite.signatures import content_of
    with stage(f"read {safe(path.name, 60)}"):
        with faults_of(path, ".tflite"):
            checks.check_identifier(content)
            content = content_of(content, signature)
            model = tflite.Model.GetRootAsModel(content, 0)
            checks.check_model(model, content, by_tvm=False)
            plain = File(model, content)
            set_shapes(plain, shapes)
        tell_open_shapes(model, plain)
        with owning_faults(f"the reading of {safe(path.name, 60)}"):
            return with_norms(Reading(plain, READERS).read())
