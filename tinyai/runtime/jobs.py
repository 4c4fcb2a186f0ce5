"""Calls of the C compiler side by side, and the header of intrinsics made ready meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from tinyai.codegen.isa import variants_of
from tinyai.runtime.headers import first_header
from tinyai.runtime.toolchain import SideBySide, Toolchain, cpus_here
from tinyai.target import Target


class CompilerJobs:
    """Calls of a ``toolchain`` for C of a ``target``, side by side: jobs of ``pool``, in a
    temporary ``folder``. There is one more than CPUs, so that none is idle at the end.

    The header of the target's intrinsics is the first of them, where it is not kept yet, so that it
    is precompiled while a model is read. Who leaves the block by an exception does not wait for it.
    """

    def __init__(self, toolchain: Toolchain, target: Target) -> None:
        self.toolchain = toolchain
        self._stack = contextlib.ExitStack()
        name = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tinyai-"))
        self.folder = Path(name)  # which is there as long as a job is
        self.pool = self._stack.enter_context(ThreadPoolExecutor(cpus_here() + 1))
        self._started: list[subprocess.Popen[bytes]] = []
        architecture = variants_of(target)[0].architecture
        self._header = (
            self.pool.submit(
                first_header, toolchain, architecture.header, self.folder, self._started.append
            )
            if architecture
            else None
        )

    def header(self) -> list[str]:
        """Options that make C begin with the precompiled header; none until it is there."""
        ready = self._header is not None and self._header.done()
        return self._header.result() if self._header is not None and ready else []

    def beside(self, objects: Sequence[Future[Path]]) -> SideBySide:
        """The header and the pool, with objects that are jobs of it."""
        return SideBySide(objects, self.header, self.pool)

    def __enter__(self) -> CompilerJobs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
            for process in self._started:
                with contextlib.suppress(ProcessLookupError):
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
        self._stack.__exit__(kind, error, traceback)
