"""Real processes on one file: writers, readers and a reshaping operator at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from partitions.sources.local import LocalStream

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.essential]

ROOT = Path(__file__).parents[2]
WRITERS = 3
READERS = 2
EACH = 700
PARTITIONS = 7
"""After the split and the merge."""

Line = tuple[str, str, str]


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.sources.processes", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(process: subprocess.Popen[str]) -> list[Line]:
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return [(partition, position, data) for partition, position, data in map(json.loads, output.splitlines())]


def faults(lines: Sequence[Line]) -> list[str]:
    """What is out of order: positions within a partition, and each writer's records within a key."""
    found: list[str] = []
    positions: dict[str, int] = defaultdict(int)
    numbers: dict[tuple[str, str], int] = defaultdict(int)
    for partition, position, data in lines:
        writer, key, number = data.split()
        if int(position) != positions[partition] + 1:
            found.append(f"{partition}: {position} after {positions[partition]}")
        if int(number) != numbers[writer, key] + 1:
            found.append(f"writer {writer}, key {key}: {number} after {numbers[writer, key]}")
        positions[partition] = int(position)
        numbers[writer, key] = int(number)
    return found


def test_processes_share_a_stream_and_lose_repeat_and_reorder_nothing(tmp_path: Path) -> None:
    """Writers race for positions, readers read what is being written, and the partitions change under both."""
    path = tmp_path / "s.db"
    with LocalStream.create(path, partitions=4) as stream:
        writers = [start("write", path, n, EACH, PARTITIONS) for n in range(WRITERS)]
        readers = [start("read", path, WRITERS * EACH) for _ in range(READERS)]
        try:
            while sum(each.records for each in stream.describe().partitions) < WRITERS * EACH // 3:
                assert all(writer.poll() is None for writer in writers), [writer.communicate() for writer in writers]
            children = stream.split("p1")
            stream.merge("p2", "p3")
            written = [line for writer in writers for line in lines_of(writer)]
            seen = [lines_of(reader) for reader in readers]
        finally:
            for process in (*writers, *readers):
                process.kill()
                process.wait()

    assert len(written) == WRITERS * EACH
    assert {partition for partition, _, _ in written} >= {"p1", "p2", "p3", *children, "p6"}
    for lines in seen:
        assert sorted(lines) == sorted(written)
        assert faults(lines) == []
