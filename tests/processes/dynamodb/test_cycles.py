"""Clients are made once, however often leases come and go: C40."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.processes.dynamodb.cycling import FIRST, Sample
from tests.processes.dynamodb.tables import TableGroup
from tests.processes.harness import environment
from tests.processes.scaling import figure
from tests.servers import DUMMY_CREDENTIALS

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

CYCLES = 1000
GROWTH_BYTES_MAX = 20 * 1000**2
WITHIN_S = 240.0


def test_c40_cycles_of_acquire_process_release_cost_neither_memory_nor_clients(table_group: TableGroup) -> None:
    """A client for each call loads the models of the service again, and is closed too late or never."""
    group = table_group
    group.create(4)
    group.put(CYCLES // 4 + 50)
    command = [sys.executable, "-W", "always", "-m", "tests.processes.dynamodb.cycling"]
    done = subprocess.run(
        [*command, str(CYCLES), group.store_url, f"local://{group.folder / 's.db'}"],
        cwd=group.folder,
        env={**os.environ, **environment(group.folder), **DUMMY_CREDENTIALS},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )

    samples = [Sample(**json.loads(line)) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    first, last = samples[0], samples[-1]
    growth = last.rss_bytes - first.rss_bytes
    figure(
        f"{CYCLES} cycles in {last.took_s:.1f} s: {growth / 1e6:.1f} MB more than at {FIRST} (bound 20 MB), "
        f"clients {[each.clients for each in samples]}, sockets {[each.sockets for each in samples]}"
    )
    assert (first.cycles, last.cycles) == (FIRST, CYCLES)
    assert growth < GROWTH_BYTES_MAX
    # Three of the host's store, and one for the beats on a loop of their own.
    assert {each.clients for each in samples} == {4}
    assert max(each.sockets for each in samples) <= first.sockets + 4
    assert group.proxy.count("UpdateItem") >= 3 * CYCLES
