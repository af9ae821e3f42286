"""`processor-host dead-letters`: what a person sees of the records that were given up, and how they are replayed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from click.testing import CliRunner

from partitions.sources.local import Entry, LocalStream
from processor_host.cli import main
from processor_host.letters.base import Letter
from processor_host.letters.codec import as_fields
from processor_host.letters.file import FileLetters
from processor_host.processor import Batch, PartitionProcessor
from tests.letters.builders import a_letter

__all__: list[str] = []

SINK = "file:letters.jsonl"
FIRST = a_letter("1", after="0", data=b'{"delay":1}', time_s=1_700_000_100.0)
SECOND = a_letter("2", after="1", data=b'{"delay":2}', key=None, time_s=1_700_000_200.0, group="other", attempts=1)

HANDLER = """
from pathlib import Path


async def handle(record):
    if record.position == "2":
        raise KeyError("late")
    with Path("handled").open("a") as file:
        file.write(f"{record.partition} {record.position} {record.key} {record.data.decode()}\\n")


class Handler:
    async def handle(self, record):
        await handle(record)


def not_async(record):
    pass


class Needs:
    def __init__(self, pool):
        pass

    async def handle(self, record):
        pass
"""


class Batches(PartitionProcessor):
    async def process(self, batch: Batch) -> None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `processor-host dead-letters …` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run_it(*arguments: str) -> Ended:
        result = CliRunner().invoke(main, ["dead-letters", *arguments], prog_name="processor-host")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    return run_it


def written(*letters: Letter) -> None:
    async def write() -> None:
        for letter in letters:
            await FileLetters("letters.jsonl").write(letter)

    anyio.run(write)


def left() -> list[str]:
    return [letter.id for letter in anyio.run(FileLetters("letters.jsonl").read).letters]


@pytest.fixture
def module(run: Run) -> str:
    """The name of a module of handlers in the present folder, one that no other test has loaded."""
    name = f"handlers_{uuid4().hex}"
    Path(f"{name}.py").write_text(HANDLER)
    return name


@pytest.fixture
def stream(run: Run) -> Iterator[LocalStream]:
    with closing(LocalStream.create("s.db", partitions=1)) as made:
        yield made


def rows(stream: LocalStream) -> list[tuple[str | None, bytes]]:
    return list(stream._db.execute("SELECT key, data FROM records ORDER BY change").fetchall())


def test_list_shows_one_line_for_each_letter(run: Run) -> None:
    """Enough to see what went wrong and to name the letter in the next command."""
    written(FIRST, SECOND)

    assert run("list", SINK) == Ended(
        0,
        "p0@4/1  2023-11-14T22:15:00+00:00  delays  N123  3 attempts  11 bytes  ValueError: bad\n"
        "p0@4/2  2023-11-14T22:16:40+00:00  other  -  1 attempt  11 bytes  ValueError: bad\n",
        "",
    )
    assert run("list", SINK, "--group", "other").out.startswith("p0@4/2 ")


def test_list_of_an_empty_sink_says_so(run: Run) -> None:
    """An empty answer would look like a command that does nothing; a script gets no line that is no JSON."""
    Path("letters.jsonl").touch()

    assert [run("list", SINK), run("list", SINK, "--json")] == [Ended(0, "no letters\n", ""), Ended(0, "", "")]


def test_replay_of_an_empty_sink_says_so(run: Run, module: str) -> None:
    """Who replays everything wants to know that there was nothing."""
    Path("letters.jsonl").touch()

    assert run("replay", SINK, "--all", "--handler", f"{module}:handle") == Ended(0, "no letters\n", "")
    assert run("replay", SINK, "--all", "--handler", f"{module}:handle", "--json") == Ended(0, "", "")


def test_list_as_json_has_everything(run: Run) -> None:
    """One object a line, for scripts."""
    written(FIRST, SECOND)
    lines = run("list", SINK, "--json").out.splitlines()

    assert [json.loads(line) for line in lines] == [as_fields(FIRST), as_fields(SECOND)]


def test_list_says_that_it_ended_at_its_limit(run: Run) -> None:
    """Who counts the lines would else count wrong."""
    written(FIRST, SECOND)
    ended = run("list", SINK, "--limit", "1")

    assert (ended.status, ended.out.count("\n")) == (0, 1)
    assert ended.err == f"processor-host: file:{Path('letters.jsonl').absolute()} has more than this letter\n"


def test_list_tells_what_is_no_letter(run: Run) -> None:
    """A line that was edited wrongly must not hide the others, nor be hidden by them."""
    written(FIRST)
    with Path("letters.jsonl").open("a") as file:
        file.write("{}\n")
    ended = run("list", SINK)

    assert (ended.status, ended.out.count("\n")) == (0, 1)
    assert ended.err.endswith("letters.jsonl, line 2: field 'key' is missing\n")


def test_show_has_the_payload_and_the_traceback(run: Run) -> None:
    """All that is left of the record, without what would speak to the terminal."""
    written(replace(FIRST, key="a\x1b[31mb"))

    assert run("show", SINK, "p0@4/1") == Ended(
        0,
        "id: p0@4/1\ngroup: delays\npartition: p0\nposition: 1\nkey: a\\x1b[31mb\nwritten: 2023-11-14T22:13:20+00:00\n"
        "given up: 2023-11-14T22:15:00+00:00 by a, token 4, attempts 3\nstage: process\nsource: local:s.db\n"
        "header h: x\nerror: ValueError: bad\n\nTraceback (most recent call last):\nValueError: bad\n\n"
        'payload, 11 of 11 bytes:\n{"delay":1}\n',
        "",
    )
    assert json.loads(run("show", SINK, "p0@4/1", "--json").out)["key"] == "a\x1b[31mb"


def test_show_names_what_the_sink_has_not(run: Run) -> None:
    """With where to look for the right name."""
    written(FIRST)

    assert run("show", SINK, "p0@4/9") == Ended(
        2,
        "",
        "processor-host: 'file:letters.jsonl' has no letter 'p0@4/9'; 'dead-letters list' shows those that it has\n",
    )


@pytest.mark.parametrize("name", ["handle", "Handler"])
def test_replay_hands_the_records_to_the_handler_and_removes_what_was_handled(run: Run, module: str, name: str) -> None:
    """What fails again keeps its letter and neither stops the rest nor looks like a success."""
    third = a_letter("3", after="2", data=b'{"delay":3}')
    written(FIRST, SECOND, third)
    ended = run("replay", SINK, "--all", "--handler", f"{module}:{name}")

    assert ended == Ended(1, "p0@4/1 handled\np0@4/2 failed: KeyError: 'late'\np0@4/3 handled\n", "")
    assert Path("handled").read_text() == 'p0 1 N123 {"delay":1}\np0 3 N123 {"delay":3}\n'
    assert left() == ["p0@4/2"]


def test_replay_takes_the_letters_that_are_named_and_keeps_them_where_asked(run: Run, module: str) -> None:
    """Trying a mended handler on one record must not use it up."""
    written(FIRST, SECOND)
    ended = run("replay", SINK, "p0@4/1", "--handler", f"{module}:handle", "--keep", "--json")

    assert (ended.status, json.loads(ended.out)) == (
        0,
        {"id": "p0@4/1", "group": "delays", "outcome": "handled"},
    )
    assert left() == ["p0@4/1", "p0@4/2"]


def test_replay_asks_for_the_group_where_two_have_a_letter_of_one_id(run: Run, stream: LocalStream) -> None:
    """An id names partition, token and position, which the streams of two groups share; both would be put back."""
    other = replace(FIRST, group="other")
    written(FIRST, other)
    refused = run("replay", SINK, "p0@4/1", "--put-back", "local:s.db")
    ended = run("replay", SINK, "p0@4/1", "--group", "other", "--put-back", "local:s.db")

    told = "has a letter 'p0@4/1' of each of the groups ['delays', 'other']; name one with --group\n"
    assert refused == Ended(2, "", f"processor-host: 'file:letters.jsonl' {told}")
    assert ended == Ended(0, "p0@4/1 put back as p0 1\n", "")
    assert rows(stream) == [("N123", b'{"delay":1}')]


def test_replay_puts_records_back_behind_all_others(run: Run, stream: LocalStream) -> None:
    """As new records of the same key, payload and headers; the hosts handle them in their turn."""
    stream.append([Entry(data=b"before", key="N123")])
    written(FIRST, SECOND)
    ended = run("replay", SINK, "--all", "--put-back", "local:s.db")

    assert ended == Ended(0, "p0@4/1 put back as p0 2\np0@4/2 put back as p0 3\n", "")
    assert rows(stream) == [("N123", b"before"), ("N123", b'{"delay":1}'), (None, b'{"delay":2}')]
    assert left() == []


def test_replay_reads_a_record_that_was_cut_from_its_source(run: Run, stream: LocalStream, module: str) -> None:
    """Half a record must never be handed on as a whole one."""
    stream.append([Entry(data=b"x" * 50, key="N123")])
    cut = a_letter("1", after="0", data=b"xxxx", data_bytes=50, is_whole=False)
    gone = a_letter("9", after="1", data=b"xxxx", data_bytes=50, is_whole=False)
    trimmed = a_letter("8", after="0", data=b"xxxx", data_bytes=50, is_whole=False)
    written(cut, gone, trimmed)
    without = run("replay", SINK, "p0@4/1", "--handler", f"{module}:handle")
    with_source = run("replay", SINK, "--all", "--handler", f"{module}:handle", "--source", "local:s.db")

    assert without == Ended(
        1,
        "p0@4/1 failed: UserError: the letter has 4 of 50 bytes; name the stream with --source to read the record "
        "again (local:s.db, partition p0, the record after position 0)\n",
        "",
    )
    assert (with_source.status, with_source.out.splitlines()[0]) == (1, "p0@4/1 handled")
    assert [line.partition("local:")[0] for line in with_source.out.splitlines()[1:]] == [
        "p0@4/9 failed: UserError: ",
        "p0@4/8 failed: UserError: ",
    ]
    assert with_source.out.count(" no longer has the record; what is left of it is in the letter\n") == 2
    assert Path("handled").read_text() == f"p0 1 N123 {'x' * 50}\n"
    assert left() == ["p0@4/9", "p0@4/8"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("--handler", "M:handle"),
            "replay needs either the ids of letters, which 'dead-letters list' shows, or --all",
        ),
        (("p0@4/1", "--all", "--handler", "M:handle"), "replay needs either the ids of letters"),
        (("--all",), "replay needs either --handler MODULE:NAME or --put-back URL"),
        (("--all", "--handler", "M:handle", "--put-back", "local:s.db"), "replay needs either --handler"),
        (("--all", "--put-back", "kinesis://s"), "only a local stream takes records from here, as local:s.db"),
        (("--all", "--handler", "M:not_async"), "is no handler of one record; name an `async def` that takes a record"),
        (("--all", "--handler", "M:Needs"), "needs the arguments (pool); give them defaults"),
        (("--all", "--handler", "M:Path"), "has no method handle(record)"),
        (("--all", "--handler", "tests.cli.test_dead_letters:Batches"), "handles batches, which exist only under a"),
        (("--all", "--handler", "M"), "is not of the form module:name"),
    ],
)
def test_replay_refuses_what_it_cannot_do_and_removes_nothing(
    run: Run, module: str, arguments: tuple[str, ...], text: str
) -> None:
    """One line that says what to give instead."""
    written(FIRST)
    ended = run("replay", SINK, *(each.replace("M:", f"{module}:") for each in arguments))

    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert text in ended.err
    assert left() == ["p0@4/1"]


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("letters.db", "'letters.db' names no sink of dead letters; use for instance file:letters.jsonl, sqlite:"),
        ("file:", "'file:' names no file"),
        ("sqs:queue", "'sqs:queue' names no queue; expected 'sqs://' and 1 to 80 of A-Z, a-z, 0-9, _ and -"),
        ("sqs://a.b", "'sqs://a.b' names no queue"),
        ("dynamodb://t", "'dynamodb://t' names no table; expected 'dynamodb://' and 3 to 255 of A-Z"),
        ("sqs://queue?region=moon", "region='moon' is no region"),
    ],
)
def test_url_that_names_no_sink_is_refused_with_an_example(run: Run, url: str, text: str) -> None:
    """Each kind with its own mistake."""
    ended = run("list", url)

    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert text in ended.err


@pytest.mark.parametrize("url", ["file:typo.jsonl", "sqlite:typo.db"])
def test_sink_that_is_not_there_ends_with_status_3_and_is_not_made(run: Run, url: str) -> None:
    """A slip in the name would else say that there are no letters."""
    ended = run("list", url)

    assert (ended.status, ended.out, list(Path().iterdir())) == (3, "", [])
    assert ended.err.endswith(" is not there; hosts make it, commands do not\n")
