"""Entry point of ``python -m tinyai``, and of the command ``tinyai``."""

import gc

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
    main(prog_name=name)


if __name__ == "__main__":
    run("python -m tinyai")
