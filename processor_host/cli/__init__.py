"""
The command line: `processor-host run`, `status` and `stream`.

Each command is a module of its own; here they only become one program. What goes wrong is one line (`errors`).
"""

from __future__ import annotations

import click

from processor_host.cli.errors import OneLineGroup
from processor_host.cli.run import run
from processor_host.cli.status import status
from processor_host.cli.stream import stream

__all__ = ["main"]


@click.group(cls=OneLineGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="processor-host", prog_name="processor-host")
def main() -> None:
    """
    Process the partitions of a stream on any number of hosts: one owner for each, nothing lost.

    Create a stream with `stream create`, start `run` several times, and look at it with `status`.
    """


main.add_command(run)
main.add_command(status)
main.add_command(stream)
