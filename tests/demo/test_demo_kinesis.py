"""
The demo on Kinesis with real processes and real servers: it passes, it can fail, and it leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

ROOT = Path(__file__).parent.parent.parent
DEMO = [sys.executable, "-m", "tests.demo.on_servers"]
AT_MOST_S = 150.0
END_S = 15.0
MUSTS = (
    "records_lost",
    "records_unknown",
    "owner_overlaps",
    "checkpoints_backwards",
    "records_out_of_order",
    "children_early",
)


def environment(folder: Path) -> dict[str, str]:
    """The demo and its servers make their folders in this one, and what a user has of AWS is of no concern."""
    return {**os.environ, "TMPDIR": str(folder), "AWS_PROFILE": "of-a-user", "AWS_SESSION_TOKEN": "of-a-user"}


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A whole demo."""
    return subprocess.run(
        [*DEMO, *options],
        cwd=ROOT,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=AT_MOST_S,
        check=False,
    )


def wait_until(is_so: Callable[[], bool], at_most_s: float) -> bool:
    """Whether it became so."""
    until_s = time.monotonic() + at_most_s
    while not is_so() and time.monotonic() < until_s:
        time.sleep(0.1)
    return is_so()


def processes_of(folder: Path) -> list[str]:
    """The commands of all processes, servers too, that a demo in this folder has left: its environment goes to each."""
    mark = f"TMPDIR={folder}".encode()
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def test_demo_on_kinesis_passes_over_a_split_and_a_merge(tmp_path: Path) -> None:
    """The product does what the demo shows; three partitions are born while records of their parents flow."""
    result = demo(tmp_path, "--json", "--seconds", "3")

    assert result.stdout, result.stderr
    verdict: dict[str, Any] = json.loads(result.stdout)
    assert (result.returncode, verdict["passed"], verdict["failures"]) == (0, True, []), result.stderr
    assert {name: verdict[name] for name in MUSTS} == dict.fromkeys(MUSTS, 0)
    assert verdict["records_handled"] == verdict["records_produced"] > 0
    assert (verdict["births"], verdict["keys_over_births"] >= 2) == (3, True)
    # Five partitions on three hosts.
    assert len(verdict["recovery_s"]) in (1, 2)
    assert 1.0 < verdict["recovery_median_s"] <= verdict["recovery_worst_s"] < 10.0
    assert (processes_of(tmp_path), list(tmp_path.iterdir())) == ([], [])


def test_demo_on_kinesis_fails_where_one_record_is_passed_over(tmp_path: Path) -> None:
    """The whole way from a processor that errs to the exit status."""
    result = demo(tmp_path, "--json", "--seconds", "0", "--processor", "tests.demo.sabotage:SkippingNumber")

    assert result.stdout, result.stderr
    verdict: dict[str, Any] = json.loads(result.stdout)
    assert (result.returncode, verdict["passed"], verdict["records_lost"]) == (1, False, 1), result.stderr
    assert [failure.split(":")[0] for failure in verdict["failures"]] == ["records lost"]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_demo_on_kinesis_leaves_no_process_however_it_ends(number: int, status: int, tmp_path: Path) -> None:
    """Ctrl-C, or a death that can stop nothing: servers, demo, producer and hosts see that nobody is left."""
    folder = tmp_path / "folder"
    folder.mkdir()
    log = tmp_path / "log"
    # To a file: an output that nobody reads any more would end a demo that has noticed nothing.
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*DEMO, "--seconds", "600"], cwd=ROOT, env=environment(folder), stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            assert wait_until(lambda: "share the partitions" in log.read_text(), AT_MOST_S), log.read_text()
            running = len(processes_of(folder))
            process.send_signal(number)
            found = process.wait(AT_MOST_S)
        finally:
            process.kill()
    wait_until(lambda: not processes_of(folder), END_S)

    # This one, two servers, the demo, the producer and three hosts.
    assert (found, running, processes_of(folder)) == (status, 8, []), log.read_text()


def test_make_says_in_one_line_that_node_is_missing_and_makes_nothing(tmp_path: Path) -> None:
    """Whoever has no Node waits for no environment first, and is told what to install."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "cat", "sed"):
        (tools / name).symlink_to(str(shutil.which(name)))
    clone = tmp_path / "clone"
    clone.mkdir()
    shutil.copy(ROOT / "Makefile", clone)

    result = subprocess.run(
        [str(shutil.which("make")), "demo-kinesis"],
        cwd=clone,
        env={"PATH": str(tools), "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.returncode, result.stdout) == (2, "")
    assert [line.partition("*** ")[2] for line in result.stderr.splitlines()] == [
        "node or npm was not found: install Node.js 18 or newer (Debian: apt-get install nodejs npm).  Stop."
    ]
    assert [path.name for path in clone.iterdir()] == ["Makefile"]
