"""
Measures what a group at rest costs on DynamoDB: `python -m tests.stores.bench_dynamodb [SERVER …]`; `make bench-store`.

Ten hosts share a thousand idle partitions. Prints a table for each server, with how the group came to rest; ends with 1
where a bound is broken. The servers differ in speed and in the capacity that they report, not in the calls.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from uuid import uuid4

import anyio

from tests.proxy import Proxy
from tests.servers import KINDS, started
from tests.stores.resting import DURATION_S, HOSTS, Part, Rest, Scale, measure

__all__: list[str] = []

SERVERS = ("dynalite", "ministack")
WRONG_READS = {"ministack", "moto"}
"""They report half a unit for a strong read, whatever its size."""
WRONG_WRITES = {"moto"}
"""It reports one unit, whatever the size of the item."""
BEATS_PER_DURATION = 3


def shown(server: str, scale: Scale, result: Rest) -> Iterator[str]:
    """The table of one run, line by line."""
    start, rest = result.start, result.rest
    yield f"{server}: {scale.partitions} idle partitions, {HOSTS} hosts, D = {scale.duration_s:g} s"
    yield f"  all held in even shares after {result.owned_s:.1f} s, at rest after {result.settled_s:.1f} s"
    yield f"  until then                  {start.writes} writes, {start.reads} reads: {listed(start)}"
    yield f"                              {units(server, start, 1.0)}"
    each = BEATS_PER_DURATION * scale.partitions / scale.duration_s
    yield f"  at rest, for {rest.took_s:.0f} s"
    yield (
        f"    writes a second           {rest.writes / rest.took_s:.2f}, at most {scale.writes_per_s_max:g}"
        f" (renewing each lease would need {each:g})"
    )
    yield f"    reads a second            {rest.reads / rest.took_s:.2f}, at most {scale.reads_per_s_max:g}"
    for name, count in sorted(rest.calls.items()):
        yield f"      {name:<24}{count / rest.took_s:.2f}"
    yield f"    capacity a second         {units(server, rest, rest.took_s)}"


def listed(part: Part) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(part.calls.items()))


def units(server: str, part: Part, over_s: float) -> str:
    """Consumed capacity, with a word where the server is known to report it wrong."""
    writes = "not reported right" if server in WRONG_WRITES else f"{part.capacity.write_units / over_s:.2f}"
    reads = "not reported right" if server in WRONG_READS else f"{part.capacity.read_units / over_s:.2f}"
    return f"write units {writes}, read units {reads}"


def main() -> int:
    """Run on each server in turn."""
    parser = argparse.ArgumentParser(prog="python -m tests.stores.bench_dynamodb")
    parser.add_argument("servers", nargs="*", metavar="SERVER", default=SERVERS, help="dynalite, ministack or moto")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--duration-s", type=float, default=DURATION_S)
    chosen = parser.parse_args()
    if unknown := set(chosen.servers) - KINDS.keys():
        parser.error(f"no server is called {', '.join(sorted(unknown))}")
    scale = Scale(partitions=chosen.partitions, duration_s=chosen.duration_s)
    is_good = True
    for name in chosen.servers:
        with started(name) as server, Proxy(server.url, asks_capacity=True) as proxy:
            result = anyio.run(measure, proxy, f"bench-{uuid4().hex[:12]}", scale)
        print(*shown(name, scale, result), sep="\n", flush=True)
        is_good &= result.rest.writes <= scale.writes_per_s_max * result.rest.took_s
        is_good &= result.rest.reads <= scale.reads_per_s_max * result.rest.took_s
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
