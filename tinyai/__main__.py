"""Entry point of ``python -m tinyai``, and of the command ``tinyai``."""

import sys


def run(name: str | None = None) -> None:
    """Run the command line. Ctrl-C is a line, also while modules are imported."""
    try:
        from tinyai.cli import main

        main(prog_name=name)
    except KeyboardInterrupt:
        sys.exit("Aborted!")


if __name__ == "__main__":
    run("python -m tinyai")
