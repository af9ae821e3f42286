"""Scenarios of many writers at once: the result is as if they had come one after the other."""

from __future__ import annotations

from typing import Any

import anyio

from partitions.items import LeaseItem
from partitions.stores.base import Store
from partitions.verbs import (
    Acquire,
    Applied,
    Ask,
    Beat,
    Child,
    Complete,
    Create,
    Fence,
    Refused,
    Register,
    Result,
    SaveCheckpoint,
    SetUp,
    Verb,
)
from tests.builders import a_beat, a_group, a_lease, a_register, a_session, an_acquire
from tests.stores.scenarios.saying import created, owned, registered, scenario

__all__ = ["all_at_once"]

RACERS = 32


async def all_at_once(store: Store, group: str, verbs: list[Verb[Any]]) -> list[Result[Any]]:
    """Submit all of them before the first is answered; return the answers in the order of the verbs."""
    answers: dict[int, Result[Any]] = {}

    async def one(number: int, verb: Verb[Any]) -> None:
        answers[number] = await store.submit(group, verb)

    async with anyio.create_task_group() as tasks:
        for number, verb in enumerate(verbs):
            tasks.start_soon(one, number, verb)
    return [answers[number] for number in range(len(verbs))]


@scenario(Acquire)
async def acquire_has_one_winner_of_many(store: Store, group: str) -> None:
    """All saw the lease free; exactly one owns it, and every other one is told who."""
    free = await created(store, group)

    answers = await all_at_once(store, group, [an_acquire(free, f"host-{n}:1") for n in range(RACERS)])

    held = await store.read_lease(group, "p")
    assert held is not None
    assert held.token == 1
    assert [answer.item for answer in answers if isinstance(answer, Applied)] == [held]
    assert [answer.current for answer in answers if isinstance(answer, Refused)] == [held] * (RACERS - 1)
    winner = answers.index(Applied(item=held))
    assert (held.owner, held.last_host) == (f"host-{winner}:1", f"host-{winner}")


@scenario(SaveCheckpoint)
async def checkpoint_never_moves_back_under_races(store: Store, group: str) -> None:
    """Retries overtake one another; the highest number stands, with its own position."""
    await owned(store, group)
    order = [number * 11 % RACERS + 1 for number in range(RACERS)]

    def save(seq: int) -> SaveCheckpoint:
        return SaveCheckpoint(partition="p", owner="a:1", token=1, position=f"at {seq}", seq=seq)

    answers = await all_at_once(store, group, [save(seq) for seq in order])

    held = await store.read_lease(group, "p")
    assert held == a_lease("p", owner="a:1", token=1, last_host="a", position=f"at {RACERS}", seq=RACERS)
    assert answers[order.index(RACERS)] == Applied(item=held)
    for seq, answer in zip(order, answers, strict=True):
        found = answer.item if isinstance(answer, Applied) else answer.current
        assert isinstance(found, LeaseItem)
        assert found.seq == seq if isinstance(answer, Applied) else found.seq > seq


@scenario(Beat)
async def beat_loses_no_count_under_races(store: Store, group: str) -> None:
    """Each beat sees the one before it; a lost one would make a live host look dead."""
    await registered(store, group)

    answers = await all_at_once(store, group, [a_beat() for _ in range(RACERS)])

    beats = [answer.item.beat for answer in answers if isinstance(answer, Applied) and answer.item is not None]
    assert sorted(beats) == list(range(1, RACERS + 1))
    assert await store.read_session(group, "a:1") == a_session(beat=RACERS)


@scenario(Fence)
async def fence_or_beat_is_decided_by_one_order(store: Store, group: str) -> None:
    """Either the beat came first and the session lives, or the fence did and the beat is told so."""
    await registered(store, group)

    fenced, beaten = await all_at_once(store, group, [Fence(session_id="a:1", seen_beat=0), a_beat()])

    alive = a_session(beat=1)
    assert (fenced, beaten, await store.read_session(group, "a:1")) in [
        (Applied(item=None), Refused(current=None), None),
        (Refused(current=alive), Applied(item=alive), alive),
    ]


@scenario(Ask)
async def ask_loses_no_key_under_races(store: Store, group: str) -> None:
    """Several askers and the owner's beat write to one item; each key is there once, for the asker that was told so."""
    await registered(store, group)
    asks = [Ask(session_id="a:1", keys=(f"p-{n % 16}@1",), asker=f"host-{n}:1") for n in range(RACERS)]

    answers = await all_at_once(store, group, [*asks, a_beat()])

    won = {ask.keys[0]: ask.asker for ask, answer in zip(asks, answers, strict=False) if isinstance(answer, Applied)}
    assert len(won) == 16
    assert await store.read_session(group, "a:1") == a_session(beat=1, asks=won)


@scenario(Complete, needs_transactions=True)
async def complete_of_both_halves_of_a_merge_makes_one_child(store: Store, group: str) -> None:
    """The halves end at the same moment; neither may fail for it."""
    for partition in ("p", "q"):
        await owned(store, group, partition)
    child = Child(partition="merged", parents=("p", "q"), position="start")
    halves = [Complete(partition=partition, owner="a:1", token=1, children=(child,)) for partition in ("p", "q")]

    answers = await all_at_once(store, group, list(halves))

    assert [type(answer) for answer in answers] == [Applied, Applied]
    merged = a_lease("merged", parents=("p", "q"), position="start")
    assert await store.read_some_leases(group, ["merged"]) == (merged,)


@scenario(None)
async def first_write_of_many_makes_the_item(store: Store, group: str) -> None:
    """All hosts of a new group start at once: one of each item, as its first writer meant it."""
    creates: list[Verb[Any]] = [Create(partition="p", position=str(n)) for n in range(8)]
    registers: list[Verb[Any]] = [a_register(duration_s=float(n + 1)) for n in range(8)]
    set_ups: list[Verb[Any]] = [SetUp(item=a_group(start=str(n))) for n in range(8)]
    assert {type(verb) for verb in registers} == {Register}

    for verbs in (creates, registers, set_ups):
        answers = await all_at_once(store, group, verbs)
        won = [answer.item for answer in answers if isinstance(answer, Applied)]
        assert len(won) == 1
        assert [answer.current for answer in answers if isinstance(answer, Refused)] == won * 7
