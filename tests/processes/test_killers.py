"""
A record that ends its whole process, and hosts that are killed for no fault of their own: real processes, over files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

__all__: list[str] = []

pytestmark = [pytest.mark.processes]

ROOT = Path(__file__).parents[2]
RECORDS = 60
PATIENCE_S = 60.0

PROCESSOR = '''
import os
import time

from processor_host import Batch, PartitionProcessor


class Killer(PartitionProcessor):
    async def process(self, batch: Batch) -> None:
        for record in batch:
            if record.data == b'{"n": 23}' and os.environ.get("KILLS"):
                os._exit(9)
            time.sleep(float(os.environ.get("RECORD_S", "0")))
            with open("handled.txt", "a") as file:
                print(record.data.decode(), file=file, flush=True)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stream of one partition, and a processor that dies of its record 23 where it is told to."""
    (tmp_path / "killer.py").write_text(PROCESSOR)
    (tmp_path / "lines.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(RECORDS)))
    for arguments in (
        ("stream", "create", "local:s.db", "--partitions", "1"),
        ("stream", "import", "local:s.db", "lines.jsonl"),
    ):
        command = [sys.executable, "-m", "processor_host", *arguments]
        subprocess.run(command, cwd=tmp_path, env=environment(), check=True)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def start(folder: Path, **more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "processor_host", "run", "killer:Killer", "--group", "g", "--source", "local:s.db"),
            *("--store", "sqlite:leases.db", "--lease-duration-s", "1", "--batch-records-max", "10"),
            *("--on-failure", "dead-letter:file:letters.jsonl", "--failure-attempts", "3"),
            *("--until", "latest-at-start", "--log-level", "error"),
        ],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.DEVNULL,
    )


def handled(folder: Path) -> list[int]:
    file = folder / "handled.txt"
    return [json.loads(line)["n"] for line in file.read_text().splitlines()] if file.exists() else []


def letters(folder: Path) -> int:
    file = folder / "letters.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_record_that_kills_its_process_is_given_up_after_its_limit_and_no_neighbour_is(folder: Path) -> None:
    """It never raises; only what is stored before each attempt can tell which one it was."""
    deaths = 0
    while (status := start(folder, KILLS="1").wait(PATIENCE_S)) == 9:
        deaths += 1
        assert deaths <= 5

    assert (status, letters(folder)) == (0, 1)
    assert sorted(set(handled(folder))) == [n for n in range(RECORDS) if n != 23]
    # Two deaths may pass before it is alone; then it has three attempts.
    assert 3 <= deaths <= 5


def test_three_kills_of_healthy_hosts_give_nothing_up(folder: Path) -> None:
    """A machine that is short of memory is no record's fault."""
    for _ in range(3):
        before = len(handled(folder))
        host = start(folder, RECORD_S="0.05")
        until_s = time.monotonic() + PATIENCE_S
        while len(handled(folder)) < before + 2:
            assert time.monotonic() < until_s
            assert host.poll() is None
            time.sleep(0.02)
        host.send_signal(signal.SIGKILL)
        host.wait(PATIENCE_S)

    assert start(folder).wait(PATIENCE_S) == 0
    assert (letters(folder), sorted(set(handled(folder)))) == (0, list(range(RECORDS)))
