"""
Demands of single schedules, by name: what the checkers of the simulation cannot ask of every history.

It reads the store, the journal and the network's calls, never a host.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.checkers import Failure
from tests.world.world import World

__all__ = ["Unmet", "demand", "demand_in_time", "demand_reads"]


class Unmet(AssertionError):
    """A demand that a schedule made was not met; nothing after it can be asked."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.failure = Failure(checker=checker, text=text)


def demand(name: str, holds: bool, text: object) -> None:
    """
    Ask for one thing.

    Raises:
        Unmet: it is not so; `text` tells what is.
    """
    if not holds:
        raise Unmet(name, str(text))


async def demand_in_time(
    world: World, name: str, holds: Callable[[], bool], *, within_s: float, since_s: float | None = None
) -> float:
    """
    Ask for something that must come true within a time, from now or from `since_s` on.

    Returns:
        When it did, seconds after that.

    Raises:
        Unmet: it has not come true by then.
    """
    began_s = world.now_s if since_s is None else since_s
    while not holds():
        if world.now_s - began_s >= within_s:
            raise Unmet(name, f"not within {within_s:g} s of {began_s}; owners: {world.owners()}")
        await world.wait(0.05)
    return world.now_s - began_s


def demand_reads(world: World, name: str, *, since_s: float, most: int) -> None:
    """
    Ask that all leases were read at most so often after a time, by all hosts together.

    Raises:
        Unmet: they were read more often.
    """
    reads_s = [at_s for at_s, call in world.network.calls if call.operation == "read_leases" and at_s >= since_s]
    demand(name, len(reads_s) <= most, f"{len(reads_s)} reads of all leases since {since_s}, at most {most}: {reads_s}")
