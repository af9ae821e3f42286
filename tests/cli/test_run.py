"""
`processor-host run`: bad input is one clear line that changes nothing, and every failure ends with its status.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner, Result

from partitions.sources.local import LocalStream
from processor_host.cli import main

__all__: list[str] = []

DELAYS = """
import contextlib

from processor_host import Batch, PartitionProcessor

class Delays(PartitionProcessor):
    async def process(self, batch: Batch) -> None:
        pass

class NeedsArguments(Delays):
    def __init__(self, path): ...

class Unfinished(PartitionProcessor):
    pass

class Other:
    pass

async def handle(batch): ...
async def takes_none(): ...
async def takes_two(batch, more): ...
def plain(batch): ...
async def bare_lifespan():
    yield 1

@contextlib.asynccontextmanager
async def broken_lifespan():
    raise RuntimeError("no database")
    yield

instance = Delays()
DELAYS = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with a stream and a module; what a command changes in the process is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in os.environ if name.startswith("PROCESSOR_HOST_")]:
        monkeypatch.delenv(name)
    (tmp_path / "delays.py").write_text(DELAYS)
    LocalStream.create(tmp_path / "s.db", partitions=2).close()
    root, modules = logging.getLogger(), set(sys.modules)
    handlers, level = list(root.handlers), root.level
    yield tmp_path
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def run(*more: str, processor: str = "delays:Delays", env: Mapping[str, str] | None = None) -> Result:
    """The command with everything that a test does not care about; later options go over earlier ones."""
    usual = ["--group", "orders", "--source", "local:s.db", "--store", "sqlite:leases.db"]
    return CliRunner().invoke(main, ["run", processor, *usual, *more], env=dict(env or {}))


def refusal(result: Result) -> tuple[int, list[str]]:
    """The status, and the lines without the name of the program."""
    lines = result.stderr.splitlines()
    assert all(line.startswith("processor-host: ") for line in lines), result.stderr
    assert result.stdout == ""
    return result.exit_code, [line.removeprefix("processor-host: ") for line in lines]


PLAIN = (
    "give a subclass of PartitionProcessor or RecordProcessor, a function without arguments that returns one, or an "
    "async def that takes a batch or a record"
)
ALONE = "an async def as processor takes a batch or a record, and nothing else"


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ("delays", "processor 'delays' is not of the form module:name; use for instance 'delays:Delays'"),
        (
            "delays.py:Delays",
            "processor 'delays.py:Delays' is not of the form module:name; use for instance 'delays:Delays'",
        ),
        (
            "./app/delays.py:Delays",
            "processor './app/delays.py:Delays' is not of the form module:name; use for instance 'app.delays:Delays'",
        ),
        ("delays:Delay", "module 'delays' has no 'Delay'; did you mean delays:Delays?"),
        (
            "delays:Nothing",
            "module 'delays' has no 'Nothing'; "
            "it has Delays, NeedsArguments, Unfinished, handle, takes_none, takes_two",
        ),
        ("delays:Other", f"'delays:Other': Other is not a processor; {PLAIN}"),
        ("delays:plain", f"'delays:plain': plain is not a processor; {PLAIN}"),
        ("delays:Unfinished", "'delays:Unfinished': Unfinished does not define process; add it to the class"),
        (
            "delays:NeedsArguments",
            "'delays:NeedsArguments' needs the arguments (path), but is called without any; give them defaults, "
            "or name a function without arguments that makes it",
        ),
        ("delays:takes_none", f"'delays:takes_none': takes_none takes (); {ALONE}"),
        ("delays:takes_two", f"'delays:takes_two': takes_two takes (batch, more); {ALONE}"),
    ],
)
def test_run_refuses_what_is_not_a_processor(processor: str, expected: str, folder: Path) -> None:
    """The name is the first thing that a user types, and wrong at first."""
    assert refusal(run(processor=processor)) == (2, [expected])
    assert not (folder / "leases.db").exists()


def test_run_refuses_an_instance(folder: Path) -> None:
    """One object for all partitions would mix them."""
    status, (line,) = refusal(run(processor="delays:instance"))

    assert status == 2
    assert "is not a processor; give a subclass of PartitionProcessor" in line


def test_run_names_the_folder_where_it_looked_for_an_unknown_module(folder: Path) -> None:
    """Most often the command was started in another one."""
    assert refusal(run(processor="delais:Delays")) == (
        2,
        [
            f"module 'delais' is neither in the current folder ({folder}) nor installed; "
            "change to the folder where it is, or check its name"
        ],
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "x = 1\nimport no_such_module_at_all\n",
            "broken.py:2: ModuleNotFoundError: No module named 'no_such_module_at_all'",
        ),
        ("\n\nprice = cost * 2\n", "broken.py:3: NameError: name 'cost' is not defined"),
        ("def f(:\n    pass\n", "broken.py:1: SyntaxError: invalid syntax"),
        (
            "import json\njson.loads('{')\n",
            "broken.py:2: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ("import sys\nsys.exit(7)\n", "broken.py:2: SystemExit: 7"),
        ("raise ValueError('one\\ntwo')\n", "broken.py:1: ValueError: one"),
    ],
)
def test_run_says_where_a_module_cannot_be_imported(text: str, expected: str, folder: Path) -> None:
    """File and line are what its writer needs; the frames of the importer are not."""
    (folder / "broken.py").write_text(text)

    assert refusal(run(processor="broken:Delays")) == (
        2,
        [f"module 'broken' cannot be imported: {expected} (--log-level debug shows the traceback)"],
    )


def test_run_shows_the_whole_traceback_at_debug(folder: Path) -> None:
    """A fault deep in another library needs it."""
    (folder / "broken.py").write_text("import json\njson.loads('{')\n")

    result = run("--log-level", "debug", processor="broken:Delays")

    assert result.exit_code == 2
    assert "Traceback (most recent call last):" in result.stderr
    assert "raw_decode" in result.stderr


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        (
            ["--group", "or ders"],
            2,
            "group='or ders' is not an id; use 1 to 128 letters, digits, dots, underscores and hyphens",
        ),
        (
            ["--host-id", "a:b"],
            2,
            "--host-id='a:b' is not an id; use 1 to 128 letters, digits, dots, underscores and hyphens",
        ),
        (["--lease-duration-s", "soon"], 2, "--lease-duration-s 'soon' is not a number, for instance 2.5"),
        (
            ["--lease-duration-s", "1", "--beat-interval-s", "2"],
            2,
            "--beat-interval-s=2.0 leaves no retry inside --lease-duration-s=1.0; use 0.333 or less",
        ),
        (
            ["--start", "now"],
            2,
            "--start='now' is not a start; use earliest, latest or a time such as 2026-01-31T06:00:00Z",
        ),
        (
            ["--concurrency", "4"],
            2,
            "--concurrency=4 needs a processor of single records, for a batch has no key; subclass RecordProcessor, "
            "or take a `record`",
        ),
        (
            ["--failure-attempts", "few"],
            2,
            "Invalid value for '--failure-attempts': 'few' is not a whole number; see 'main run --help'",
        ),
        (
            ["--source", "s.db"],
            2,
            "'s.db' names no source; did you mean 'local:s.db'?",
        ),
        (
            ["--store", "sqlite://leases.db"],
            2,
            "'sqlite://leases.db' has two slashes; use 'sqlite:leases.db' for a file in the current folder, "
            "or three slashes for a path from the root: 'sqlite:///leases.db'",
        ),
        (
            ["--lifespan", "delays:bare_lifespan"],
            2,
            "'delays:bare_lifespan' is not a context manager; put @contextlib.asynccontextmanager above it",
        ),
        (
            ["--lifespan", "delays:plain"],
            2,
            "'delays:plain' is not a function without arguments; name one that is decorated with "
            "@contextlib.asynccontextmanager",
        ),
        (
            ["--singleton", "delays:handle"],
            2,
            "singleton 'delays:handle' is not of the form NAME=MODULE:FUNCTION; use for instance "
            "'nightly=delays:nightly'",
        ),
        (
            ["--singleton", "nightly=delays:handle", "--singleton", "nightly=delays:takes_none"],
            2,
            "singleton 'nightly' is given twice; each name is one lock, so give it one function",
        ),
        (["--singleton", "nightly=delays:handel"], 2, "module 'delays' has no 'handel'; did you mean delays:handle?"),
        (
            ["--singleton", "nightly=delays:DELAYS"],
            2,
            "singletons: 'nightly' is 3; give an async def that takes nothing, its lease, or its lease and the "
            "resources of lifespan",
        ),
    ],
)
def test_run_refuses_bad_options_in_one_line(options: list[str], status: int, expected: str, folder: Path) -> None:
    """The value, what was expected, and the remedy; nothing is made."""
    assert refusal(run(*options)) == (status, [expected])
    assert not (folder / "leases.db").exists()


@pytest.mark.parametrize("options", [["--no-such"], ["--log-level", "loud"], ["more"]])
def test_run_refuses_unknown_options_in_one_line(options: list[str], folder: Path) -> None:
    """Also what the library of the command line says is one line."""
    status, lines = refusal(run(*options))

    assert (status, len(lines)) == (2, 1)


def test_run_names_all_settings_that_are_wrong(folder: Path) -> None:
    """Flags and variables at once, each by the name under which it was given."""
    result = run("--capacity", "much", env={"PROCESSOR_HOST_LEASE_DURATION_S": "long"})

    assert refusal(result) == (
        2,
        [
            "environment variable PROCESSOR_HOST_LEASE_DURATION_S='long' is not a number, for instance 2.5",
            "--capacity 'much' is not a number, for instance 2.5",
        ],
    )


def test_run_names_the_slips_of_all_options_at_once(folder: Path) -> None:
    """Who made four need not start four times."""
    options = ["--group", "or ders", "--store", "leases.db", "--capacity", "0"]

    assert refusal(run(*options, processor="delays:Delay")) == (
        2,
        [
            "group='or ders' is not an id; use 1 to 128 letters, digits, dots, underscores and hyphens",
            "'leases.db' names no store; did you mean 'sqlite:leases.db'?",
            "--capacity=0.0 is not above 0; use more than 0",
            "module 'delays' has no 'Delay'; did you mean delays:Delays?",
        ],
    )
    assert not (folder / "leases.db").exists()


def test_run_warns_of_a_variable_that_is_no_setting(folder: Path) -> None:
    """It is most often a slip in the name of one, whose default would stay in force without a word."""
    result = run("--log-format", "json", "--group", "or ders", env={"PROCESSOR_HOST_LEASE_DURATION": "3"})

    warning = json.loads(result.stderr.splitlines()[0])
    assert {name: warning[name] for name in ("level", "event", "variable", "hint")} == {
        "level": "warning",
        "event": "variable.ignored",
        "variable": "PROCESSOR_HOST_LEASE_DURATION",
        "hint": "did you mean PROCESSOR_HOST_LEASE_DURATION_S?",
    }


def test_run_takes_a_flag_over_the_environment_over_the_default(folder: Path) -> None:
    """Each is seen in what the checks say of it."""
    beat = ["--beat-interval-s", "30"]
    said = [
        refusal(run(*beat)),
        refusal(run(*beat, env={"PROCESSOR_HOST_LEASE_DURATION_S": "60"})),
        refusal(run(*beat, "--lease-duration-s", "30", env={"PROCESSOR_HOST_LEASE_DURATION_S": "60"})),
    ]

    assert said == [
        (2, [f"--beat-interval-s=30.0 leaves no retry inside {duration}; use {remedy} or less"])
        for duration, remedy in (
            ("lease_duration_s=10.0", "3.33"),
            ("PROCESSOR_HOST_LEASE_DURATION_S=60.0", "20"),
            ("--lease-duration-s=30.0", "10"),
        )
    ]


def test_run_makes_no_lease_file_for_a_stream_that_is_not_there(folder: Path) -> None:
    """A slip in the name of the stream must not leave a file behind, nor ever make a stream."""
    status, lines = refusal(run("--source", "local:t.db"))

    assert (status, len(lines)) == (3, 1)
    assert "t.db" in lines[0]
    assert sorted(path.name for path in folder.glob("*.db")) == ["s.db"]


def test_run_leaves_a_file_that_is_no_lease_file_as_it_is(folder: Path) -> None:
    """It may be the only copy of something."""
    (folder / "leases.db").write_text("my notes")

    status, lines = refusal(run())

    assert (status, len(lines)) == (3, 1)
    assert "leases.db" in lines[0]
    assert (folder / "leases.db").read_text() == "my notes"


def test_run_names_a_port_that_is_taken_and_makes_no_store(folder: Path) -> None:
    """The usual slip with a second host; it must leave nothing behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(run("--metrics-port", str(port)))

    assert said == (
        2,
        [f"--metrics-port={port} of 127.0.0.1 is taken; use another --metrics-port, or 0 to let the system pick one"],
    )
    assert not (folder / "leases.db").exists()


def test_run_names_an_address_that_is_none_and_makes_no_store(folder: Path) -> None:
    """A slip in a name must leave nothing behind."""
    status, (line,) = refusal(run("--metrics-port", "0", "--metrics-host", "nosuch.invalid"))

    assert (status, line.split(" is ")[0]) == (2, "--metrics-host='nosuch.invalid'")
    assert not (folder / "leases.db").exists()


def test_run_ends_with_status_1_and_a_traceback_at_a_fault_of_its_own(folder: Path) -> None:
    """What nobody foresaw is told whole, once, in the format of the log."""
    result = run("--lifespan", "delays:broken_lifespan", "--log-format", "json")

    failed = json.loads(result.stderr.splitlines()[-1])
    assert result.exit_code == 1
    assert (failed["event"], failed["level"], failed["error"]) == ("host.failed", "error", "no database")
    assert "in broken_lifespan" in failed["exception"]
    assert failed["hint"].startswith("read the traceback")


def test_run_help_names_every_setting_with_its_variable() -> None:
    """Who does not know the page finds them here."""
    text = " ".join(CliRunner().invoke(main, ["run", "--help"]).stdout.split())

    assert "--lease-duration-s NUMBER" in text
    assert "default 10.0. [PROCESSOR_HOST_LEASE_DURATION_S]" in text
