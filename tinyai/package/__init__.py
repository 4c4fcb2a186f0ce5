"""A network as a folder of C: what a C programmer needs, without TVM and without Python."""

from tinyai.package.make import emit_c, package_of
from tinyai.package.value import Package

__all__ = ["Package", "emit_c", "package_of"]
