"""Scenarios of the verbs that begin, carry and end a term: create, acquire, checkpoint, release."""

from __future__ import annotations

from dataclasses import replace

from partitions.stores.base import Store
from partitions.verbs import Acquire, Create, Pause, Release, SaveCheckpoint
from tests.builders import a_lease, an_acquire
from tests.stores.scenarios.saying import applied, created, finished, is_applied, is_refused, owned, scenario

__all__: list[str] = []


@scenario(Create)
async def create_makes_a_free_lease_with_token_0(store: Store, group: str) -> None:
    """The first acquire begins the term with token 1."""
    verb = Create(partition="p", position="start", parents=("q", "r"))

    await is_applied(store, group, verb, a_lease("p", position="start", parents=("q", "r")))


@scenario(Create)
async def create_is_refused_when_the_lease_is_there(store: Store, group: str) -> None:
    """Every host creates what it finds in the stream; only one may, or progress is lost."""
    held = await owned(store, group, seq=3)

    await is_refused(store, group, Create(partition="p", position="start"), held)


@scenario(Acquire)
async def acquire_begins_a_term_on_a_free_lease(store: Store, group: str) -> None:
    """The token rises, checkpoints count anew, and what was done stays done."""
    old = await owned(store, group, by="b:1", seq=7)
    free = await applied(store, group, Release(partition="p", owner="b:1", token=1))

    new = replace(old, owner="a:1", token=2, seq=0, last_host="a")
    await is_applied(store, group, an_acquire(free), new)


@scenario(Acquire)
async def acquire_takes_a_lease_over_from_the_owner_it_saw(store: Store, group: str) -> None:
    """A steal is the same write as the acquire of a free lease: the token rises, checkpoints count anew."""
    old = await owned(store, group, by="b:1", seq=7)

    new = replace(old, owner="a:1", token=2, seq=0, last_host="a")
    await is_applied(store, group, an_acquire(old), new)


@scenario(Acquire)
async def acquire_again_raises_the_token_each_time(store: Store, group: str) -> None:
    """Also one's own lease, as where the answer to an acquire was lost (rule 8)."""
    first = await owned(store, group)
    second = replace(first, token=2)

    await is_applied(store, group, an_acquire(first), second)
    await is_applied(store, group, an_acquire(second), replace(first, token=3))


@scenario(Acquire)
async def acquire_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """It was deleted meanwhile; an acquire never makes one."""
    await is_refused(store, group, an_acquire(a_lease("p")), None)


@scenario(Acquire)
async def acquire_is_refused_when_the_lease_was_taken(store: Store, group: str) -> None:
    """Of two that saw it free, the second loses."""
    free = await created(store, group)
    held = await applied(store, group, an_acquire(free, "b:1"))

    await is_refused(store, group, an_acquire(free), held)


@scenario(Acquire)
async def acquire_is_refused_when_only_the_owner_differs(store: Store, group: str) -> None:
    """A release leaves the token, so the token alone does not say who owns it, nor whether anybody does."""
    held = await owned(store, group, by="b:1")
    await is_refused(store, group, an_acquire(replace(held, owner=None)), held)
    free = await applied(store, group, Release(partition="p", owner="b:1", token=1))

    await is_refused(store, group, an_acquire(held), free)
    await is_refused(store, group, an_acquire(replace(held, owner="c:1")), free)


@scenario(Acquire)
async def acquire_is_refused_when_only_the_token_differs(store: Store, group: str) -> None:
    """The same owner may have begun a new term since; a force meant the old one."""
    old = await owned(store, group, by="b:1")
    new = await applied(store, group, an_acquire(old, "b:1"))

    await is_refused(store, group, an_acquire(old), new)
    await is_refused(store, group, an_acquire(replace(new, token=3)), new)


@scenario(Acquire)
async def acquire_is_refused_when_the_partition_is_finished(store: Store, group: str) -> None:
    """Its records were all handled; a new term would handle them again."""
    done = await finished(store, group)

    await is_refused(store, group, an_acquire(done), done)


@scenario(Acquire)
async def acquire_is_refused_when_the_partition_is_paused(store: Store, group: str) -> None:
    """An operator took it out of the plan, maybe after this host made its plan."""
    await created(store, group)
    paused = await applied(store, group, Pause(partition="p", seen_token=0))

    await is_refused(store, group, an_acquire(paused), paused)


def save(**changes: object) -> SaveCheckpoint:
    """The checkpoint of `a:1` in its first term, with what differs."""
    defaults = {"owner": "a:1", "token": 1, "position": "new", "seq": 3}
    return SaveCheckpoint(partition="p", **(defaults | changes))  # type: ignore[arg-type]


@scenario(SaveCheckpoint)
async def checkpoint_moves_the_position(store: Store, group: str) -> None:
    """Position, number and weight change; the term does not."""
    held = await owned(store, group)

    await is_applied(store, group, save(weight=2.5), replace(held, position="new", seq=3, weight=2.5))


@scenario(SaveCheckpoint)
async def checkpoint_without_a_weight_leaves_the_stored_one(store: Store, group: str) -> None:
    """A host that has not measured yet must not forget what the last one measured; 0 is a measurement."""
    held = await owned(store, group, seq=2)

    unweighed = replace(held, position="new", seq=3)
    await is_applied(store, group, save(), unweighed)
    await is_applied(store, group, save(seq=4, weight=0.0), replace(unweighed, seq=4, weight=0.0))


@scenario(SaveCheckpoint)
async def checkpoint_goes_on_while_paused(store: Store, group: str) -> None:
    """The owner drains after a pause, and what it did must be kept; so must the pause and its reason."""
    await owned(store, group)
    paused = await applied(store, group, Pause(partition="p", seen_token=1, reason="look"))

    await is_applied(store, group, save(), replace(paused, position="new", seq=3))


@scenario(SaveCheckpoint)
async def checkpoint_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """It must not come back after it was deleted."""
    await is_refused(store, group, save(), None)


@scenario(SaveCheckpoint)
async def checkpoint_is_refused_when_only_the_owner_differs(store: Store, group: str) -> None:
    """The token of a released lease is still the old one."""
    held = await owned(store, group)
    await is_refused(store, group, save(owner="b:1"), held)

    free = await applied(store, group, Release(partition="p", owner="a:1", token=1))
    await is_refused(store, group, save(), free)


@scenario(SaveCheckpoint)
async def checkpoint_is_refused_when_only_the_token_differs(store: Store, group: str) -> None:
    """A host that has acquired again must not write under its old term; this is the fence."""
    held = await applied(store, group, an_acquire(await owned(store, group)))

    await is_refused(store, group, save(token=1), held)
    await is_refused(store, group, save(token=3), held)


@scenario(SaveCheckpoint)
async def checkpoint_is_refused_when_it_is_delivered_late(store: Store, group: str) -> None:
    """A duplicate, or an earlier one, must not move the position back (rule 7)."""
    held = await owned(store, group, seq=3)

    await is_refused(store, group, save(position="at 3", seq=3), held)
    await is_refused(store, group, save(position="old", seq=2), held)


def release(**changes: object) -> Release:
    """The release of `a:1` in its first term, with what differs."""
    return Release(partition="p", **({"owner": "a:1", "token": 1} | changes))  # type: ignore[arg-type]


@scenario(Release)
async def release_frees_the_lease_and_leaves_the_checkpoint(store: Store, group: str) -> None:
    """The next owner goes on where the last checkpoint was, and the token is kept."""
    held = await owned(store, group, seq=3)

    await is_applied(store, group, release(), replace(held, owner=None))


@scenario(Release)
async def release_may_carry_the_last_checkpoint(store: Store, group: str) -> None:
    """One write instead of two at a hand-over; it leaves the weight."""
    held = await owned(store, group, seq=3)

    freed = replace(held, owner=None, position="last", seq=4)
    await is_applied(store, group, release(position="last", seq=4), freed)


@scenario(Release)
async def release_leaves_the_checkpoint_when_half_of_one_is_given(store: Store, group: str) -> None:
    """A position without its number would be open to a late duplicate."""
    held = await owned(store, group, seq=3)

    await is_applied(store, group, release(position="last"), replace(held, owner=None))
    again = await applied(store, group, an_acquire(replace(held, owner=None)))
    await is_applied(store, group, release(token=2, seq=9), replace(again, owner=None))


@scenario(Release)
async def release_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """It must not come back after it was deleted."""
    await is_refused(store, group, release(), None)


@scenario(Release)
async def release_is_refused_when_only_the_owner_differs(store: Store, group: str) -> None:
    """Nobody frees what is another's; a second release finds the lease free."""
    held = await owned(store, group)
    await is_refused(store, group, release(owner="b:1"), held)

    free = await applied(store, group, release())
    await is_refused(store, group, release(), free)


@scenario(Release)
async def release_is_refused_when_only_the_token_differs(store: Store, group: str) -> None:
    """One's own late release must not free the lease that one has acquired again (rule 8)."""
    held = await applied(store, group, an_acquire(await owned(store, group, seq=3)))

    await is_refused(store, group, release(token=1, position="last", seq=4), held)
    await is_refused(store, group, release(token=3), held)
