"""``tinyai install-tvm``."""

from __future__ import annotations

import sys

import click

from tinyai.cli.shared import command


@command(
    "install-tvm", "tinyai install-tvm", short_help="Bring a TVM with Relay into an environment."
)
@click.option("--python", default=sys.executable, help="Of which environment.  [default: this one]")
@click.option("--no-deps", is_flag=True, help="Without the packages that TVM needs.")
def install_tvm(python: str, no_deps: bool) -> None:
    """Bring a TVM with Relay into an environment (Linux on x86-64).

    Apache TVM's own packages have none any more. This takes a complete TVM 0.17, pinned by its
    sha256, out of another package, and installs it as apache-tvm. It downloads 82 MB once.
    """
    from tinyai.install_tvm import install_tvm

    install_tvm(python, dependencies=not no_deps)
