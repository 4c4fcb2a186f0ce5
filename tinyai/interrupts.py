"""Ctrl-C ends the command line with a line, from tinyai's first import on.

The package is imported before ``__main__``, and takes most of the time before a command begins. So
it comes to this module first, which changes nothing where tinyai is imported by other programs.
"""

import os
import signal
import sys
import time

_NOW = time.perf_counter()  # before whatever else is imported

EXIT_CODE = 128 + signal.SIGINT


def _is_command() -> bool:
    """Whether this process is the command ``tinyai`` or ``python -m tinyai``."""
    first = sys.argv[0] if sys.argv else ""
    if first == "-m":  # while the package of the module to be run is imported
        return "-m tinyai" in " ".join(sys.orig_argv)
    return os.path.basename(first) == "tinyai"


def abort(*_: object) -> None:
    """End the command: open folders and files are closed on the way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second one must not disturb that
    os.write(2, b"Aborted!\n")  # print might be what was interrupted
    sys.exit(EXIT_CODE)


def end_with_a_line() -> None:
    """Make Ctrl-C end this process by ``abort``, unless it was told to ignore the signal."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, abort)


# When this process began, if it is the command.
STARTED = _NOW if _is_command() else None
if STARTED is not None:
    end_with_a_line()
