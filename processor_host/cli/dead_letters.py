"""
`processor-host dead-letters`: list, show and replay the records that a group gave up.

Knows no group's leases: a replay runs outside of any lease, while hosts may be at work. It hands each record to the
user's handler, or puts it back into the stream as a new record, behind all others of its key. Either way its order is
lost, which is why it is a person's decision. A letter is removed once its record was handled or put back, one by one,
so a replay that is cut short leaves the rest; cut between the two, it repeats one.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import anyio
import click

from partitions.sources.base import Record, Source
from partitions.sources.local import Entry, LocalStream
from processor_host.cli import loading
from processor_host.cli.errors import OneLineGroup
from processor_host.cli.numbers import Whole
from processor_host.errors import UserError
from processor_host.letters.base import Found, Letter, LetterBox, record_of
from processor_host.letters.codec import as_fields
from processor_host.letters.urls import open_sink
from processor_host.plurals import count_of
from processor_host.processor import PartitionProcessor
from processor_host.urls import open_source, parse_file_url, scheme_of

__all__ = ["dead_letters", "load_handler"]

LIMIT: Final = 1000
ERROR_CHARS_MAX: Final = 100

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What in a payload or an error would speak to the terminal."""

Handle = Callable[[Record], Awaitable[None]]

_SINK = click.argument("sink", metavar="SINK")
_GROUP = click.option("--group", help="Only letters of this group; a DynamoDB table needs it.")
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


@click.group(name="dead-letters", cls=OneLineGroup)
def dead_letters() -> None:
    """
    List, show and replay the records that a group gave up.

    SINK is where they are: file:letters.jsonl, sqlite:letters.db, sqs://QUEUE or dynamodb://TABLE.
    """


@dead_letters.command("list")
@_SINK
@_GROUP
@click.option("--limit", type=Whole(min=1), default=LIMIT, show_default=True, help="At most so many.")
@_JSON
def list_(sink: str, group: str | None, limit: int, as_json: bool) -> None:
    """List the letters: id, time, key, attempts, bytes and error."""

    async def run(box: LetterBox) -> None:
        found = await _read(box, group, limit=limit)
        for letter in found.letters:
            click.echo(json.dumps(as_fields(letter)) if as_json else _line(letter))
        if not found.letters and not as_json:
            click.echo("no letters")

    _with_box(sink, run)


@dead_letters.command()
@_SINK
@click.argument("letter_id", metavar="ID")
@_GROUP
@_JSON
def show(sink: str, letter_id: str, group: str | None, as_json: bool) -> None:
    """Show one letter with its payload and traceback."""

    async def run(box: LetterBox) -> None:
        found = await _read(box, group, letter_id=letter_id)
        for letter in _some(found, sink, letter_id):
            click.echo(json.dumps(as_fields(letter)) if as_json else _whole_text(letter))

    _with_box(sink, run)


@dead_letters.command()
@_SINK
@click.argument("letter_ids", metavar="[ID]...", nargs=-1)
@_GROUP
@click.option("--all", "every", is_flag=True, help="Every letter, instead of those that are named.")
@click.option(
    "--handler", metavar="MODULE:NAME", help="An async def that takes a record, or a class with such a handle."
)
@click.option("--put-back", metavar="URL", help="The local stream to which the records are appended as new ones.")
@click.option("--source", metavar="URL", help="Where the whole records of letters are that were cut.")
@click.option("--keep", is_flag=True, help="Leave the letters in the sink.")
@click.option("--limit", type=Whole(min=1), default=LIMIT, show_default=True, help="At most so many of --all.")
@_JSON
def replay(
    sink: str,
    letter_ids: tuple[str, ...],
    group: str | None,
    every: bool,
    handler: str | None,
    put_back: str | None,
    source: str | None,
    keep: bool,
    limit: int,
    as_json: bool,
) -> None:
    """
    Hand the records to a handler of yours, or put them back into the stream.

    Outside of any lease: what the handler writes is not fenced. A letter is removed once its record was handled. Ends
    with status 1 if any record failed again; its letter stays.
    """
    if every == bool(letter_ids):
        raise UserError("replay needs either the ids of letters, which 'dead-letters list' shows, or --all")
    if (handler is None) == (put_back is None):
        raise UserError("replay needs either --handler MODULE:NAME or --put-back URL")
    if put_back is not None and scheme_of(put_back) != "local":
        raise UserError(f"--put-back {put_back!r}: only a local stream takes records from here, as local:s.db")
    handle = None if handler is None else load_handler(handler)
    failed = 0

    async def run(box: LetterBox) -> None:
        nonlocal failed
        async with AsyncExitStack() as stack:
            whole = await _opened(source, stack)
            target = None
            if put_back is not None:
                target = stack.enter_context(LocalStream.open(parse_file_url(put_back, "local")))
            chosen = await _chosen(box, sink, group, letter_ids, limit)
            if not chosen and not as_json:
                click.echo("no letters")
            for letter in chosen:
                outcome = await _replayed(letter, whole, handle, target)
                failed += outcome.error is not None
                click.echo(json.dumps(outcome.as_fields(letter)) if as_json else outcome.text(letter))
                if outcome.error is None and not keep:
                    await box.remove([letter])

    _with_box(sink, run)
    if failed:
        raise click.exceptions.Exit(1)


def load_handler(spec: str) -> Handle:
    """
    Return what handles one record, of what `spec` names.

    Args:
        spec: `module:name` of an `async def` that takes a record, or of a class without arguments that has such a
            method `handle`.

    Raises:
        UserError: there is no such name, its import fails, or it handles no single record.
    """
    found = loading.load_named(spec, "handler", "delays:handle")
    if inspect.isclass(found):
        if issubclass(found, PartitionProcessor) or not callable(getattr(found, "handle", None)):
            why = (
                "handles batches, which exist only under a lease"
                if issubclass(found, PartitionProcessor)
                else "has no method handle(record)"
            )
            raise UserError(f"{spec!r} {why}; name a class with `async def handle(self, record)`, or use --put-back")
        if needed := loading.needed(found):
            raise UserError(f"{spec!r} needs the arguments ({', '.join(needed)}); give them defaults")
        made: Any = found()
        found = made.handle
    if not inspect.iscoroutinefunction(found) or not loading.takes_one(found):
        raise UserError(f"{spec!r} is no handler of one record; name an `async def` that takes a record")
    handle: Handle = found
    return handle


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What became of one letter."""

    what: str
    """"handled", "put back" or "failed"."""
    error: str | None = None
    partition: str | None = None
    position: str | None = None

    def as_fields(self, letter: Letter) -> dict[str, Any]:
        fields = {"id": letter.id, "group": letter.group, "outcome": self.what}
        more = {"error": self.error, "partition": self.partition, "position": self.position}
        return fields | {name: value for name, value in more.items() if value is not None}

    def text(self, letter: Letter) -> str:
        where = "" if self.partition is None else f" as {self.partition} {self.position}"
        return _line_of(f"{letter.id} {self.what}{where}" + ("" if self.error is None else f": {self.error}"))


async def _replayed(
    letter: Letter, source: Source | None, handle: Handle | None, target: LocalStream | None
) -> _Outcome:
    try:
        record = record_of(letter) if letter.is_whole else await _record_at(letter, source)
        if handle is not None:
            await handle(record)
            return _Outcome(what="handled")
        assert target is not None  # One of the two is given.
        entry = Entry(data=record.data, key=record.key, headers=record.headers)
        ((partition, position),) = await anyio.to_thread.run_sync(target.append, [entry])
        return _Outcome(what="put back", partition=partition, position=position)
    except Exception as error:  # Containment: one record that fails again must not keep the others.
        return _Outcome(what="failed", error=f"{type(error).__name__}: {error}")


async def _record_at(letter: Letter, source: Source | None) -> Record:
    """
    Read the whole record of a letter that was cut.

    Raises:
        UserError: no source is named, or it no longer has the record.
    """
    if source is None:
        raise UserError(
            f"the letter has {len(letter.data)} of {letter.data_bytes} bytes; name the stream with --source to read "
            f"the record again ({letter.pointer})"
        )
    reader = source.reader(letter.partition, letter.after)
    try:
        fetched = await reader.read(records_max=1, bytes_max=max(1, letter.data_bytes), wait_s=0.0)
    finally:
        await reader.close()
    if not fetched.records or fetched.records[0].position != letter.position:
        raise UserError(f"{source.url} no longer has the record; what is left of it is in the letter")
    return fetched.records[0]


async def _opened(url: str | None, stack: AsyncExitStack) -> Source | None:
    if url is None:
        return None
    source = open_source(url, beside=True)
    stack.push_async_callback(source.close)
    await source.open()
    return source


async def _chosen(
    box: LetterBox, sink: str, group: str | None, letter_ids: Sequence[str], limit: int
) -> Sequence[Letter]:
    if not letter_ids:
        return (await _read(box, group, limit=limit)).letters
    chosen: list[Letter] = []
    for letter_id in letter_ids:
        chosen += _some(await _read(box, group, letter_id=letter_id), sink, letter_id)
    return chosen


def _with_box(url: str, run: Callable[[LetterBox], Awaitable[None]]) -> None:
    async def with_box() -> None:
        box = open_sink(url, makes=False)
        try:
            await box.open()
            await run(box)
        finally:
            await box.close()

    anyio.run(with_box)


async def _read(box: LetterBox, group: str | None, *, letter_id: str | None = None, limit: int = LIMIT) -> Found:
    try:
        found = await box.read(group=group, letter_id=letter_id, limit=limit)
    except ValueError as error:
        raise UserError(f"{error}: --group NAME") from error
    for line in found.unreadable:
        click.echo(f"processor-host: {_shown(line)}", err=True)
    if found.has_more and letter_id is None:
        many = "this letter" if len(found.letters) == 1 else f"these {len(found.letters)} letters"
        click.echo(f"processor-host: {box.url} has more than {many}", err=True)
    return found


def _some(found: Found, sink: str, letter_id: str) -> Sequence[Letter]:
    if not found.letters:
        raise UserError(f"{sink!r} has no letter {letter_id!r}; 'dead-letters list' shows those that it has")
    if len(groups := sorted({letter.group for letter in found.letters})) > 1:
        # Two groups may have given up the same record, or one of the same name in another stream.
        raise UserError(f"{sink!r} has a letter {letter_id!r} of each of the groups {groups}; name one with --group")
    return found.letters


def _line(letter: Letter) -> str:
    key = "-" if letter.key is None else letter.key
    times = count_of(letter.attempts, "attempt")
    whole = count_of(letter.data_bytes, "byte")
    size = whole if letter.is_whole else f"{len(letter.data)} of {whole}"
    error = letter.error.splitlines()[0][:ERROR_CHARS_MAX] if letter.error else ""
    return _line_of(f"{letter.id}  {_time(letter.time_s)}  {letter.group}  {key}  {times}  {size}  {error}")


def _whole_text(letter: Letter) -> str:
    record_time = "-" if letter.record_time_s is None else _time(letter.record_time_s)
    rows = {
        "id": letter.id,
        "group": letter.group,
        "partition": letter.partition,
        "position": letter.position,
        "key": "-" if letter.key is None else letter.key,
        "written": record_time,
        "given up": f"{_time(letter.time_s)} by {letter.host_id}, token {letter.token}, attempts {letter.attempts}",
        "stage": letter.stage,
        "source": letter.source,
        **{f"header {name}": value for name, value in letter.headers.items()},
        "error": letter.error,
    }
    if letter.pointer is not None:
        rows["whole record"] = letter.pointer
    lines = [f"{name}: {value}" for name, value in rows.items()]
    payload = letter.data.decode("utf-8", "backslashreplace")
    size = f"{len(letter.data)} of {letter.data_bytes} bytes"
    return _shown("\n".join([*lines, "", letter.traceback.rstrip(), "", f"payload, {size}:", payload]))


def _time(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat("T", "seconds")


def _line_of(text: str) -> str:
    return _shown(text).replace("\n", "\\n")


def _shown(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
