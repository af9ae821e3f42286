"""
`processor-host stream`: create, fill, look at and reshape a stream, in a file or in Kinesis.

Knows no group and no lease. What is wrong with the input is one line that names the remedy, and changes nothing. What
a command does in Kinesis is in `stream_kinesis`; what is printed, in `stream_text`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from partitions.positions import parse_start
from partitions.sources.base import Source
from partitions.sources.local import PARTITIONS_MAX, Entry, LocalStream
from processor_host.cli.errors import OneLineGroup
from processor_host.cli.lines import Lines, entries_of, opened
from processor_host.cli.numbers import Whole
from processor_host.cli.stream_text import description_text, import_text, record_json, record_text
from processor_host.cli.tail import tail as tail_source
from processor_host.errors import UserError
from processor_host.plurals import count_of
from processor_host.urls import open_source, parse_file_url, scheme_of

__all__ = ["stream"]


_URL = click.argument("url", metavar="local:FILE|kinesis://STREAM")


@click.group(cls=OneLineGroup)
def stream() -> None:
    """
    Create, fill, look at and reshape a stream.

    A local stream is one file: local:s.db in the current folder, or local:///data/s.db. A stream of Kinesis is named by
    kinesis://NAME?region=REGION.
    """


@stream.command()
@_URL
@click.option("--partitions", type=Whole(1, PARTITIONS_MAX), required=True, help="How many it starts with.")
def create(url: str, partitions: int) -> None:
    """Create a stream; refuses one that is there."""
    with _user_errors():
        if _is_kinesis(url):
            from processor_host.cli import stream_kinesis

            stream_kinesis.create(url, partitions)
        else:
            LocalStream.create(_file_of(url), partitions=partitions).close()
    click.echo(f"created {url} with {count_of(partitions, 'partition')}")


@stream.command("import")
@_URL
@click.argument("file")
@click.option("--key", metavar="FIELD", help="The field whose text is the record's key; without it records have none.")
@click.option("--missing-key", metavar="VALUE", help="The key of lines where that field is absent or null.")
@click.option("--skip-bad", is_flag=True, help="Leave out lines that are not a JSON object, and count them.")
@click.option("--json", "as_json", is_flag=True, help="Say what was done as one JSON object.")
def import_(url: str, file: str, key: str | None, missing_key: str | None, skip_bad: bool, as_json: bool) -> None:
    """
    Append a FILE of lines, each one JSON object: plain or gzip, or - for the standard input.

    All of its lines or none: in a local stream one transaction; in Kinesis none if one of them cannot be put.
    """
    if missing_key is not None and key is None:
        raise UserError(f"--missing-key {missing_key!r} needs --key FIELD, the field that may be missing")
    skipped = _Skipped()
    began_s = time.monotonic()
    with (
        nullcontext() if _is_kinesis(url) else _opened(url) as target,
        opened(file) as lines,
        _progress(lines) as progress,
    ):

        def show(done: int) -> None:
            progress.update(progress.task_ids[0], completed=lines.packed.tell(), records=done)

        def entries() -> Iterator[Entry]:
            lines.unpacked.seek(0)
            skipped.clear()
            return entries_of(lines, key=key, missing_key=missing_key, skip=skipped.add if skip_bad else None)

        with _user_errors():
            if target is None:
                from processor_host.cli import stream_kinesis

                done = asdict(stream_kinesis.import_entries(url, entries, name=lines.name, progress=show))
            else:
                done = asdict(target.import_entries(entries(), progress=show))
    if skipped.count:
        click.echo(
            f"processor-host: skipped {count_of(skipped.count, 'bad line')}, the first: {skipped.first}", err=True
        )
    done |= {"skipped": skipped.count, "seconds": round(time.monotonic() - began_s, 3)}
    click.echo(json.dumps(done) if as_json else import_text(done))


@stream.command()
@_URL
@click.argument("data", nargs=-1, required=True)
@click.option("--key", help="The key of all of them; without it each goes to any partition.")
def put(url: str, data: tuple[str, ...], key: str | None) -> None:
    """Append one record for each DATA and print where it went."""
    entries = [Entry(data=each.encode("utf-8", "surrogateescape"), key=key) for each in data]
    placed: Sequence[tuple[str, str]]
    if _is_kinesis(url):
        from processor_host.cli import stream_kinesis

        with _user_errors():
            placed = stream_kinesis.append(url, entries)
    else:
        with _opened(url) as target, _user_errors():
            placed = target.append(entries)
    for partition, position in placed:
        click.echo(f"{partition} {position}")


@stream.command()
@_URL
@click.option("--from", "start", default="latest", show_default=True, help="earliest, latest or an ISO 8601 time.")
@click.option("--partition", "partitions", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
@click.option("--limit", type=Whole(0), help="End after so many records.")
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
    shown = record_json if as_json else record_text

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

    anyio.run(run, open_source(url, beside=True))


@stream.command()
@_URL
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def describe(url: str, as_json: bool) -> None:
    """Show the partitions: parents, records, the last position and time, and the hashes of the keys they take."""
    if _is_kinesis(url):
        from processor_host.cli import stream_kinesis

        click.echo(
            json.dumps(stream_kinesis.describe(url), indent=2) if as_json else stream_kinesis.description_text(url)
        )
        return
    with _opened(url) as target:
        description = target.describe()
    click.echo(json.dumps(asdict(description), indent=2) if as_json else description_text(description))


@stream.command()
@_URL
@click.argument("partition")
def split(url: str, partition: str) -> None:
    """Close a PARTITION; two new ones go on from it with one half of its keys each."""
    with _shape_errors(url):
        if _is_kinesis(url):
            from processor_host.cli import stream_kinesis

            low, high = stream_kinesis.split(url, partition)
        else:
            with _opened(url) as target:
                low, high = target.split(partition)
    click.echo(f"{partition} is closed; {low} and {high} go on from it")


@stream.command()
@_URL
@click.argument("first")
@click.argument("second")
def merge(url: str, first: str, second: str) -> None:
    """Close two partitions of neighbouring hashes; a new one goes on from both."""
    with _shape_errors(url):
        if _is_kinesis(url):
            from processor_host.cli import stream_kinesis

            (child,) = stream_kinesis.merge(url, first, second)
        else:
            with _opened(url) as target:
                child = target.merge(first, second)
    click.echo(f"{first} and {second} are closed; {child} goes on from both")


@stream.command()
@_URL
@click.argument("partition")
def close(url: str, partition: str) -> None:
    """Let a PARTITION of a local stream take no more records; nothing takes its keys from then on."""
    with _opened(url) as target, _shape_errors(url):
        target.close_partition(partition)
    click.echo(f"{partition} is closed")


@stream.command()
@_URL
def deregister(url: str) -> None:
    """Remove the consumer that a URL of Kinesis names with mode=fanout&consumer=NAME; no host does so by itself."""
    if not _is_kinesis(url):
        raise UserError(f"{url!r} is not a stream of Kinesis; only those have consumers")
    from processor_host.cli import stream_kinesis

    click.echo(f"removed consumer {stream_kinesis.deregister(url)} of {url}")


@dataclass(slots=True)
class _Skipped:
    """How many lines an import left out, and what was wrong with the first."""

    count: int = 0
    first: str = ""

    def add(self, text: str) -> None:
        self.first = self.first or text
        self.count += 1

    def clear(self) -> None:
        self.first, self.count = "", 0


def _is_kinesis(url: str) -> bool:
    """Say whether a stream is in Kinesis; what its commands do there is loaded only then, which takes a second."""
    return scheme_of(url) == "kinesis"


@contextmanager
def _opened(url: str) -> Iterator[LocalStream]:
    with LocalStream.open(_file_of(url)) as target:
        yield target


def _file_of(url: str) -> Path:
    """
    Return the file of a local stream.

    Raises:
        UserError: the URL is malformed; of another scheme, it is told of every kind of stream.
    """
    if scheme_of(url) != "local":
        open_source(url)
    return parse_file_url(url, "local")


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
    except UserError:
        raise
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
