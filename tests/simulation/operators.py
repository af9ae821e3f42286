"""
An operator in a place of a virtual world: the product's commands, over the network, with a clock of its own.

It can be cut off, frozen and killed like a host. Knows no command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from processor_host.operating.operator import Operator
from tests.world.clocks import PlaceClock
from tests.world.loop import VirtualTask, result_of, run_in_place
from tests.world.network import PlaceSource, PlaceStore
from tests.world.world import GROUP, World

__all__ = ["OperatorAt"]

T = TypeVar("T")


class OperatorAt:
    """
    One operator.

    Attributes:
        told: The lines that a person would have read.
        operator: What the commands get.
        source: The stream as this place sees it.
    """

    def __init__(self, world: World, place: str = "operator", *, clock: PlaceClock | None = None) -> None:
        self.place = place
        self.told: list[str] = []
        clock = clock or PlaceClock(offset_s=world.random.uniform(0, 1e6))
        world.clocks[place] = clock
        self.operator = Operator(
            store=PlaceStore(world.network),
            group=GROUP,
            clock=clock,
            random=Random(world.random.getrandbits(64)),
            host_id=place,
            tell=self.told.append,
            call_timeout_s=1.0,
        )
        self.source = PlaceSource(world.network)

    def start(self, command: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> VirtualTask[T]:
        """Begin a command; its first argument is this operator."""

        async def do() -> T:
            return await command(self.operator, *args, **named)

        return run_in_place(self.place, do)

    async def do(self, command: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
        """Do a command, and wait for its outcome."""
        return await result_of(self.start(command, *args, **named))
