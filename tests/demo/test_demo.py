"""
The demo with real processes: it passes, it can fail, and it leaves nothing behind, however it ends.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.demo.sabotage import SKIPPED

__all__: list[str] = []

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parent.parent.parent
DEMO = [sys.executable, "-m", "processor_host.demo"]
SHORT = ["--partitions", "6", "--seconds", "4"]
AT_MOST_S = 90.0
STARTED = re.compile(r"started .* \(pid (\d+)\)")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The demo makes its own folder in this one."""
    return {**os.environ, "TMPDIR": str(folder), **more}


def demo(folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A whole demo."""
    return subprocess.run(
        [*DEMO, *SHORT, *options],
        cwd=ROOT,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=AT_MOST_S,
        check=False,
    )


def is_running(pid: int) -> bool:
    """Whether the process runs; one that has ended and only waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(is_so: Callable[[], bool], at_most_s: float) -> bool:
    """Whether it became so."""
    until_s = time.monotonic() + at_most_s
    while not is_so() and time.monotonic() < until_s:
        time.sleep(0.1)
    return is_so()


def interrupted(folder: Path, number: int) -> tuple[int, str]:
    """The status and the output of a demo that gets a signal when three hosts share the partitions."""
    output: list[str] = []
    command = [*DEMO, *SHORT, "--seconds", "60"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                output.append(line)
                if "share the partitions" in line:
                    process.send_signal(number)
            status = process.wait(AT_MOST_S)
        finally:
            process.kill()
    return status, "".join(output)


def children_of(output: str) -> list[int]:
    """The process ids that a demo told."""
    return [int(pid) for pid in STARTED.findall(output)]


def test_demo_passes_and_its_figures_are_those_of_a_kill_and_a_drain(tmp_path: Path) -> None:
    """The product does what the demo shows, and what a user has in the environment changes nothing."""
    result = demo(tmp_path, "--json", PROCESSOR_HOST_LEASE_DURATION_S="600", PROCESSOR_HOST_METRICS_PORT="1")

    verdict: dict[str, Any] = json.loads(result.stdout)
    assert (result.returncode, verdict["passed"], verdict["failures"]) == (0, True, []), result.stderr
    musts = ("records_lost", "records_unknown", "owner_overlaps", "checkpoints_backwards")
    assert {name: verdict[name] for name in musts} == dict.fromkeys(musts, 0)
    assert verdict["records_handled"] == verdict["records_produced"] > 0
    # Six partitions on three hosts: two are lost by the kill, at least those of the host that drains move in order.
    assert len(verdict["recovery_s"]) == 2
    assert 1.0 < verdict["recovery_median_s"] <= verdict["recovery_worst_s"] < 10.0
    assert verdict["orderly_moves"] >= 2
    assert 0.0 < verdict["handoff_gap_s"] < 5.0
    assert list(tmp_path.iterdir()) == []
    assert [pid for pid in children_of(result.stderr) if is_running(pid)] == []


def test_demo_fails_where_one_record_is_passed_over(tmp_path: Path) -> None:
    """The whole way from a processor that errs to the exit status; a verdict that cannot fail shows nothing."""
    result = demo(tmp_path, "--json", "--processor", "tests.demo.sabotage:Skipping")

    verdict: dict[str, Any] = json.loads(result.stdout)
    partition, position = SKIPPED
    assert result.returncode == 1
    assert (verdict["passed"], verdict["records_lost"]) == (False, 1), result.stderr
    assert verdict["failures"] == [f"records lost: 1; the first: {partition} at {position!r}"]
    assert list(tmp_path.iterdir()) == []


def test_demo_fails_where_a_host_ends_by_itself_and_keeps_its_folder_when_told_to(tmp_path: Path) -> None:
    """What went wrong is told with the host's status, and can be looked at."""
    result = demo(tmp_path, "--keep", "--processor", "tests.demo.sabotage:Falling")

    assert result.returncode == 1
    assert "ended with status 7; it wrote: " in result.stdout
    assert "FAILED: records lost: " in result.stdout
    (kept,) = tmp_path.iterdir()
    assert result.stdout.splitlines()[-1] == f"kept {kept}"
    assert {path.name for path in kept.iterdir()} >= {"journals", "logs", "produced.jsonl", "stream.db", "leases.db"}
    assert [pid for pid in children_of(result.stdout) if is_running(pid)] == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_demo_leaves_no_process_and_no_folder_when_it_is_interrupted(number: int, status: int, tmp_path: Path) -> None:
    """Somebody who has seen enough presses Ctrl-C."""
    found, output = interrupted(tmp_path, number)

    assert (found, list(tmp_path.iterdir())) == (status, []), output
    assert len(children_of(output)) == 4, output
    assert [pid for pid in children_of(output) if is_running(pid)] == []


def test_demo_leaves_no_process_when_it_is_killed_itself(tmp_path: Path) -> None:
    """Then nobody is left to stop its children; they see that it is gone."""
    found, output = interrupted(tmp_path, signal.SIGKILL)

    assert (found, len(children_of(output))) == (-signal.SIGKILL, 4), output
    assert wait_until(lambda: not any(is_running(pid) for pid in children_of(output)), 15.0)
