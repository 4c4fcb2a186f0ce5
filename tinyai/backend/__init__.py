"""The back end: its interface (``BackendDetails``), tinyai's own behind it, and the pipeline from a
graph to C. Knows no TVM."""

from tinyai.backend.debug_handles import DebugHandleMapBuilder
from tinyai.backend.details import BackendDetails, CompileSpec, PreprocessResult
from tinyai.backend.named_data import NamedData, NamedDataStore
from tinyai.backend.pipeline import (
    MACS_OF_A_THREAD,
    Compiled,
    check_limits,
    compile_graph,
    compile_network,
    compile_once,
    keep,
    kept,
    lower,
    prepare,
    tell_unused,
    with_useful_threads,
    write,
)
from tinyai.backend.tinyai_backend import TinyAIBackend, preprocess_with, whole_source

__all__ = [
    "MACS_OF_A_THREAD",
    "BackendDetails",
    "CompileSpec",
    "Compiled",
    "DebugHandleMapBuilder",
    "NamedData",
    "NamedDataStore",
    "PreprocessResult",
    "TinyAIBackend",
    "check_limits",
    "compile_graph",
    "compile_network",
    "compile_once",
    "keep",
    "kept",
    "lower",
    "prepare",
    "preprocess_with",
    "tell_unused",
    "whole_source",
    "with_useful_threads",
    "write",
]
