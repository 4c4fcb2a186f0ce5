"""The commands of ``tinyai``, which is ``python -m tinyai`` too: a file each.

What a command needs is imported when it runs, so that help is there at once.
"""

from __future__ import annotations

import itertools
import logging
import os

import click

from tinyai._version import __version__
from tinyai.cli.bench import bench
from tinyai.cli.check import check
from tinyai.cli.compile import compile
from tinyai.cli.cut import cut
from tinyai.cli.doctor import doctor
from tinyai.cli.explain import explain
from tinyai.cli.install_tvm import install_tvm
from tinyai.cli.ops import ops
from tinyai.cli.quantize import quantize
from tinyai.cli.run import run
from tinyai.cli.tune import tune
from tinyai.cli.tvmc import tvmc

_START = f"""\
tinyai {__version__}: int8 networks as fast, readable C, with their framework's own integers.

With a model file (.tflite, .onnx):
  tinyai compile model.tflite -o model.so    a library for this machine
  tinyai check model.tflite                  its integers beside the framework's
  tinyai bench model.tflite --layers         where its time goes

With a float model and samples of its input:
  tinyai compile model.onnx --calibrate samples.npz -o model.so

"tinyai --help" lists the commands, "tinyai COMMAND --help" has examples.\
"""
_GROUPS = {
    "From a model file": (compile, run, check, quantize, cut),
    "To look closer": (explain, bench, tune, ops),
    "Environment and TVM": (doctor, tvmc, install_tvm),
}


class _Commands(click.Group):
    """A group whose help lists the commands by what they are for."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                rows = [(str(each.name), each.get_short_help_str(90)) for each in commands]
                formatter.write_dl(rows, col_spacing=2)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, "-V", "--version", message="tinyai %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Turn int8 networks into readable C, alone or as a back end of Apache TVM.

    Exit codes: 0 fine; 1 the model (unreadable, refused, different); 2 options and environment;
    3 a fault of tinyai's own; 130 Ctrl-C.
    """
    if context.invoked_subcommand is None:
        click.echo(_START)
        return
    # Else TVM looks for tuning logs on the network at every build.
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    if context.invoked_subcommand != tvmc.name:
        # Without logs it tells that its own code is not tuned, which is the host at most.
        logging.getLogger("autotvm").setLevel(logging.ERROR)


for _command in itertools.chain(*_GROUPS.values()):
    main.add_command(_command)
