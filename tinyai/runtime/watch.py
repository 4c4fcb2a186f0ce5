"""A compiled network at work: what each of its layers made, by the hook in its C."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

import numpy as np

from tinyai.codegen.lowered import Lowered
from tinyai.errors import OptionError
from tinyai.ir import Array

# Compiled with this flag, C that is hooked has the hook.
HOOK_FLAG = "-DTINYAI_HOOK"
_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t)


@contextlib.contextmanager
def watched(
    library: ctypes.CDLL, symbol: str, graph: Lowered, see: Callable[[int, Array], None]
) -> Iterator[None]:
    """While it lasts, each call of the network calls ``see(number, result)`` after each layer of
    ``graph``, which the library was compiled from; on one thread at a time, while others wait.

    What ``see`` raises is raised at the end. The hook is the library's: calls from elsewhere meet
    it as well. Raises ``OptionError`` where the library has none.
    """
    try:
        hook = ctypes.c_void_p.in_dll(library, f"{symbol}_hook")
    except ValueError:
        raise OptionError(
            f"library of {symbol}",
            found=f"no {symbol}_hook",
            allowed="one that can be watched layer by layer",
            hint=f"compile its C with {HOOK_FLAG}",
        ) from None

    raised: list[BaseException] = []

    def called(number: int, result: int, size: int) -> None:
        stored = graph.stored(graph.nodes[number].output)
        try:
            if not raised:
                see(number, stored.read(np.frombuffer(ctypes.string_at(result, size), np.uint8)))
        except BaseException as error:  # C cannot hand it on
            raised.append(error)

    function = _HOOK(called)  # alive as long as the library may call it
    before = hook.value
    hook.value = ctypes.cast(function, ctypes.c_void_p).value
    try:
        yield
    finally:
        hook.value = before
    if raised:
        raise raised[0]
