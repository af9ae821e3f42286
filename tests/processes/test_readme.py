"""
The programs in the README, run as they stand there.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import anyio
import pytest

from partitions.sources.local import Entry, LocalStream
from partitions.stores.sqlite import SqliteStore

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.essential]

README: Final = Path(__file__).parents[2] / "README.md"
RUN_S_MAX: Final = 60.0


def program_with(text: str) -> str:
    """Return the one Python program of the README that has this text."""
    (found,) = [
        each for each in re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL) if text in each
    ]
    return str(found)


def test_program_with_a_host_handles_records_and_writes_the_log_of_run(tmp_path: Path) -> None:
    """A host that says nothing when it loses its leases cannot be run; so what one copies has a log."""
    with LocalStream.create(tmp_path / "s.db", partitions=1) as stream:
        stream.append([Entry(data=b"{}", key="k")])
    anyio.run(SqliteStore(tmp_path / "leases.db").create)
    program = program_with("ProcessorHost(").replace("anyio.sleep(60)", "anyio.sleep(3)")

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )

    assert (done.returncode, done.stdout) == (0, "p0 1 k\n"), done.stderr
    lines = [line for line in done.stderr.splitlines() if {"group='printer'", "host_id='printer-1'"} <= {*line.split()}]
    said = [name for line in lines for name in re.findall(r"\b(host\.\w+|lease\.acquired)\b", line)]
    assert sorted(said) == ["host.draining", "host.ready", "host.stopped", "lease.acquired"], done.stderr


def test_program_with_a_leader_closes_its_store_when_it_is_interrupted(tmp_path: Path) -> None:
    """It works until Ctrl-C; a store that is left open leaves its log beside the file."""
    program = program_with("run_as_leader(session")
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            said = running.stdout.readline()
            running.send_signal(signal.SIGINT)
            _, told = running.communicate(timeout=RUN_S_MAX)
        finally:
            running.kill()

    assert said == "the only one, under token 1\n", told
    assert [each.name for each in tmp_path.iterdir()] == ["locks.db"], told
