"""The session for locks outside a host: how it begins and ends, and what it is to the hosts of its group."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import anyio
import pytest

from partitions.errors import StoreGone, StoreMisconfigured, StoreUnavailable
from partitions.events import SessionBegan, SessionEnded
from partitions.locks import LockEnd, LockEnded, Session
from partitions.planner import plan
from partitions.stores.memory import MemoryStore
from partitions.verbs import Beat, Leave, Register
from tests.builders import a_lease, a_session
from tests.locks.stage import BEAT_S, CALL_S, DURATION_S, VALIDITY_S, LockStage, of
from tests.stage import GROUP, LATENCY_S, VIRTUAL_TIME, verb_of
from tests.world.diary import passes

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


async def test_session_registers_beats_and_leaves() -> None:
    """One item while the body runs, three writes in each duration, none afterwards."""
    stage = LockStage()
    async with stage.contender() as session:
        assert session.session_id is not None
        item = stage.item(session.session_id)
        extra = {"pid": 7, "host_name": "h"}
        times = {"duration_s": DURATION_S, "handoff_s": DURATION_S}
        assert item == a_session(session.session_id, capacity=0.0, extra=extra, **times)
        assert session.session_id.startswith("a:")
        await passes(10 * DURATION_S)
        assert len(stage.sent(Beat)) in (29, 30)

    assert stage.store.sessions_now(GROUP) == ()
    assert [type(event) for event in stage.events if isinstance(event, SessionBegan | SessionEnded)] == [
        SessionBegan,
        SessionEnded,
    ]
    assert stage.events_of(SessionEnded)[0].lost is False
    assert len(stage.sent(Leave)) == 1


async def test_session_for_locks_is_no_target_of_a_plan() -> None:
    """It handles nothing: a partition that is given to it would rest."""
    stage = LockStage()
    async with stage.contender() as session:
        assert session.session_id is not None
        mine = stage.item(session.session_id)
        assert mine is not None

        planned = plan([a_lease("p"), a_lease("q")], [mine, a_session("h:1")])

        assert dict(planned.targets) == {"p": "h:1", "q": "h:1"}


async def test_session_that_is_lost_goes_on_under_a_new_id_and_its_locks_have_ended() -> None:
    """Losing one is final (rule 4); its item is gone before the next one is used."""
    stage = LockStage()
    async with stage.contender() as session:
        first = session.session_id
        lease = of(await session.try_acquire("nightly"))
        stage.cut("a")
        await passes(VALIDITY_S)
        assert (session.session_id, session.held, lease.end_reason) == (None, {}, LockEnd.SESSION_ENDED)
        stage.mend("a")
        await passes(DURATION_S)

        assert session.session_id not in (None, first)
        assert [item.session_id for item in stage.store.sessions_now(GROUP)] == [session.session_id]
        assert of(await session.try_acquire("nightly")).token == 2


async def test_session_that_was_fenced_ends_with_its_next_beat() -> None:
    """Somebody saw it dead."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        stage.fence(lease.owner)
        with anyio.fail_after(BEAT_S + LATENCY_S):
            await lease.ended.wait()
        await passes(1)

        assert of(await session.try_acquire("nightly")).owner != lease.owner


async def test_session_begins_again_with_growing_pauses_while_the_store_denies_it() -> None:
    """Rights come back; a process that only waits for a lock must not end for them."""
    stage = LockStage()
    async with stage.contender() as session:
        denied = stage.disturb(verb_of(Beat, Register), raises=StoreMisconfigured("denied"))
        await passes(20 * DURATION_S)
        tried_s = stage.sent_at_s(Register)
        assert session.session_id is None
        assert 5 <= len(tried_s) <= 15
        stage.network.faults.remove(denied)
        lease = await session.acquire("nightly")
        assert lease.is_held()


async def test_session_whose_store_is_away_at_the_start_gives_up_after_a_duration() -> None:
    """Whoever starts wants to know."""
    stage = LockStage()
    stage.cut("a")
    began_s = stage.now_s
    with pytest.raises(StoreUnavailable, match="group 'g': no session could be registered in time"):
        async with stage.contender():
            pytest.fail("the body has run")

    assert stage.now_s - began_s <= VALIDITY_S + 4 * CALL_S


async def test_session_whose_store_is_not_there_fails_at_once() -> None:
    """As it is, not in a group of exceptions."""
    stage = LockStage()
    stage.store._groups = None
    began_s = stage.now_s
    with pytest.raises(StoreGone, match="was deleted"):
        async with stage.contender():
            pytest.fail("the body has run")
    assert stage.now_s - began_s < CALL_S


async def test_exception_of_the_body_goes_on_as_it_is_and_the_session_leaves() -> None:
    """Whoever writes `except` around it knows nothing of its tasks."""
    stage = LockStage()

    async def body() -> None:
        async with stage.contender() as session:
            await session.try_acquire("nightly")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        await body()
    assert raised.value.__cause__ is None

    assert (stage.store.sessions_now(GROUP), len(stage.events_of(LockEnded))) == ((), 1)


async def test_fault_of_the_store_ends_the_body_and_is_raised_as_it_is() -> None:
    """What no retry is for: a fault of a program, not of a network; nothing may go on under a session that is dead."""
    stage = LockStage()

    async def body() -> None:
        async with stage.contender() as session:
            lease = of(await session.try_acquire("nightly"))
            stage.disturb(verb_of(Beat), raises=ZeroDivisionError("in the client"))
            try:
                await passes(3600)
            finally:
                ended.append(lease.end_reason)

    ended: list[LockEnd | None] = []
    with pytest.raises(ZeroDivisionError, match="in the client"):
        await body()
    assert ended == [LockEnd.SESSION_ENDED]


@pytest.mark.parametrize("how", ["scope", "task"])
async def test_cancellation_of_the_body_goes_on_and_the_session_leaves(how: str) -> None:
    """By a scope of anyio and by asyncio's own: shielded, for others would wait a whole duration."""
    stage = LockStage()

    async def body() -> None:
        async with stage.contender() as session:
            await session.try_acquire("nightly")
            await passes(3600)

    if how == "scope":
        with anyio.move_on_after(1) as scope:
            await body()
        assert scope.cancelled_caught
    else:
        task = asyncio.get_running_loop().create_task(body())
        await passes(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    assert stage.store.sessions_now(GROUP) == ()


async def test_session_that_ends_between_two_lives_leaves_none_behind() -> None:
    """A register that is on its way may be applied."""
    stage = LockStage()
    async with stage.contender() as session:
        stage.disturb(verb_of(Register), after_s=CALL_S / 2)
        [item] = stage.store.sessions_now(GROUP)
        stage.fence(item.session_id)
        while not stage.store.sessions_now(GROUP):
            await passes(LATENCY_S / 4)
        assert session.session_id is None

    assert stage.store.sessions_now(GROUP) == ()


async def test_session_is_entered_once() -> None:
    """Its tasks belong to one body."""
    stage = LockStage()
    session = stage.contender()
    async with session:
        with pytest.raises(RuntimeError, match="entered once"):
            await session.__aenter__()
    with pytest.raises(RuntimeError, match="entered once"):
        await session.__aenter__()


async def test_acquire_under_a_session_that_was_not_entered_or_is_over_is_refused_at_once() -> None:
    """It would wait for ever, for a session that nobody begins."""
    stage = LockStage()
    session = stage.contender()
    with pytest.raises(RuntimeError, match="session 'a' of group 'g' was not entered; use 'async with Session"):
        await session.acquire("nightly")
    async with session:
        await session.acquire("nightly")
    for acquire in (session.acquire, session.try_acquire):
        with pytest.raises(RuntimeError, match="session 'a' of group 'g' is over; make another one"):
            await acquire("nightly")


async def test_acquire_that_waits_when_the_session_is_over_is_refused() -> None:
    """A task beside the body may outlive it."""
    stage = LockStage()
    ended: list[str] = []

    async def wait(session: Session) -> None:
        with pytest.raises(RuntimeError, match="is over"):
            await session.acquire("nightly")
        ended.append("waiting")

    async with stage.contender("b") as b, anyio.create_task_group() as tasks:
        await b.acquire("nightly")
        async with stage.contender("a") as a:
            tasks.start_soon(wait, a, name="waits")
            await passes(1)
        await passes(1)
        assert ended == ["waiting"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"duration_s": 0.0}, "duration_s=0.0 is no time to live"),
        ({"duration_s": 0.29}, "duration_s=0.29 is no time to live; use a finite number of seconds from 0.3 on"),
        ({"duration_s": math.nan}, "duration_s=nan is no time to live"),
        ({"duration_s": math.inf}, "duration_s=inf is no time to live"),
        ({"poll_s": math.nan}, "poll_s=nan would never let the store rest"),
        ({"group": ""}, "group='' is not an id; use 1 to 128 letters"),
        ({"group": "a b"}, "group='a b' is not an id"),
        ({"host_id": ""}, "host_id='' is not an id"),
        ({"host_id": "x" * 129}, r"host_id='x+' is not an id"),
        ({"duration_s": 6.0, "call_timeout_s": 1.1}, "use 1 or less"),
        ({"call_timeout_s": 0.0}, "leaves no retry inside duration_s=30.0; use 5 or less"),
        ({"poll_s": 0.0}, "poll_s=0.0 would never let the store rest"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], text: str) -> None:
    """Before anything is sent, with what to use instead."""
    with pytest.raises(ValueError, match=text):
        Session(MemoryStore(), **{"group": "g", **values})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"duration_s": "30"}, "duration_s='30' is not a number; give seconds"),
        ({"duration_s": True}, "duration_s=True is not a number"),
        ({"poll_s": None}, "poll_s=None is not a number"),
        ({"call_timeout_s": "1"}, "call_timeout_s='1' is not a number"),
        ({"group": 7}, "group=7 is not a text; give group as a str"),
        ({"host_id": b"a"}, "host_id=b'a' is not a text"),
        ({"store": "sqlite:v.db"}, r"store='sqlite:v.db' is not a store; give an open one, such as .*SqliteStore\('"),
    ],
)
def test_values_of_another_type_are_refused(values: dict[str, Any], text: str) -> None:
    """Some would fail much later, in a comparison or in the store, under the name of something else."""
    with pytest.raises(TypeError, match=text):
        Session(**{"store": MemoryStore(), "group": "g", **values})


async def test_defaults_give_a_name_and_a_clock_of_the_machine() -> None:
    """A store and a group are all that has to be said."""
    store = MemoryStore()
    async with Session(store, group="g") as session:
        [item] = store.sessions_now("g")
        assert (item.duration_s, item.capacity, item.host_id) == (30.0, 0.0, session.host_id)
        assert item.extra.keys() == {"pid", "host_name"}
        lease = of(await session.try_acquire("nightly"))
        assert 29 < lease.remaining_s() <= 30
