"""Entry point of ``python -m tinyai``, and of the command ``tinyai``."""

from tinyai.interrupts import end_with_a_line


def run(name: str | None = None) -> None:
    """Run the command line. Ctrl-C is a line, also while modules are imported."""
    end_with_a_line()
    from tinyai.cli import main

    main(prog_name=name)


if __name__ == "__main__":
    run("python -m tinyai")
