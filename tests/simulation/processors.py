"""
What the simulated hosts run: a processor that is slow at times, fails at times, and uses the lease as users do.

It knows the storm only as something that is on or off: once it is over, processors are quick and sound.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import anyio

from processor_host import Batch, ProcessorContext
from tests.simulation.parameters import HostParameters, Parameters
from tests.world.loop import running_loop
from tests.world.processors import Handled, WorldProcessor
from tests.world.world import World

__all__ = ["CALM_RECORD_S", "DrawnFailure", "SimulatedProcessor"]

CALM_RECORD_S = 0.02
"""What a record takes at most once the storm is over."""


class DrawnFailure(Exception):
    """The processor was drawn to fail here."""


class SimulatedProcessor(WorldProcessor):
    """The processor of one term on one host."""

    def __init__(
        self,
        world: World,
        host: HostParameters,
        drawn: Parameters,
        *,
        is_stormy: Callable[[], bool],
        on_stuck: Callable[[float], None],
    ) -> None:
        """
        Make one.

        Args:
            world: Keeps the journal.
            host: Where it runs.
            drawn: What it draws from.
            is_stormy: Whether it may be slow and fail.
            on_stuck: Called with the time until which nobody can take a record out of its hands.
        """
        super().__init__(world, host.place, drawn.record_s, stubborn=host.stubborn)
        self._host = host
        self._drawn = drawn
        self._is_stormy = is_stormy
        self._on_stuck = on_stuck
        self._random = Random()
        self._opened = 0

    async def open(self, context: ProcessorContext) -> None:
        """Note the term, or fail to."""
        # From the term, so that what one partition draws does not hang on how its neighbours run.
        term = f"{self._drawn.seed} {self._host.place} {context.partition} {context.lease.token} {self._opened}"
        self._random = Random(term)
        self._opened += 1
        if self._is_drawn(self._drawn.failing_open):
            raise DrawnFailure("open")
        await super().open(context)

    async def process(self, batch: Batch) -> None:
        """Handle each record, and store or renew or fail as drawn."""
        for record in batch:
            await self.handle(
                Handled(
                    place=self._host.place,
                    partition=record.partition,
                    token=batch.lease.token,
                    position=record.position,
                    data=record.data,
                    start_s=running_loop().time(),
                    held=batch.lease.is_held(),
                )
            )
            if self._random.random() < self._host.checkpoints:
                await batch.checkpoint(record)
            if self._random.random() < self._host.renews:
                await batch.lease.renew()

    async def _work(self, handled: Handled) -> None:
        if self._is_drawn(self._drawn.failing / 2):
            raise DrawnFailure("before the work")
        with anyio.CancelScope(shield=self._stubborn):
            # In two parts, so that one that wakes from a freeze in the first has a second before it.
            for _ in range(2):
                if (part_s := self._record_s_drawn() / 2) > 0:
                    if self._stubborn:
                        self._on_stuck(running_loop().time() + part_s)
                    await anyio.sleep(part_s)
        if self._is_drawn(self._drawn.failing / 2):
            raise DrawnFailure("after the work")

    def _record_s_drawn(self) -> float:
        if not self._is_stormy():
            return min(self._record_s, CALM_RECORD_S)
        if self._is_drawn(self._drawn.slow_records):
            return self._random.uniform(0, 1.5) * self._host.handoff_s
        return self._record_s * self._random.uniform(0, 2)

    def _is_drawn(self, share: float) -> bool:
        return share > 0 and self._is_stormy() and self._random.random() < share
