"""The command ``tinyai``, whose C compiler is asked for what it did not compile before."""

from types import SimpleNamespace

from tests.support import compilers
from tinyai.runtime import toolchain

toolchain.subprocess = SimpleNamespace(run=compilers.run)  # type: ignore[attr-defined]

if __name__ == "__main__":
    from tinyai.__main__ import run

    run()
