"""Clock skew: C14. Wall clocks are for people, and nobody compares a stored time with a clock of their own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from partitions.events import SessionEnded, SessionFenced
from partitions.verbs import Acquire
from tests.cases.virtual import virtual
from tests.world.checks import check_safety
from tests.world.clocks import PlaceClock
from tests.world.world import World

__all__: list[str] = []

ROOT = Path(__file__).parents[2]
WALL_S = 1_767_225_600.0
"""The wall clock as the world starts: New Year 2026."""

WALL_CLOCKS = {
    "time.time", "time.time_ns", "time.gmtime", "time.localtime", "time.ctime", "time.strftime",
    "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
}  # fmt: skip
MAY_READ_ONE = {
    "processor_host/cli/run.py",  # The session's `started_at`, which no code reads.
    "processor_host/host.py",  # The times of dead letters, and `until` where it is a time of the stream's own.
    "processor_host/pump_parts.py",  # The same, where it is no host's.
    "partitions/sources/kinesis/_source.py",  # Where a stream that tells no time of its own starts at its end.
    "partitions/sources/local/_stream.py",  # The times of records, which are their stream's own.
}


@pytest.mark.parametrize("wrong_by_s", [3600.0, -3600.0, "jumps by ten minutes"])
@virtual
async def test_c14_host_whose_wall_clock_is_off_takes_no_live_lease(wrong_by_s: float | str) -> None:
    """A beat counts because it changed, never by what time anybody says it is."""
    world = World(partitions=4)
    world.put(100)
    world.start("a", clock=PlaceClock(offset_s=WALL_S), about={"wall_s": WALL_S})
    await world.until(lambda: set(world.owners().values()) == {"a"}, within_s=5)
    owned = world.leases()
    off_s = 0.0 if isinstance(wrong_by_s, str) else wrong_by_s
    # Stealing is off: so small a share is no lease while A is there.
    clock = PlaceClock(offset_s=WALL_S + off_s)
    world.start("b", clock=clock, about={"wall_s": WALL_S + off_s}, capacity=1e-6)
    await world.wait(30.0)
    if isinstance(wrong_by_s, str):
        # What the host counts by does not jump; its wall clock, its stream's and what it says of itself do.
        for name in owned:
            world.source.put(name, b"later", time_s=world.now_s + 600)
        world.stop("b")
        await world.until(world.hosts["b"].task.done, within_s=5)
        world.start("b2", host_id="b", clock=clock, about={"wall_s": WALL_S + 600}, capacity=1e-6)
    await world.wait(30.0)

    assert [write for write in world.network.applied(Acquire) if write.place != "a"] == []
    assert {name: (lease.owner, lease.token) for name, lease in world.leases().items()} == {
        name: (lease.owner, lease.token) for name, lease in owned.items()
    }
    assert world.events(SessionFenced) == []
    assert world.events(SessionEnded, place="a") == []
    check_safety(world)


def wall_clocks_in(text: str) -> list[str]:
    """Every reading of a wall clock in a module."""
    names = (ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
    imported = (
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
    return [name for name in (*names, *imported) if any(name.endswith(clock) for clock in WALL_CLOCKS)]


def test_c14_no_module_reads_a_wall_clock_but_for_people() -> None:
    """A wall clock that jumps in the middle of a run can do nothing to code that never reads one."""
    modules = [*ROOT.glob("partitions/**/*.py"), *ROOT.glob("processor_host/**/*.py")]
    readers = {str(module.relative_to(ROOT)): wall_clocks_in(module.read_text("utf-8")) for module in modules}

    assert {module: found for module, found in readers.items() if found and module not in MAY_READ_ONE} == {}
    assert wall_clocks_in("import time\nbeat_at = time.time()") == ["time.time"]
    assert wall_clocks_in("from time import time") == ["time.time"]
    assert wall_clocks_in("import datetime\nat = datetime.datetime.now()") == ["datetime.datetime.now"]
