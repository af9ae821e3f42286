"""
Scenarios of what stands beside a checkpoint: attempts, suspects and what is prepared; who sets them, who ends them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from partitions.items import LeaseItem, Prepared
from partitions.positions import END
from partitions.stores.base import Store
from partitions.verbs import Acquire, Attempt, Complete, Pause, Prepare, Release, Resume, SaveCheckpoint
from tests.builders import an_acquire
from tests.stores.scenarios.saying import applied, is_applied, is_refused, owned, scenario

__all__: list[str] = []

PREPARED: Final = Prepared(state="", position="at 9")
"""A state may be empty: that something was prepared is the news."""


def attempt(**changes: object) -> Attempt:
    """The attempt of `a:1` in its first term, with what differs."""
    defaults = {"owner": "a:1", "token": 1, "seq": 4}
    return Attempt(partition="p", **(defaults | changes))  # type: ignore[arg-type]


def prepare(**changes: object) -> Prepare:
    """What `a:1` prepares in its first term, with what differs."""
    defaults = {"owner": "a:1", "token": 1, "seq": 4, "prepared": PREPARED}
    return Prepare(partition="p", **(defaults | changes))  # type: ignore[arg-type]


async def doubted(store: Store, group: str) -> LeaseItem:
    """A lease whose last two owners died, held by `a:1` under token 3: two attempts, and something is prepared."""
    held = await owned(store, group, seq=3)
    for by in ("b:1", "a:1"):
        held = await applied(store, group, an_acquire(held, by, is_suspect=True))
    for seq in (1, 2):
        await applied(store, group, attempt(token=3, seq=seq))
    item: LeaseItem = await applied(store, group, prepare(token=3, seq=3))
    assert (item.attempts, item.suspects, item.prepared) == (2, 2, PREPARED)
    return item


def clear(item: LeaseItem) -> LeaseItem:
    """The lease without anything beside its checkpoint."""
    return replace(item, attempts=0, suspects=0, prepared=None)


@scenario(Acquire)
async def acquire_from_an_owner_that_may_have_died_of_a_record_counts_it(store: Store, group: str) -> None:
    """One more each time, for as long as nothing is done: the record that kills is among the next ones."""
    first = await owned(store, group)
    second = replace(first, owner="b:1", token=2, last_host="b", suspects=1)
    third = replace(first, token=3, suspects=2)

    await is_applied(store, group, an_acquire(first, "b:1", is_suspect=True), second)
    await is_applied(store, group, an_acquire(second, is_suspect=True), third)


@scenario(Acquire)
async def acquire_otherwise_leaves_what_stands_beside_the_checkpoint(store: Store, group: str) -> None:
    """A release without progress, or an acquire again, does not clear a record of suspicion."""
    held = await doubted(store, group)

    await is_applied(store, group, an_acquire(held), replace(held, token=4, seq=0))


@scenario(Attempt)
async def attempt_is_counted_and_leaves_the_position(store: Store, group: str) -> None:
    """It stands before the record can kill the process; the next owner goes on counting."""
    held = await owned(store, group, seq=3)
    once = replace(held, seq=4, attempts=1)

    await is_applied(store, group, attempt(), once)
    await is_applied(store, group, attempt(seq=7), replace(once, seq=7, attempts=2))


@scenario(Attempt)
async def attempt_at_the_next_record_is_the_checkpoint_of_the_one_before(store: Store, group: str) -> None:
    """One write for each record; what was suspected is behind, and this record was tried once."""
    held = await doubted(store, group)

    next_one = replace(held, position="at 10", seq=4, attempts=1, suspects=0, prepared=None)
    await is_applied(store, group, attempt(token=3, position="at 10"), next_one)


@scenario(Attempt)
async def attempt_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """It must not come back after it was deleted."""
    await is_refused(store, group, attempt(), None)


@scenario(Attempt)
async def attempt_is_refused_when_only_the_owner_differs(store: Store, group: str) -> None:
    """A released lease has the old token still."""
    held = await owned(store, group, seq=3)
    await is_refused(store, group, attempt(owner="b:1"), held)

    free = await applied(store, group, Release(partition="p", owner="a:1", token=1))
    await is_refused(store, group, attempt(), free)


@scenario(Attempt)
async def attempt_is_refused_when_only_the_token_differs(store: Store, group: str) -> None:
    """Nobody may begin a call under an old term."""
    held = await applied(store, group, an_acquire(await owned(store, group)))

    await is_refused(store, group, attempt(token=1), held)
    await is_refused(store, group, attempt(token=3), held)


@scenario(Attempt)
async def attempt_is_refused_when_it_is_delivered_late(store: Store, group: str) -> None:
    """A duplicate would count one call twice, or move the position back (rule 7)."""
    held = await owned(store, group, seq=3)

    await is_refused(store, group, attempt(seq=3), held)
    await is_refused(store, group, attempt(seq=2, position="old"), held)


@scenario(Prepare)
async def prepare_stores_the_state_and_leaves_the_position(store: Store, group: str) -> None:
    """The checkpoint is pending until the application knows that its own commit has happened; the last one counts."""
    held = await owned(store, group, seq=3)
    first = replace(held, seq=4, prepared=PREPARED)
    other = Prepared(state="debit 7 🙂", position="at 11")

    await is_applied(store, group, prepare(), first)
    await is_applied(store, group, prepare(seq=7, prepared=other), replace(first, seq=7, prepared=other))


@scenario(Prepare)
async def prepare_leaves_the_counts(store: Store, group: str) -> None:
    """Nothing is done by it."""
    held = await doubted(store, group)

    await is_applied(store, group, prepare(token=3), replace(held, seq=4))


@scenario(Prepare)
async def prepare_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """It must not come back after it was deleted."""
    await is_refused(store, group, prepare(), None)


@scenario(Prepare)
async def prepare_is_refused_when_only_the_owner_differs(store: Store, group: str) -> None:
    """A released lease has the old token still."""
    held = await owned(store, group, seq=3)
    await is_refused(store, group, prepare(owner="b:1"), held)

    free = await applied(store, group, Release(partition="p", owner="a:1", token=1))
    await is_refused(store, group, prepare(), free)


@scenario(Prepare)
async def prepare_is_refused_when_only_the_token_differs(store: Store, group: str) -> None:
    """The new owner has asked the application what became of the old state."""
    held = await applied(store, group, an_acquire(await owned(store, group)))

    await is_refused(store, group, prepare(token=1), held)
    await is_refused(store, group, prepare(token=3), held)


@scenario(Prepare)
async def prepare_is_refused_when_it_is_delivered_late(store: Store, group: str) -> None:
    """A state that was settled, and checkpointed, must not be pending again."""
    held = await owned(store, group, seq=3)

    await is_refused(store, group, prepare(seq=3), held)
    await is_refused(store, group, prepare(seq=2), held)


def save(**changes: object) -> SaveCheckpoint:
    """The checkpoint of `a:1` in the term that `doubted` leaves, with what differs."""
    defaults = {"owner": "a:1", "token": 3, "position": "at 9", "seq": 4}
    return SaveCheckpoint(partition="p", **(defaults | changes))  # type: ignore[arg-type]


@scenario(SaveCheckpoint)
async def checkpoint_that_advances_ends_the_counts_and_what_was_prepared(store: Store, group: str) -> None:
    """The suspected record is done, and the pending checkpoint stored."""
    held = await doubted(store, group)

    await is_applied(store, group, save(), replace(clear(held), position="at 9", seq=4))


@scenario(SaveCheckpoint)
async def checkpoint_of_the_stored_position_leaves_what_stands_beside_it(store: Store, group: str) -> None:
    """Nothing was done; a host that settles a doubt must not forget that others died here."""
    held = await doubted(store, group)

    settling = save(position=held.position, advances=False, keeps_prepared=True)
    await is_applied(store, group, settling, replace(held, seq=4))


@scenario(SaveCheckpoint)
async def checkpoint_before_what_is_prepared_leaves_it(store: Store, group: str) -> None:
    """Its commit elsewhere may have happened: a host that dies now must still give it to the next one."""
    held = await doubted(store, group)

    after = replace(clear(held), position="at 5", seq=4, prepared=PREPARED)
    await is_applied(store, group, save(position="at 5", keeps_prepared=True), after)


def release(**changes: object) -> Release:
    """The release of the term that `doubted` leaves, with what differs."""
    return Release(partition="p", **({"owner": "a:1", "token": 3} | changes))  # type: ignore[arg-type]


@scenario(Release)
async def release_with_a_checkpoint_ends_the_counts_and_what_was_prepared(store: Store, group: str) -> None:
    """As the checkpoint alone would; so does a reset, which is a release."""
    held = await doubted(store, group)

    freed = replace(clear(held), owner=None, position="at 9", seq=4)
    await is_applied(store, group, release(position="at 9", seq=4), freed)


@scenario(Release)
async def release_with_a_checkpoint_may_carry_a_count_and_leave_what_is_prepared(store: Store, group: str) -> None:
    """A hand-over in the middle of failures does not count anew, nor forget a commit that may have happened."""
    held = await doubted(store, group)

    freed = replace(held, owner=None, position="at 5", seq=4, attempts=7, suspects=0)
    await is_applied(store, group, release(position="at 5", seq=4, attempts=7, keeps_prepared=True), freed)


@scenario(Release)
async def release_without_a_checkpoint_leaves_what_stands_beside_the_stored_one(store: Store, group: str) -> None:
    """A drain right after the start proves nothing of the records that come next."""
    held = await doubted(store, group)

    await is_applied(store, group, release(), replace(held, owner=None))


@scenario(Release)
async def release_without_a_checkpoint_may_carry_a_count(store: Store, group: str) -> None:
    """The failures of this term are added by its host; 0 is a count."""
    held = await doubted(store, group)
    freed = replace(held, owner=None, attempts=7)

    await is_applied(store, group, release(attempts=7), freed)
    again = await applied(store, group, an_acquire(freed))
    await is_applied(store, group, release(token=4, attempts=0), replace(again, owner=None, attempts=0))


@scenario(Complete)
async def complete_ends_the_counts_and_what_was_prepared(store: Store, group: str) -> None:
    """Everything is done."""
    held = await doubted(store, group)

    done = replace(clear(held), owner=None, position=END, finished=True)
    await is_applied(store, group, Complete(partition="p", owner="a:1", token=3), done)


@scenario(Pause)
async def pause_leaves_what_stands_beside_the_checkpoint(store: Store, group: str) -> None:
    """Who looks into the pause wants to see it."""
    held = await doubted(store, group)

    await is_applied(store, group, Pause(partition="p", seen_token=3), replace(held, paused=True))


@scenario(Resume)
async def resume_ends_the_counts_and_leaves_what_is_prepared(store: Store, group: str) -> None:
    """Who resumes says that the cause is mended; whether the application has committed nobody has said."""
    held = await doubted(store, group)
    await applied(store, group, Pause(partition="p", seen_token=3))

    await is_applied(store, group, Resume(partition="p", seen_token=3), replace(held, attempts=0, suspects=0))
