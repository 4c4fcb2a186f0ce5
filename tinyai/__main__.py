"""Entry point of ``python -m tinyai``, and of the command ``tinyai``."""

import atexit
import gc
import os
import sys
import threading

from tinyai.interrupts import end_with_a_line

# A command is short and makes many objects that last: to look among them for cycles as often as
# Python does by default takes a seventh of its time.
_OBJECTS = 50_000


def run(name: str | None = None) -> None:
    """Run the command line. Ctrl-C is a line, also while modules are imported."""
    end_with_a_line()
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    from tinyai.cli import main
    from tinyai.cli.shared import show_warnings_as_errors_are

    show_warnings_as_errors_are()
    try:
        main(prog_name=name)
    except SystemExit as ended:
        _end_at_once(ended.code)
        raise


def _end_at_once(code: object) -> None:
    """End the process without freeing each object of it first, which takes a tenth of a short
    command's time; as Python does it where something is left to do or to say."""
    if not isinstance(code, int | None) or threading.active_count() > 1:
        return
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code or 0)


if __name__ == "__main__":
    run("python -m tinyai")
