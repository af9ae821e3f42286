"""
How the command line ends where something is wrong: one line on stderr, no traceback, and an exit status.

0 clean, 1 own failure or a full disk, 2 what the user gave, 3 a store or source that is not there or denied, 130
interrupted.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from partitions.errors import (
    PartitionsError,
    SourceMisconfigured,
    SourceMismatch,
    SourceUnavailable,
    StartsDiffer,
    StoreMisconfigured,
    StoreUnavailable,
)
from processor_host.errors import UserError
from processor_host.letters.base import LettersUnavailable

__all__ = ["OneLineGroup", "exit_status_of", "one_line_errors", "text_of"]

INTERRUPTED = 130
"""As a shell reports a process that SIGINT ended."""


class OneLineGroup(click.Group):
    """A group of commands whose errors, also those of click itself, are one line each."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """See `click.Command.main`."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        with one_line_errors():
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """See `click.Command.invoke`; also where this group is a part of another one."""
        with one_line_errors():
            return super().invoke(ctx)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """
    End the process with one line on stderr where the body raises an error that is not a fault of this program.

    Settings that have several problems get one line each. What it does not know goes on, with its traceback.
    """
    try:
        yield
    except (UserError, PartitionsError, click.ClickException, OSError, sqlite3.Error, BaseExceptionGroup) as error:
        known = _known(error)
        if isinstance(known, OSError) and known.errno == errno.EPIPE:
            # Whoever read the output has had enough, as `head` does; nobody is left to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        if known is None:
            raise
        if isinstance(known, click.UsageError) and "\n" in known.message:
            # A group that was called without a command shows all of its help.
            known.show()
            sys.exit(known.exit_code)
        for line in text_of(known).splitlines():
            click.echo(f"processor-host: {line}", err=True)
        sys.exit(exit_status_of(known))
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)


def exit_status_of(error: BaseException) -> int:
    """Return the exit status that tells an error's kind."""
    match error:
        case UserError():
            return error.exit_status
        case click.ClickException():
            return error.exit_code
        case SourceMismatch() | StartsDiffer():
            return 2
        case PartitionsError() if _is_full(error.__cause__):
            return 1
        case SourceMisconfigured() | SourceUnavailable() | StoreMisconfigured() | StoreUnavailable():
            return 3
        case LettersUnavailable():
            return 3
    return 1


def text_of(error: BaseException) -> str:
    """Return what to tell the user, without a newline unless there are several problems."""
    match error:
        case click.exceptions.UsageError():
            return _usage_text(error)
        case click.ClickException():
            return error.format_message()
        case UserError():
            return str(error)
        case OSError() if error.filename is not None and error.strerror:
            return f"{error.filename!r}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _usage_text(error: click.exceptions.UsageError) -> str:
    text = error.format_message()
    return text if error.ctx is None else f"{text.rstrip('.')}; see '{error.ctx.command_path} --help'"


def _known(error: BaseException) -> BaseException | None:
    """Return the error itself, or the first of a group; None where there is one that is a fault of this program."""
    if not isinstance(error, BaseExceptionGroup):
        known = (UserError, PartitionsError, click.ClickException, OSError, sqlite3.Error)
        return error if isinstance(error, known) else None
    leaves = [_known(each) for each in error.exceptions]
    return None if None in leaves else leaves[0]


def _is_full(error: BaseException | None) -> bool:
    """Say whether a disk is full, or a quota reached: neither the user's input nor something that is not there."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
