"""What the simulation found, each as the smallest schedule that shows it: a seed draws something else one day."""

from __future__ import annotations

import pytest

from partitions.events import LeaseReleased, SessionFenced
from partitions.verbs import Ask, Beat, Leave, Release, SaveCheckpoint
from processor_host import Batch
from processor_host.events import HostStopped
from tests.simulation.checkers import check
from tests.world.loop import result_of, run_virtual
from tests.world.processors import WorldProcessor
from tests.world.world import GROUP, World

__all__: list[str] = []

D = 6.0
BEAT_S = D / 3


def test_stop_is_not_blamed_for_a_release_that_is_on_its_way() -> None:
    """The processor has ended; what is left is a write that nobody answers, while the session runs out (seed 21)."""

    async def scenario() -> None:
        world = World(partitions=1)
        world.put(10)
        world.start("a")
        await world.until(lambda: len(world.running()) == 1, within_s=5)
        world.network.disturb(lambda call: isinstance(call.verb, Beat), lose_request=True)
        await world.wait(D - 2.1)
        world.network.disturb(lambda call: isinstance(call.verb, Release), lose_request=True)
        world.stop("a")

        assert await result_of(world.hosts["a"].task) == 0
        assert world.events(HostStopped) == [HostStopped(still_running=())]
        assert check(world) == []

    run_virtual(scenario)


def test_stop_survives_a_fence_on_its_way_while_it_reads_the_sessions() -> None:
    """The stop's read may no longer show the session that a round is about to fence (seed 20601)."""

    async def scenario() -> None:
        world = World(partitions=3)
        world.put(100)
        for place in "abc":
            # A record in hand keeps the host until the fence is answered.
            world.start(place, record_s=1.0)
        await world.until(lambda: len(world.running()) == 3, within_s=5)
        world.kill("b")
        world.kill("c")
        # The first fence of two takes its time, and the sessions of both go away meanwhile.
        world.network.disturb(lambda call: call.operation == "Fence", before_s=0.5, times=1)
        await world.until(lambda: any(call.operation == "Fence" for _, call in world.network.calls), within_s=2 * D)
        for session in list(world.sessions().values()):
            if session.host_id != "a":
                world.store.apply_now(GROUP, Leave(session_id=session.session_id))
        world.stop("a")

        assert await result_of(world.hosts["a"].task) == 0
        assert world.events(SessionFenced) == []

    run_virtual(scenario)


class Failing(WorldProcessor):
    """Raises at every record but the first."""

    async def process(self, batch: Batch) -> None:
        """Handle the first one."""
        for record in batch:
            if record.position != "1":
                raise RuntimeError(f"at {record.position}")
        await super().process(batch)


@pytest.mark.parametrize("why", ["asked", "stopped"])
def test_failed_processor_whose_checkpoint_is_not_answered_is_handed_over_at_once(why: str) -> None:
    """The release carries the checkpoint as well: no hand-off or stop may wait for a save before it (seed 40614)."""

    async def scenario() -> None:
        world = World(partitions=1)
        world.network.disturb(lambda call: isinstance(call.verb, SaveCheckpoint), lose_request=True)
        world.start("a", processor=lambda: Failing(world, "a", 0.0), batch_records_max=1)
        await world.until(lambda: len(world.running()) == 1, within_s=5)
        world.put(2)
        await world.until(lambda: not world.running(), within_s=5)
        if why == "asked":
            [session_id] = world.sessions()
            world.store.apply_now(GROUP, Ask(session_id=session_id, keys=("p0@1",), asker=""))
        else:
            world.stop("a")
        await world.until(lambda: bool(world.events(LeaseReleased)), within_s=BEAT_S + 1.0)

        [released] = world.events(LeaseReleased)
        assert (released.token, released.position) == (1, "1")
        if why == "stopped":
            assert await result_of(world.hosts["a"].task) == 0
        assert check(world) == []

    run_virtual(scenario)
