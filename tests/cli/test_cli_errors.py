"""How the command line ends where something is wrong."""

from __future__ import annotations

import errno
import os
import sqlite3

import click
import pytest
from click.testing import CliRunner

from partitions.errors import (
    LeaseLost,
    SourceMisconfigured,
    SourceMismatch,
    SourceUnavailable,
    StartsDiffer,
    StoreMisconfigured,
    StoreUnavailable,
)
from processor_host.cli import main
from processor_host.cli.errors import one_line_errors
from processor_host.cli.numbers import Number, Whole
from processor_host.demo.__main__ import main as demo
from processor_host.errors import NotThereError, SettingsError, UserError

__all__: list[str] = []


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("from SQLite")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (UserError("a is wrong; use b"), 2, "a is wrong; use b"),
        (NotThereError("a is not there"), 3, "a is not there"),
        (SourceMisconfigured("no stream"), 3, "no stream"),
        (SourceUnavailable("locked"), 3, "locked"),
        (StoreMisconfigured("no store"), 3, "no store"),
        (StoreUnavailable("locked"), 3, "locked"),
        (caused(SourceUnavailable("full"), sqlite_error(sqlite3.SQLITE_FULL)), 1, "full"),
        (caused(SourceUnavailable("limit"), sqlite_error(sqlite3.SQLITE_IOERR_WRITE)), 1, "limit"),
        (caused(StoreUnavailable("full"), OSError(errno.ENOSPC, "full")), 1, "full"),
        (caused(StoreMisconfigured("full"), sqlite_error(sqlite3.SQLITE_FULL)), 1, "full"),
        (caused(SourceMisconfigured("full"), OSError(errno.ENOSPC, "full")), 1, "full"),
        (caused(SourceUnavailable("locked"), sqlite_error(sqlite3.SQLITE_BUSY)), 3, "locked"),
        (StartsDiffer("two starts"), 2, "two starts"),
        (
            SourceMismatch("g", found="a", expected="b"),
            2,
            "group 'g' belongs to the stream 'b', but the source is 'a'; "
            "use another --group, point --source at the group's own stream, "
            "or --adopt-stream if this one has the same records",
        ),
        (
            LeaseLost("p0", held=1, reason="released"),
            1,
            "partition 'p0': token 1 has ended (released); stop processing it",
        ),
        (OSError(errno.EADDRINUSE, "Address already in use"), 1, "[Errno 98] Address already in use"),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "f"), 1, "'f': No such file or directory"),
        (sqlite3.OperationalError("two\nlines"), 1, "two lines"),
        (click.UsageError("Missing option '--x'."), 2, "Missing option '--x'."),
        (ExceptionGroup("tasks", [ExceptionGroup("more", [UserError("a")]), UserError("b")]), 2, "a"),
    ],
    ids=repr,
)
def test_known_error_is_one_line_and_a_status(
    error: Exception, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script tells kinds by the status, a person by the line; neither wants a traceback."""
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise error

    assert (ended.value.code, capsys.readouterr()) == (status, ("", f"processor-host: {says}\n"))


def test_settings_with_several_problems_get_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them are mended at once."""
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise SettingsError("a is wrong\nb is wrong")

    assert (ended.value.code, capsys.readouterr().err) == (
        2,
        "processor-host: a is wrong\nprocessor-host: b is wrong\n",
    )


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), ExceptionGroup("tasks", [UserError("a"), KeyError("x")])],
    ids=["alone", "beside another"],
)
def test_fault_of_the_program_keeps_its_traceback(error: Exception) -> None:
    """A bug that looks like a wrong input is never reported."""
    with pytest.raises(type(error)) as raised, one_line_errors():
        raise error

    assert raised.value is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()], ids=repr)
def test_interrupt_ends_as_a_shell_expects(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    """130 tells a script that a person stopped it."""
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise error

    assert (ended.value.code, capsys.readouterr()) == (130, ("", ""))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("stauts", "No such command 'stauts'. Did you mean 'status'?"),
        ("iam-polcy", "No such command 'iam-polcy'. Did you mean 'iam-policy'?"),
        ("zzz", "No such command 'zzz'"),
        ("--halp", "No such option '--halp'. Did you mean '--help'?"),
    ],
)
def test_command_that_is_none_is_told_with_the_nearest(arguments: str, says: str) -> None:
    """Commands are loaded when they are called, so that nothing else could know their names."""
    result = CliRunner().invoke(main, [arguments])

    assert (result.exit_code, result.stderr) == (2, f"processor-host: {says}; see 'main --help'\n")


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (Whole(1, 9), "ten", "'ten' is not a whole number from 1 to 9"),
        (Whole(1, 9), "10", "'10' is not a whole number from 1 to 9"),
        (Whole(min=1), "0", "'0' is not a whole number from 1 on"),
        (Whole(), "1.5", "'1.5' is not a whole number"),
        (Number(0, 600), "10s", "'10s' is not a number from 0 to 600"),
        (Number(min=0.3), "0.2", "'0.2' is not a number from 0.3 on"),
        (Number(min=0.3), "nan", "'nan' is not a number from 0.3 on"),
        (Number(min=0.3), "inf", "'inf' is not a number from 0.3 on"),
        (Number(min=0, min_open=True), "0", "'0' is not a number above 0"),
    ],
)
def test_number_is_refused_with_what_was_expected(kind: Whole | Number, given: str, says: str) -> None:
    """A range that is named neither tells what is wrong nor what to give."""
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(given, None, None)

    assert refused.value.message == says


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        (main, "simulate --hosts ten --partitions 1 --duration 10", "'ten' is not a whole number from 1 on"),
        (main, "simulate --hosts 1 --partitions 1 --duration 10s", "'10s' is not a number from 0.3 on"),
        (main, "dead-letters list file:l.jsonl --limit x", "'x' is not a whole number from 1 on"),
        (main, "drain a --group g --store sqlite:l.db --wait-s x", "'x' is not a number from 0 on"),
        (demo, "--partitions x", "'x' is not a whole number from 2 to 256"),
        (demo, "--seconds x", "'x' is not a number from 0 to 600"),
    ],
)
def test_every_command_names_the_number_that_it_expects(command: click.Command, arguments: str, says: str) -> None:
    """All of them in the same words."""
    result = CliRunner().invoke(command, arguments.split())

    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
