"""Entry point of ``python -m tinyai``."""

from tinyai.cli import main

if __name__ == "__main__":
    main(prog_name="python -m tinyai")
