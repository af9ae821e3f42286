"""What only a real process shows: a limit of the system, a closed pipe, a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from partitions.sources.local import Entry, LocalStream

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.essential]

ROOT = Path(__file__).parents[2]
CODE = "from processor_host.cli.stream import stream; stream(prog_name='processor-host stream')"


def start(*arguments: str, bytes_max: int | None = None) -> subprocess.Popen[str]:
    """A `processor-host stream …`; `bytes_max` bounds what it may write into one file."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_max},) * 2); " if bytes_max else ""
    return subprocess.Popen(
        [sys.executable, "-c", limit + CODE, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_import_into_a_disk_without_room_is_told_and_imports_nothing(tmp_path: Path, flights_file: Path) -> None:
    """A limit of the system stands for a full disk: the write fails in the midst of the import."""
    path = tmp_path / "s.db"
    LocalStream.create(path, partitions=4).close()

    process = start("import", f"local://{path}", str(flights_file), "--key", "tailnum", bytes_max=1_000_000)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith(f"processor-host: stream '{path}': ")
    assert "nothing was written; is the disk full, or a quota reached?" in err
    with LocalStream.open(path) as stream:
        assert [each.records for each in stream.describe().partitions] == [0] * 4


def test_tail_whose_reader_has_had_enough_ends_without_a_word(tmp_path: Path) -> None:
    """`stream tail … | head` is the first thing anybody does."""
    path = tmp_path / "s.db"
    with LocalStream.create(path, partitions=4) as stream:
        stream.append([Entry(data=b"x" * 1000) for _ in range(1000)])

    process = start("tail", f"local://{path}", "--from", "earliest")
    assert process.stdout is not None
    assert process.stderr is not None
    first = process.stdout.readline()
    process.stdout.close()

    assert first.startswith("p")
    assert (process.wait(timeout=30), process.stderr.read()) == (1, "")
    process.stderr.close()


def test_tail_that_is_interrupted_ends_at_once_without_a_word(tmp_path: Path) -> None:
    """Ctrl-C is how everybody ends it."""
    path = tmp_path / "s.db"
    with LocalStream.create(path, partitions=4) as stream:
        stream.append([Entry(data=b"x")])

    process = start("tail", f"local://{path}", "--from", "earliest")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)

    assert (process.returncode, out, err) == (130, "", "")
