"""
The command line, `processor-host`: to run a host, to look at a group and work on it, and to make what it needs.

Each command is a module of its own; here they only become one program. What goes wrong is one line (`errors`), also
Ctrl-C while a command's module is loaded, which takes longest: so each is loaded when it is called.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Final

import click

from processor_host.cli.errors import OneLineGroup

__all__ = ["main"]

COMMANDS: Final = (
    "run", "status", "hosts", "plan", "drain", "pause", "resume", "reset", "release", "forget-host", "leases",
    "lock", "stream", "table", "iam-policy", "dead-letters", "simulate",
)
"""Each, with underscores, the name of a module here, and of the command in it."""


class _Commands(OneLineGroup):
    """The commands, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See `click.Group.list_commands`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See `click.Group.get_command`."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(import_module(f"{__name__}.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group.resolve_command`, which suggests only commands that are loaded."""
        close = get_close_matches(args[0], COMMANDS, n=1)
        if close and args[0] not in COMMANDS:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="processor-host", prog_name="processor-host")
def main() -> None:
    """
    Process the partitions of a stream on any number of hosts: one owner for each, nothing lost.

    Create a stream with `stream create`, start `run` several times, and look at it with `status`.
    """
