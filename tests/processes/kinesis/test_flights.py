"""
Three processes count real flights while their stream goes through 4, 8 and 3 shards, and one of them is killed.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import FLIGHTS, FLIGHTS_WHOLE_YEAR
from tests.processes import carriers
from tests.processes.carriers import Sums
from tests.processes.harness import Host, command_line, environment
from tests.processes.kinesis.judging import order_at
from tests.processes.kinesis.streams import StreamGroup
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure
from tests.processes.test_flights import sums_of
from tests.servers import DUMMY_CREDENTIALS

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

D_S = 3.0
MERGES = (0, 1, 2, 0, 2)
"""Which of the open shards is merged with the next, step by step: from eight to three."""


def test_flights_through_4_8_and_3_shards_are_each_counted_once_when_a_host_is_killed(
    fast_group: StreamGroup, flights_file: Path
) -> None:
    """The first 27,004 flights, which every clone has."""
    count(fast_group, flights_file, FLIGHTS, batch_records_max=100, within_s=60)


@pytest.mark.whole_year
def test_flights_of_the_whole_year_through_4_8_and_3_shards_are_each_counted_once_when_a_host_is_killed(
    fast_group: StreamGroup, whole_year_file: Path
) -> None:
    """All 336,776."""
    count(fast_group, whole_year_file, FLIGHTS_WHOLE_YEAR, batch_records_max=1000, within_s=240)


def count(group: StreamGroup, file: Path, flights: int, *, batch_records_max: int, within_s: float) -> None:
    """Run the group over the flights and compare; nobody counts by the product's own code but the hosts."""
    group.create(4)
    hosts = [start(group, name, batch_records_max) for name in "abc"]
    group.wait_shared(hosts)
    sums = Sums(group.folder / "carriers.db")
    lines = gzip.decompress(file.read_bytes()).splitlines()
    third = flights // 3
    began_s = now_s()

    with filling(group, lines[:third]):
        pass
    for shard in group.open_shards():
        group.split(shard)
    with filling(group, lines[third : 2 * third]):
        group.wait_until("half of the flights are counted", lambda: done(sums) >= flights / 2, within_s, every_s=0.05)
        at_kill = done(sums)
        hosts[0].kill()
    # What the killed host had is still unread: its shards end under their next owners.
    for index in MERGES:
        shards = group.open_shards()
        group.merge(shards[index], shards[index + 1])
    with filling(group, lines[2 * third :]):
        pass
    filled_s = now_s() - began_s
    group.wait_until("all flights are counted", lambda: done(sums) >= flights, within_s, every_s=0.2)
    took_s = now_s() - began_s
    group.wait_shared(hosts[1:])
    for host in hosts[1:]:
        host.terminate()
    statuses = [host.wait(20) for host in hosts[1:]]

    handled = rows(sums)
    by_host = Counter(host for _, _, _, _, host in handled)
    through = Counter(shard for shard, _, _, _, _ in handled)
    figure(
        f"{flights} flights in {took_s:.1f} s (in the stream after {filled_s:.1f} s), killed at {at_kill}, "
        f"{len(handled) - flights} again, through {len(through)} shards, by host {dict(by_host)}"
    )
    assert statuses == [0, 0]
    assert len(group.open_shards()) == 3
    # Four, eight and three; those in between got nothing.
    assert len(through) == 15
    assert {carrier: (n, miles) for carrier, n, miles in sums.rows("SELECT * FROM carriers")} == sums_of(file)
    assert 0 < at_kill < flights
    assert min(by_host[name] for name in "abc") > 0
    check_order(handled, lines)
    sums.close()


def start(group: StreamGroup, name: str, batch_records_max: int) -> Host:
    return group.start(
        name,
        *("--lifespan", "tests.processes.carriers:lifespan", "--checkpoint-interval-s", "0.5"),
        # Children are seen long before their parents are done.
        *("--batch-records-max", str(batch_records_max), "--discovery-interval-s", "1"),
        lease_duration_s=D_S,
        processor="tests.processes.carriers:Carriers",
        env={carriers.FILE: "carriers.db", carriers.PAUSE_S: "0.1"},
    )


@contextmanager
def filling(group: StreamGroup, lines: Sequence[bytes]) -> Iterator[None]:
    """Import flights by the command line, each under its aircraft, while the body runs; return when all are in."""
    file = group.folder / "part.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    with subprocess.Popen(
        command_line("stream", "import", group.stream_url, str(file), "--key", "tailnum"),
        cwd=group.folder,
        env={**environment(group.folder), **DUMMY_CREDENTIALS},
        stdout=subprocess.DEVNULL,
    ) as importing:
        try:
            yield
            assert importing.wait(120) == 0
        finally:
            importing.kill()


def rows(sums: Sums) -> list[tuple[str, int, int, int, str]]:
    """Shard, token, order, flight and host of each handling, in the order in which they were added."""
    return [
        (shard, token, order_at(position), flight, host)
        for shard, token, position, flight, host in sums.rows(
            "SELECT partition, token, position, flight, host FROM handled ORDER BY n"
        )
    ]


def done(sums: Sums) -> int:
    ((number,),) = sums.rows("SELECT count(*) FROM done")
    return int(number)


def check_order(handled: Sequence[tuple[str, int, int, int, str]], lines: Sequence[bytes]) -> None:
    """Flights of each aircraft are counted, the first time, in the order of the file; tokens and places only grow."""
    aircraft = {flight["id"]: flight["tailnum"] for flight in map(json.loads, lines)}
    newest: dict[str, int] = {}
    last: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    seen: set[int] = set()
    for shard, token, order, flight, _ in handled:
        assert (token, order) > last[shard], f"{shard}: {order} under token {token} after {last[shard]}"
        last[shard] = token, order
        if flight in seen:
            continue
        seen.add(flight)
        key = aircraft[flight]
        assert key is None or flight > newest.get(key, -1), f"{key}: flight {flight} after {newest[key]}"
        newest[key] = flight
    assert seen == aircraft.keys()
