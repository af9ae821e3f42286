"""
Whatever contenders do and whatever befalls them: never two holders, tokens that rise, and a turn for everybody.

A schedule here is a list of commands that hypothesis draws, so that one that fails shrinks to what is needed for it;
the swarm draws other ones, and many more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.errors import StoreUnavailable
from partitions.locks import LockLease
from tests.simulation.directed.checks import demand_in_time
from tests.simulation.directed.contender import Contender, contender
from tests.simulation.directed.schedules import Schedule
from tests.simulation.directed.stage import DRIFTING, Stage, of
from tests.world.clocks import PlaceClock

__all__: list[str] = []

D = 6.0
PLACES = ("a", "b", "c")
NAMES = ("nightly", "other")
OPERATIONS = ("AcquireLock", "ReleaseLock", "Beat", "Fence", "read_lock", "read_session", "read_some_locks")

WHO = st.sampled_from(PLACES)
NAME = st.sampled_from(NAMES)
Command = tuple[Any, ...]
COMMANDS = st.one_of(
    st.tuples(st.just("try"), WHO, NAME),
    st.tuples(st.just("try"), WHO, NAME),
    st.tuples(st.just("wait for"), WHO, NAME),
    st.tuples(st.just("release"), WHO, NAME),
    st.tuples(st.just("renew"), WHO, NAME),
    st.tuples(st.just("pass"), st.sampled_from([0.01, 0.3, 1.0, D / 2, 1.2 * D])),
    st.tuples(st.just("pass"), st.sampled_from([0.01, 0.3, 1.0, D / 2, 1.2 * D])),
    st.tuples(st.just("freeze"), WHO),
    st.tuples(st.just("thaw"), WHO),
    st.tuples(st.just("cut"), WHO, st.sampled_from(["cut_off", "deaf"])),
    st.tuples(st.just("mend"), WHO),
    st.tuples(
        st.just("disturb"),
        WHO,
        st.sampled_from(OPERATIONS),
        st.sampled_from(
            [
                {"fail_before": True},
                {"fail_after": True},
                {"lose_answer": True},
                {"before_s": 0.7},
                {"before_s": D},
                {"after_s": 0.9},
                {"repeat_after_s": 0.5},
                {"repeat_after_s": 2 * D},
            ]
        ),
    ),
)


class Play:
    """Does the commands; a contender is busy with one call at a time."""

    def __init__(self, stage: Stage, contenders: dict[str, Contender]) -> None:
        self._stage = stage
        self._contenders = contenders
        self._leases: dict[tuple[str, str], LockLease] = {}

    async def do(self, what: str, *about: Any) -> None:
        """Do one command; what cannot be done now is left out."""
        world = self._stage.world
        if what == "pass":
            await world.wait(about[0])
            return
        place, *rest = about
        one = self._contenders[place]
        is_frozen = any(at == place and to_s == float("inf") for at, _, to_s in world.freezes)
        if what == "freeze" and not is_frozen:
            world.freeze(place)
        elif what == "thaw" and is_frozen:
            world.thaw(place)
        elif what == "cut":
            getattr(world.network, rest[0]).add(place)
        elif what == "mend":
            world.network.cut_off.discard(place)
            world.network.deaf.discard(place)
        elif what == "disturb":
            self._stage.disturb(of(place, rest[0]), times=1, **rest[1])
        elif what in ("try", "wait for"):
            one.start(self._acquire, one, rest[0], what == "wait for")
        elif (lease := self._leases.get((place, rest[0] if rest else ""))) is not None:
            one.start(self._use, lease, what)

    async def _acquire(self, one: Contender, name: str, is_waiting: bool) -> None:
        try:
            lease = await (one.locks.acquire(name, timeout_s=2 * D) if is_waiting else one.locks.try_acquire(name))
        except (TimeoutError, StoreUnavailable):
            return
        if lease is not None:
            self._leases[one.place, name] = lease
            one.work(lease)

    async def _use(self, lease: LockLease, what: str) -> None:
        try:
            await (lease.release() if what == "release" else lease.renew())
        except StoreUnavailable:
            return


async def body(stage: Stage, commands: Sequence[Command]) -> None:
    """Play the commands, end every fault, and ask for a turn for each."""
    world = stage.world
    rates = dict(zip(PLACES, (*DRIFTING, 1.0), strict=True))
    contenders = {
        place: await contender(stage, place, clock=PlaceClock(rate=rate, offset_s=1e5 * rate))
        for place, rate in rates.items()
    }
    play = Play(stage, contenders)
    for command in commands:
        await play.do(*command)
    stage.heal()
    # What is late arrives, and who was lost is back.
    await world.wait(4 * D)
    for one in contenders.values():
        for lease in list(one.locks.held.values()):
            await one.do(lease.release)
    for one in contenders.values():
        for name in NAMES:
            turn = one.start(one.locks.acquire, name)
            await demand_in_time(world, "every contender has its turn", turn.done, within_s=3 * D)
            await one.do(turn.result().release)
    for one in contenders.values():
        await one.leave()


@settings(max_examples=60)
@given(st.lists(COMMANDS, min_size=5, max_size=40))
def test_locks_have_one_holder_rising_tokens_and_turns_for_all(commands: list[Command]) -> None:
    """Under the checkers of the simulation, which read the history alone."""
    played = Schedule(name="drawn", body=body, case={"commands": commands}, world={"partitions": 0}, ends_calm=False)

    verdict = played.play()

    if verdict.crash is not None:
        raise verdict.crash
    assert verdict.failures == ()
