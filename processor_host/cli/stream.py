"""
`processor-host stream`: create, fill, look at and reshape a local stream.

Knows no group and no lease. What is wrong with the input is one line that names the remedy, and changes nothing.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

import anyio
import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from partitions.positions import parse_start
from partitions.sources.base import Record, Source
from partitions.sources.local import PARTITIONS_MAX, Description, Entry, LocalStream, PartitionDescription
from processor_host.cli.errors import OneLineGroup
from processor_host.cli.lines import Lines, entries_of, opened
from processor_host.cli.tail import tail as tail_source
from processor_host.errors import UserError
from processor_host.urls import open_source, parse_file_url

__all__ = ["stream"]

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What in a record's text would break its line, or speak to the terminal."""


class _Whole(click.IntRange):
    """A whole number in a range, refused in the words of this program."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            bounds = f"from {self.min} on" if self.max is None else f"from {self.min} to {self.max}"
            self.fail(f"{value!r} is not a whole number {bounds}", param, ctx)


_URL = click.argument("url", metavar="local:FILE")


@click.group(cls=OneLineGroup)
def stream() -> None:
    """
    Create, fill, look at and reshape a local stream.

    A stream is one file: local:s.db in the current folder, or local:///data/s.db.
    """


@stream.command()
@_URL
@click.option("--partitions", type=_Whole(1, PARTITIONS_MAX), required=True, help="How many it starts with.")
def create(url: str, partitions: int) -> None:
    """Create a stream; refuses a file that is there."""
    with _user_errors():
        LocalStream.create(parse_file_url(url, "local"), partitions=partitions).close()
    click.echo(f"created {url} with {_count(partitions, 'partition')}")


@stream.command("import")
@_URL
@click.argument("file")
@click.option("--key", metavar="FIELD", help="The field whose text is the record's key; without it records have none.")
@click.option("--missing-key", metavar="VALUE", help="The key of lines where that field is absent or null.")
@click.option("--skip-bad", is_flag=True, help="Leave out lines that are not a JSON object, and count them.")
def import_(url: str, file: str, key: str | None, missing_key: str | None, skip_bad: bool) -> None:
    """
    Append a FILE of lines, each one JSON object: plain or gzip, or - for the standard input.

    All of its lines or none: one transaction.
    """
    if missing_key is not None and key is None:
        raise UserError(f"--missing-key {missing_key!r} needs --key FIELD, the field that may be missing")
    skipped = _Skipped()
    began_s = time.monotonic()
    with _opened(url) as target, opened(file) as lines, _progress(lines) as progress:

        def show(done: int) -> None:
            progress.update(progress.task_ids[0], completed=lines.packed.tell(), records=done)

        with _user_errors():
            imported = target.import_entries(
                entries_of(lines, key=key, missing_key=missing_key, skip=skipped.add if skip_bad else None),
                progress=show,
            )
    if skipped.count:
        click.echo(f"processor-host: skipped {_count(skipped.count, 'bad line')}, the first: {skipped.first}", err=True)
    spread = ", ".join(f"{partition} {records}" for partition, records in imported.by_partition.items())
    left_out = f", skipped {_count(skipped.count, 'bad line')}" if skipped.count else ""
    seconds = time.monotonic() - began_s
    click.echo(f"imported {_count(imported.records, 'record')} in {seconds:.1f} s{left_out}: {spread}")


@stream.command()
@_URL
@click.argument("data", nargs=-1, required=True)
@click.option("--key", help="The key of all of them; without it each goes to any partition.")
def put(url: str, data: tuple[str, ...], key: str | None) -> None:
    """Append one record for each DATA and print where it went."""
    with _opened(url) as target, _user_errors():
        placed = target.append([Entry(data=each.encode("utf-8", "surrogateescape"), key=key) for each in data])
    for partition, position in placed:
        click.echo(f"{partition} {position}")


@stream.command()
@_URL
@click.option("--from", "start", default="latest", show_default=True, help="earliest, latest or an ISO 8601 time.")
@click.option("--partition", "partitions", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
@click.option("--limit", type=_Whole(0), help="End after so many records.")
@click.option("--no-follow", is_flag=True, help="End where there are no more records, instead of waiting for some.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def tail(url: str, start: str, partitions: tuple[str, ...], limit: int | None, no_follow: bool, as_json: bool) -> None:
    """Print records as they come: partition, position, key and data."""
    try:
        point = parse_start(start)
    except ValueError:
        raise UserError(
            f"--from {start!r} is not a start; use earliest, latest or a time such as 2026-01-31T06:00:00Z"
        ) from None
    shown = _record_json if as_json else _record_text

    async def run(source: Source) -> None:
        await source.open()
        try:
            await tail_source(
                source,
                lambda record: click.echo(shown(record)),
                start=point,
                partitions=partitions,
                limit=limit,
                follow=not no_follow,
            )
        finally:
            await source.close()

    anyio.run(run, open_source(url))


@stream.command()
@_URL
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def describe(url: str, as_json: bool) -> None:
    """Show the partitions: parents, records, the last position and time, and the hashes of the keys they take."""
    with _opened(url) as target:
        description = target.describe()
    click.echo(json.dumps(asdict(description), indent=2) if as_json else _description_text(description))


@stream.command()
@_URL
@click.argument("partition")
def split(url: str, partition: str) -> None:
    """Close a PARTITION; two new ones go on from it with one half of its keys each."""
    with _opened(url) as target, _shape_errors(url):
        low, high = target.split(partition)
    click.echo(f"{partition} is closed; {low} and {high} go on from it")


@stream.command()
@_URL
@click.argument("first")
@click.argument("second")
def merge(url: str, first: str, second: str) -> None:
    """Close two partitions of neighbouring hashes; a new one goes on from both."""
    with _opened(url) as target, _shape_errors(url):
        child = target.merge(first, second)
    click.echo(f"{first} and {second} are closed; {child} goes on from both")


@stream.command()
@_URL
@click.argument("partition")
def close(url: str, partition: str) -> None:
    """Let a PARTITION take no more records; nothing takes its keys from then on."""
    with _opened(url) as target, _shape_errors(url):
        target.close_partition(partition)
    click.echo(f"{partition} is closed")


@dataclass(slots=True)
class _Skipped:
    """How many lines an import left out, and what was wrong with the first."""

    count: int = 0
    first: str = ""

    def add(self, text: str) -> None:
        self.first = self.first or text
        self.count += 1


@contextmanager
def _opened(url: str) -> Iterator[LocalStream]:
    with LocalStream.open(parse_file_url(url, "local")) as target:
        yield target


@contextmanager
def _user_errors() -> Iterator[None]:
    """What the library refuses about its arguments is what the user gave."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, FileExistsError) as error:
        raise UserError(str(error)) from error


@contextmanager
def _shape_errors(url: str) -> Iterator[None]:
    """As `_user_errors`, with the stream and where its partitions are seen; which of them can be named nobody knows."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{url!r}: {error}; 'stream describe' lists those that it has, and their hashes") from error


@contextmanager
def _progress(lines: Lines) -> Iterator[Progress]:
    """Show on a terminal how far the file is read; elsewhere nothing."""
    console = Console(stderr=True)
    columns = (
        TextColumn(f"importing {lines.name}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[records]} records"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    progress.add_task("", total=lines.size, records=0)
    with progress if console.is_terminal else nullcontext():
        yield progress


def _record_text(record: Record) -> str:
    key = "-" if record.key is None else record.key
    text = record.data.decode("utf-8", "backslashreplace")
    return _CONTROL.sub(
        lambda found: f"\\x{ord(found.group()):02x}", f"{record.partition} {record.position} {key} {text}"
    )


def _record_json(record: Record) -> str:
    fields: dict[str, object] = {
        "partition": record.partition,
        "position": record.position,
        "key": record.key,
        "time_s": record.time_s,
    }
    if record.headers:
        fields["headers"] = dict(record.headers)
    try:
        fields["data"] = record.data.decode("utf-8")
    except UnicodeDecodeError:
        fields["data_base64"] = base64.b64encode(record.data).decode("ascii")
    return json.dumps(fields, ensure_ascii=False)


def _description_text(description: Description) -> str:
    records = sum(each.records for each in description.partitions)
    is_open = sum(not each.closed for each in description.partitions)
    rows: list[tuple[str, ...]] = [("PARTITION", "STATE", "RECORDS", "LAST", "LAST AT", "PARENTS", "KEY HASHES")]
    rows += [_row(each) for each in description.partitions]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        [
            f"{description.name}: {_count(len(description.partitions), 'partition')}, {is_open} open, "
            f"{_count(records, 'record')}, identity {description.identity}",
            *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows),
        ]
    )


def _row(each: PartitionDescription) -> tuple[str, ...]:
    last_at = (
        "-" if each.last_time_s is None else datetime.fromtimestamp(each.last_time_s, UTC).isoformat("T", "seconds")
    )
    state = "open" if not each.closed else "closed" if each.listed else "dropped"
    hashes = f"{each.hash_low:08x}-{each.hash_high - 1:08x}"
    return each.partition, state, str(each.records), each.last, last_at, ",".join(each.parents) or "-", hashes


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
