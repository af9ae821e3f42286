"""What a group at rest costs on DynamoDB, in real time: the whole host, the real client, a server that counts right."""

from __future__ import annotations

from uuid import uuid4

import pytest

from processor_host.events import PlanRound
from tests.proxy import Proxy
from tests.stores.resting import HOSTS, Scale, measure

__all__: list[str] = []

pytestmark = pytest.mark.servers

SCALE = Scale(partitions=200, duration_s=3.0)
"""Time goes 3.3 times as fast as by default, so the bounds are as much higher."""
AUDITS_MAX = 3
"""Of one host in the window: one at each of its ends, and one between."""


async def test_ten_hosts_at_rest_pay_for_beats_looks_and_audits_alone(dynalite_url: str) -> None:
    """A call too many for each beat or partition costs little on a test's table, and a fortune on a large one."""
    with Proxy(dynalite_url, asks_capacity=True) as proxy:
        result = await measure(proxy, f"rest-{uuid4().hex[:12]}", SCALE)

    rest = result.rest
    print(f"at rest after {result.settled_s:.1f} s; for {rest.took_s:.1f} s: {dict(rest.calls)}, {rest.capacity}")
    assert {event.full_read if isinstance(event, PlanRound) else event for event in result.events} == {"audit"}
    assert rest.calls.keys() == {"UpdateItem", "Query of sessions", "Query of leases"}
    assert rest.writes <= SCALE.writes_per_s_max * rest.took_s
    assert rest.reads <= SCALE.reads_per_s_max * rest.took_s
    # Each beat is of an item below 1 KB, which no partition makes larger.
    assert rest.capacity.write_units == rest.writes
    assert len(result.events) <= AUDITS_MAX * HOSTS
