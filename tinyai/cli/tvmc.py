"""``tinyai tvmc``."""

from __future__ import annotations

import click

from tinyai.cli.shared import command, relay_for


@command(
    "tvmc",
    'tinyai tvmc compile --target "tinyai -isa=scalar, llvm" --output net.tar model.tflite',
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    short_help="TVM's own command line, with tinyai among its targets.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def tvmc(context: click.Context, arguments: tuple[str, ...]) -> None:
    """TVM's own command line, with tinyai among its targets.

    Options, --help too, and exit codes are those of tvmc.
    """
    with relay_for("tvmc"):
        from tinyai.frontends.relay.tvmc import run_tvmc
    context.exit(run_tvmc(arguments))
