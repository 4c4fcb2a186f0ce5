"""The commands of ``tinyai``, which is ``python -m tinyai`` too: a file each.

What a command needs is imported when it runs, so that help is there at once.
"""

from __future__ import annotations

import logging
import os

import click

from tinyai._version import __version__
from tinyai.cli.bench import bench
from tinyai.cli.check import check
from tinyai.cli.compile import compile
from tinyai.cli.doctor import doctor
from tinyai.cli.explain import explain
from tinyai.cli.install_tvm import install_tvm
from tinyai.cli.ops import ops
from tinyai.cli.quantize import quantize
from tinyai.cli.run import run
from tinyai.cli.tune import tune
from tinyai.cli.tvmc import tvmc


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="tinyai %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Turn int8 networks into readable C, alone or as a back end of Apache TVM.

    Exit codes: 0 fine; 1 the model (unreadable, refused, different); 2 options and environment;
    3 a fault of tinyai's own; 130 Ctrl-C.
    """
    # Else TVM looks for tuning logs on the network at every build.
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    if context.invoked_subcommand != tvmc.name:
        # Without logs it tells that its own code is not tuned, which is the host at most.
        logging.getLogger("autotvm").setLevel(logging.ERROR)


for _each in (
    *(compile, quantize, run, check, ops),
    *(explain, bench, tune, doctor, tvmc, install_tvm),
):
    main.add_command(_each)
