"""`processor-host stream`: what a user does with it, and one clear line for each way to get it wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from partitions.sources.local import LocalStream
from processor_host.cli.lines import LINE_BYTES_MAX
from processor_host.cli.stream import stream
from tests.conftest import FLIGHTS

__all__: list[str] = []

GOOD = b'{"id":1,"tailnum":"N1"}\n'


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `processor-host stream …` in a folder with the stream `s.db` of four partitions."""
    monkeypatch.chdir(tmp_path)

    def run_it(*arguments: str, stdin: bytes | None = None) -> Ended:
        result = CliRunner().invoke(stream, arguments, prog_name="processor-host stream", input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    assert run_it("create", "local:s.db", "--partitions", "4") == Ended(0, "created local:s.db with 4 partitions\n", "")
    return run_it


def records() -> list[tuple[str | None, bytes]]:
    """Key and data of all records, from the file itself."""
    with closing(LocalStream.open("s.db")) as file:
        rows = file._db.execute("SELECT key, data FROM records ORDER BY change").fetchall()
    return list(rows)


def refused(ended: Ended, *parts: str, status: int = 2) -> None:
    """One line on stderr that has all the parts, nothing on stdout, nothing changed."""
    assert (ended.status, ended.out, ended.err.count("\n")) == (status, "", 1), ended
    assert ended.err.startswith("processor-host: ")
    assert [part for part in parts if part not in ended.err] == [], ended.err
    if Path("s.db").exists():
        assert records() == []


def test_import_takes_the_lines_of_a_real_file_as_they_are(run: Run, flights_file: Path) -> None:
    """What a processor gets is the line; the key is the field's text, also where it is 'NA'."""
    ended = run("import", "local:s.db", str(flights_file), "--key", "tailnum")
    with gzip.open(flights_file) as file:
        lines = [line.removesuffix(b"\n") for line in file]

    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(f"imported {FLIGHTS} records in ")
    assert records() == [(json.loads(line)["tailnum"], line) for line in lines]
    assert {key for key, _ in records()} >= {"NA"}


def test_import_says_how_many_went_where(run: Run) -> None:
    """The last line of a long command is what is kept of it."""
    ended = run("import", "local:s.db", "-", stdin=GOOD * 6)

    assert ended.out.partition(" s: ")[2] == "p0 2, p1 2, p2 1, p3 1\n"


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize("source", ["file", "stdin"])
def test_import_reads_plain_and_packed_lines_from_files_and_pipes(
    run: Run, packed: bool, ends: bytes, source: str
) -> None:
    """The last line may lack its newline; what packs is seen by the first bytes, since a pipe has no name."""
    text = ends.join([b'{"k":"a"}', b'{"k":"b"}'])
    content = gzip.compress(text) if packed else text
    Path("lines").write_bytes(content)

    ended = run("import", "local:s.db", "-" if source == "stdin" else "lines", "--key", "k", stdin=content)

    assert (ended.status, ended.err, records()) == (0, "", [("a", b'{"k":"a"}'), ("b", b'{"k":"b"}')])


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ('"N1"', "N1"),
        ('""', ""),
        ('"\\u00e9\\u0000"', "é\0"),
        ("1545", "1545"),
        ("-1.50", "-1.50"),
        ("1e400", "1e400"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("true", "true"),
        ("false", "false"),
    ],
)
def test_import_takes_the_key_as_it_is_written(run: Run, value: str, key: str) -> None:
    """A number that went through a float would put records of two keys together."""
    line = f'{{"k": {value}}}'.encode()

    assert run("import", "local:s.db", "-", "--key", "k", stdin=line).status == 0
    assert records() == [(key, line)]


def test_import_of_nothing_leaves_the_file_alone(run: Run) -> None:
    """A backup, or who watches the file, would take it for news."""
    file = Path("s.db")
    before = file.read_bytes(), file.stat().st_mtime_ns

    assert run("import", "local:s.db", "-", stdin=b"").out.startswith("imported 0 records in ")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_import_without_a_key_spreads_the_records(run: Run) -> None:
    """Without --key nothing is said about an order."""
    assert run("import", "local:s.db", "-", stdin=GOOD * 2).status == 0
    assert records() == [(None, GOOD.strip())] * 2


BAD_LINES = [
    (b'{"tailnum":"N1"', "not JSON (Expecting ',' delimiter at column 16)"),
    (b"hello", "not JSON (Expecting value at column 1)"),
    (b"", "empty"),
    (b'{"tailnum":NaN}', "not JSON (NaN is not a JSON value)"),
    (b'{"tailnum":"\xff"}', "not UTF-8 (byte 13)"),
    (b"[" * 100_000, "not JSON"),
    (b"[1]", "JSON but no object ('[1]')"),
    (b'"N1"', "JSON but no object"),
    (b'{"tailnum":["N1"]}', "the key field 'tailnum' is a list or an object; expected text or a number"),
    (b'{"tailnum":"\\ud800"}', "the key field 'tailnum' has half a surrogate pair in it"),
    (b'"' + b"x" * (2 * LINE_BYTES_MAX) + b'"', f"longer than {LINE_BYTES_MAX} bytes"),
]


@pytest.mark.parametrize(("line", "what"), BAD_LINES, ids=[what[:20] for _, what in BAD_LINES])
def test_import_of_a_bad_line_names_file_and_line_and_imports_nothing(run: Run, line: bytes, what: str) -> None:
    """A user mends the line or leaves it out; half an import could not be done again."""
    Path("f.jsonl").write_bytes(GOOD * 6000 + line + b"\n" + GOOD)

    ended = run("import", "local:s.db", "f.jsonl", "--key", "tailnum")

    refused(ended, "f.jsonl, line 6001: ", what, "--skip-bad", "nothing was imported")


def test_import_that_skips_bad_lines_counts_them_and_names_the_first(run: Run) -> None:
    """Left out must not mean left unsaid."""
    bad = b"".join(line + b"\n" for line, _ in BAD_LINES)

    ended = run("import", "local:s.db", "-", "--key", "tailnum", "--skip-bad", stdin=GOOD + bad + GOOD)

    assert ended.status == 0
    assert ended.out.startswith("imported 2 records in ")
    assert f", skipped {len(BAD_LINES)} bad lines: " in ended.out
    assert ended.err.startswith(
        f"processor-host: skipped {len(BAD_LINES)} bad lines, the first: standard input, line 2: "
    )
    assert records() == [("N1", GOOD.strip())] * 2


@pytest.mark.parametrize(("line", "what"), [(b'{"id":1}', "is absent"), (b'{"tailnum":null}', "is null")])
@pytest.mark.parametrize("skip", [(), ("--skip-bad",)])
def test_import_of_a_line_without_its_key_names_the_option_that_gives_one(
    run: Run, line: bytes, what: str, skip: tuple[str, ...]
) -> None:
    """Most often --key is misspelt; skipping would then leave out every line."""
    ended = run("import", "local:s.db", "-", "--key", "tailnum", *skip, stdin=GOOD + line)

    refused(ended, "line 2: the key field 'tailnum' ", what, "--missing-key VALUE", "nothing was imported")


def test_import_gives_lines_without_a_key_the_one_that_is_named(run: Run) -> None:
    """Absent and null are the same to whoever reads."""
    lines = b'{"id":1}\n{"tailnum":null}\n{"tailnum":"N1"}\n'

    assert run("import", "local:s.db", "-", "--key", "tailnum", "--missing-key", "none", stdin=lines).status == 0
    assert [key for key, _ in records()] == ["none", "none", "N1"]


@pytest.mark.parametrize(("byte", "other"), [(b"{", b"["), (b"t", b"u")])
@pytest.mark.parametrize("more", [[], ["--skip-bad"]])
def test_import_of_a_damaged_gzip_file_does_not_blame_a_line(
    run: Run, byte: bytes, other: bytes, more: list[str]
) -> None:
    """A line that cannot be read, or lacks its key, because a byte of the file is another one is not to be mended."""
    whole = gzip.compress(b'{"tailnum":"N1"}\n' * 2_000, compresslevel=0)
    at = whole.index(byte, len(whole) // 2)
    Path("f.jsonl.gz").write_bytes(whole[:at] + other + whole[at + 1 :])

    ended = run("import", "local:s.db", "f.jsonl.gz", "--key", "tailnum", *more)

    refused(ended, "f.jsonl.gz: broken gzip file", "nothing was imported")


def truncated(packed: bytes) -> bytes:
    return packed[: len(packed) // 2]


def corrupt_data(packed: bytes) -> bytes:
    return packed[:2000] + bytes(100) + packed[2100:]


def wrong_checksum(packed: bytes) -> bytes:
    return packed[:-8] + bytes(4) + packed[-4:]


def with_garbage(packed: bytes) -> bytes:
    return packed + b"garbage"


@pytest.mark.parametrize("damage", [truncated, corrupt_data, wrong_checksum, with_garbage])
def test_import_of_a_broken_gzip_file_imports_nothing(run: Run, damage: Callable[[bytes], bytes]) -> None:
    """What was unpacked before the fault looks like a whole file."""
    text = b"".join(b'{"tailnum":"N%d"}\n' % (n * n * 7919) for n in range(20_000))
    Path("f.jsonl.gz").write_bytes(damage(gzip.compress(text)))

    refused(run("import", "local:s.db", "f.jsonl.gz"), "f.jsonl.gz", "broken gzip file", "nothing was imported")


@pytest.mark.parametrize("content", [b"", GOOD, b"PK\x03\x04zip"])
def test_import_of_a_file_that_is_only_named_gz_says_so(run: Run, content: bytes) -> None:
    """A download that failed often leaves such a file."""
    Path("f.gz").write_bytes(content)

    refused(run("import", "local:s.db", "f.gz"), "f.gz: not a gzip file, though its name says so")


@pytest.mark.parametrize(
    ("arguments", "status", "parts"),
    [
        (("import", "local:s.db", "none.jsonl"), 2, ("none.jsonl: No such file or directory; name a file of lines",)),
        (("import", "local:s.db", "."), 2, (".: Is a directory; name a file of lines",)),
        (("import", "local:s.db", "-", "--missing-key", "x"), 2, ("--missing-key 'x' needs --key FIELD",)),
        (("import", "local:none.db", "-"), 3, ("none.db' is not there; create it with",)),
        (("import", "local:f", "-"), 3, ("is no SQLite file at all",)),
        (("create", "local:s.db", "--partitions", "4"), 2, ("s.db' exists already; delete it or use another name",)),
        (
            ("create", "local:t.db", "--partitions", "0"),
            2,
            ("--partitions", "'0' is not a whole number from 1 to 10000"),
        ),
        (("create", "local:t.db", "--partitions", "x"), 2, ("'x' is not a whole number from 1 to 10000",)),
        (("tail", "local:s.db", "--limit", "-1"), 2, ("'-1' is not a whole number from 0 on",)),
        (("create", "local:t.db"), 2, ("Missing option '--partitions'",)),
        (("create", "local:none/t.db", "--partitions", "4"), 3, ("create the folder first",)),
        (("create", "local://t.db", "--partitions", "4"), 2, ("two slashes; use 'local:t.db'", "'local:///t.db'")),
        (("create", "t.db", "--partitions", "4"), 2, ("did you mean 'local:t.db'?",)),
        (("create", "sqlite:t.db", "--partitions", "4"), 2, ("names no source", "'local:s.db'", "'kinesis://")),
        (("create", "locl:t.db", "--partitions", "4"), 2, ("names no source", "'local:s.db'", "'kinesis://")),
        (("put", "locl:s.db", "x"), 2, ("names no source", "'local:s.db'", "'kinesis://")),
        (
            ("split", "local:s.db", "p9"),
            2,
            ("'local:s.db': the stream has no partition 'p9'; 'stream describe' lists",),
        ),
        (("merge", "local:s.db", "p0", "p2"), 2, ("'p0' and 'p2' are not neighbours", "'stream describe' lists")),
        (("merge", "local:s.db", "p0"), 2, ("Missing argument 'SECOND'",)),
        (
            ("close", "local:s.db", "p9"),
            2,
            ("'local:s.db': the stream has no partition 'p9'; 'stream describe' lists",),
        ),
        (("put", "local:s.db"), 2, ("Missing argument 'DATA...'",)),
        (("put", "local:s.db", "x", "--key", "\udcff"), 2, ("is no text that can be stored",)),
        (
            ("tail", "local:s.db", "--from", "yesterday"),
            2,
            ("--from 'yesterday' is not a start; use earliest, latest",),
        ),
        (("tail", "local:s.db", "--partition", "p9"), 2, ("no partition 'p9'; 'stream describe' lists",)),
        (("tail", "local:none.db"), 3, ("none.db' is not there",)),
        (("tail", "kinesis:s"), 2, ("'kinesis:s'", "expected one such as 'kinesis://orders")),
        (("describe", "local:none.db"), 3, ("none.db' is not there",)),
        (("describe", "local:."), 2, ("'local:.' names no file",)),
        (("descibe", "local:s.db"), 2, ("No such command 'descibe'",)),
        (("describe", "local:s.db", "--jsn"), 2, ("No such option", "--jsn")),
    ],
)
def test_wrong_input_gets_one_line_with_the_remedy_and_changes_nothing(
    run: Run, arguments: tuple[str, ...], status: int, parts: tuple[str, ...]
) -> None:
    """Ten wrong commands and more; none of them shows a traceback or leaves a file."""
    Path("f").write_bytes(GOOD * 100)

    refused(run(*arguments, stdin=b""), *parts, status=status)
    assert sorted(path.name for path in Path().iterdir() if not path.name.startswith("s.db")) == ["f"]


def test_put_appends_each_text_and_prints_where_it_went(run: Run) -> None:
    """The way to try a stream by hand."""
    assert run("put", "local:s.db", "a", "b", "é", "--key", "N14228") == Ended(0, "p2 1\np2 2\np2 3\n", "")
    assert records() == [("N14228", b"a"), ("N14228", b"b"), ("N14228", "é".encode())]


def test_tail_prints_records_until_the_end_or_the_limit(run: Run) -> None:
    """One record, one line, whatever is in it."""
    run("put", "local:s.db", "a", "two\nlines\x1b[1m", "c", "--key", "N14228")

    whole = run("tail", "local:s.db", "--from", "earliest", "--no-follow")
    assert whole == Ended(0, "p2 1 N14228 a\np2 2 N14228 two\\x0alines\\x1b[1m\np2 3 N14228 c\n", "")
    assert run("tail", "local:s.db", "--from", "earliest", "--limit", "2").out == "".join(
        whole.out.splitlines(True)[:2]
    )
    assert run("tail", "local:s.db", "--limit", "0") == Ended(0, "", "")
    assert run("tail", "local:s.db", "--no-follow") == Ended(0, "", "")
    assert run("tail", "local:s.db", "--from", "earliest", "--no-follow", "--partition", "p0") == Ended(0, "", "")
    assert run("tail", "local:s.db", "--from", "2001-01-01", "--no-follow", "--partition", "p2").out == whole.out


def test_tail_shares_the_limit_between_partitions(run: Run) -> None:
    """Partitions are read side by side; the limit is one."""
    run("import", "local:s.db", "-", stdin=GOOD * 40)

    assert run("tail", "local:s.db", "--from", "earliest", "--limit", "3").out.count("\n") == 3


def test_tail_reads_children_after_their_parents_and_ends_with_the_stream(run: Run) -> None:
    """The records of one key come in their order also over a split and a merge."""
    run("put", "local:s.db", "1", "--key", "N14228")
    run("split", "local:s.db", "p2")
    run("put", "local:s.db", "2", "--key", "N14228")
    run("merge", "local:s.db", "p4", "p5")
    run("put", "local:s.db", "3", "--key", "N14228")
    for partition in ("p0", "p1", "p3", "p6"):
        run("close", "local:s.db", partition)

    ended = run("tail", "local:s.db", "--from", "earliest")

    assert [line.split()[-1] for line in ended.out.splitlines()] == ["1", "2", "3"]


def test_tail_as_json_keeps_every_byte(run: Run) -> None:
    """What is not text goes as base64."""
    run("put", "local:s.db", "é\n", "\udcff", "--key", "N14228")

    lines = run("tail", "local:s.db", "--from", "earliest", "--no-follow", "--json").out.splitlines()
    shown = [json.loads(line) for line in lines]

    assert all(each.pop("time_s") > 1e9 for each in shown)
    assert shown == [
        {"partition": "p2", "position": "1", "key": "N14228", "data": "é\n"},
        {"partition": "p2", "position": "2", "key": "N14228", "data_base64": "/w=="},
    ]


def test_reshaping_says_what_goes_on_from_what(run: Run) -> None:
    """The names of the children are needed for the next command."""
    assert [
        run("split", "local:s.db", "p1").out,
        run("merge", "local:s.db", "p2", "p3").out,
        run("close", "local:s.db", "p0").out,
    ] == ["p1 is closed; p4 and p5 go on from it\n", "p2 and p3 are closed; p6 goes on from both\n", "p0 is closed\n"]


def test_describe_shows_every_partition(run: Run) -> None:
    """It is what a person decides by, before a split or a merge."""
    run("put", "local:s.db", "x", "--key", "N14228")
    run("split", "local:s.db", "p2")
    head, columns, *rows = run("describe", "local:s.db").out.splitlines()
    last_at = rows[2].split()[4]

    assert head.startswith("s.db: 6 partitions, 5 open, 1 record, identity s.db/")
    assert columns.split() == ["PARTITION", "STATE", "RECORDS", "LAST", "LAST", "AT", "PARENTS", "KEY", "HASHES"]
    assert [row.split() for row in rows] == [
        ["p0", "open", "0", "0", "-", "-", "00000000-3fffffff"],
        ["p1", "open", "0", "0", "-", "-", "40000000-7fffffff"],
        ["p2", "closed", "1", "1", last_at, "-", "80000000-bfffffff"],
        ["p3", "open", "0", "0", "-", "-", "c0000000-ffffffff"],
        ["p4", "open", "0", "0", "-", "p2", "80000000-9fffffff"],
        ["p5", "open", "0", "0", "-", "p2", "a0000000-bfffffff"],
    ]


def test_describe_as_json_is_the_description(run: Run) -> None:
    """A script reads fields, not columns."""
    shown = json.loads(run("describe", "local:s.db", "--json").out)

    assert (shown["name"], [each["partition"] for each in shown["partitions"]]) == ("s.db", ["p0", "p1", "p2", "p3"])
    assert set(shown["partitions"][0]) == {
        "partition", "parents", "closed", "listed", "hash_low", "hash_high", "records", "last", "last_time_s",
    }  # fmt: skip


def test_group_without_a_command_shows_its_help(run: Run) -> None:
    """Whoever does not know the commands is shown them."""
    ended = run()

    assert ended.err.startswith("Usage: processor-host stream")
    assert "describe" in ended.err
