"""Scenarios of the verbs at the end of a partition and of the operator: complete, delete, pause, raise, resume."""

from __future__ import annotations

from dataclasses import replace

from partitions.positions import END
from partitions.stores.base import Store
from partitions.verbs import Child, Complete, Create, Delete, Pause, Raise, Resume
from tests.builders import a_lease, an_acquire
from tests.stores.scenarios.saying import applied, created, finished, is_applied, is_refused, owned, scenario

__all__: list[str] = []

LEFT = Child(partition="left", parents=("p",), position="start of left")
RIGHT = Child(partition="right", parents=("p", "q"), position="start of right")


def complete(**changes: object) -> Complete:
    """The end of `p` by `a:1` in its first term, with what differs."""
    defaults = {"owner": "a:1", "token": 1, "children": (LEFT, RIGHT)}
    return Complete(partition="p", **(defaults | changes))  # type: ignore[arg-type]


@scenario(Complete, needs_transactions=True)
async def complete_ends_the_partition_and_makes_its_children(store: Store, group: str) -> None:
    """A child without a lease would wait until a listing finds it; the number of the last checkpoint stays."""
    held = await owned(store, group, seq=3)

    await is_applied(store, group, complete(), replace(held, owner=None, position=END, finished=True))
    assert await store.read_lease(group, "left") == a_lease("left", position="start of left", parents=("p",))
    assert await store.read_lease(group, "right") == a_lease("right", position="start of right", parents=("p", "q"))


@scenario(Complete, needs_transactions=True)
async def complete_leaves_a_child_that_is_there(store: Store, group: str) -> None:
    """The other half of a merge has made it, and it may be under way."""
    under_way = await owned(store, group, "right", by="b:1", seq=5)
    held = await owned(store, group)

    await is_applied(store, group, complete(), replace(held, owner=None, position=END, finished=True))
    assert await store.read_lease(group, "right") == under_way
    assert await store.read_lease(group, "left") == a_lease("left", position="start of left", parents=("p",))


@scenario(Complete)
async def complete_without_children_ends_the_partition_alone(store: Store, group: str) -> None:
    """A stream that is closed has no successors."""
    held = await owned(store, group)

    done = replace(held, owner=None, position=END, finished=True)
    await is_applied(store, group, complete(children=()), done)
    assert await store.read_leases(group) == (done,)


@scenario(Complete)
async def complete_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """It may have been finished and deleted long ago."""
    await is_refused(store, group, complete(children=()), None)


@scenario(Complete)
async def complete_is_refused_when_only_the_owner_differs(store: Store, group: str) -> None:
    """Another's partition is not at its end because one believes so; nor is one's own twice."""
    held = await owned(store, group)
    await is_refused(store, group, complete(owner="b:1", children=()), held)

    done = await applied(store, group, complete(children=()))
    await is_refused(store, group, complete(children=()), done)


@scenario(Complete)
async def complete_is_refused_when_only_the_token_differs(store: Store, group: str) -> None:
    """The end of an old term is not the end of the new one, which may stand further back."""
    held = await applied(store, group, an_acquire(await owned(store, group)))

    await is_refused(store, group, complete(token=1, children=()), held)
    await is_refused(store, group, complete(token=3, children=()), held)


@scenario(Complete, needs_transactions=True)
async def complete_that_is_refused_makes_no_child(store: Store, group: str) -> None:
    """Not of a lease that is gone, of another's, of an earlier term's, nor a second time: they may be over by now."""
    await is_refused(store, group, complete(), None)
    first = await owned(store, group)
    await is_refused(store, group, complete(owner="b:1"), first)
    held = await applied(store, group, an_acquire(first))
    await is_refused(store, group, complete(token=1), held)
    await is_refused(store, group, complete(token=3), held)
    done = await applied(store, group, complete(token=2, children=()))
    await is_refused(store, group, complete(token=2), done)

    assert await store.read_some_leases(group, ["left", "right"]) == ()


@scenario(Pause)
async def pause_leaves_the_owner(store: Store, group: str) -> None:
    """The owner is asked to release it; until then its term goes on."""
    held = await owned(store, group, seq=3)

    paused = replace(held, paused=True, extra={"paused_because": "poison"})
    await is_applied(store, group, Pause(partition="p", seen_token=1, reason="poison"), paused)


@scenario(Pause)
async def pause_without_a_reason_keeps_the_one_that_is_there(store: Store, group: str) -> None:
    """A second operator who gives none does not erase why it was paused."""
    await created(store, group)
    plain = a_lease("p", position="start", paused=True)

    await is_applied(store, group, Pause(partition="p", seen_token=0), plain)
    told = replace(plain, extra={"paused_because": "poison"})
    await is_applied(store, group, Pause(partition="p", seen_token=0, reason="poison"), told)
    await is_applied(store, group, Pause(partition="p", seen_token=0), told)


@scenario(Pause)
async def pause_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """A mistyped partition must not become a lease."""
    await is_refused(store, group, Pause(partition="p", seen_token=0), None)


@scenario(Pause)
async def pause_is_refused_when_the_token_differs(store: Store, group: str) -> None:
    """The operator saw another term than the one that runs."""
    held = await owned(store, group)

    await is_refused(store, group, Pause(partition="p", seen_token=0), held)
    await is_refused(store, group, Pause(partition="p", seen_token=2), held)


@scenario(Resume)
async def resume_puts_the_partition_back_into_the_plan(store: Store, group: str) -> None:
    """The reason goes with the pause, and nothing else changes."""
    held = await owned(store, group, seq=3)
    await applied(store, group, Pause(partition="p", seen_token=1, reason="poison"))

    await is_applied(store, group, Resume(partition="p", seen_token=1), held)
    await is_applied(store, group, Resume(partition="p", seen_token=1), held)


@scenario(Resume)
async def resume_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """A mistyped partition must not become a lease."""
    await is_refused(store, group, Resume(partition="p", seen_token=0), None)


@scenario(Resume)
async def resume_is_refused_when_the_token_differs(store: Store, group: str) -> None:
    """It was resumed, acquired and paused again since; that pause is another's."""
    await owned(store, group)
    paused = await applied(store, group, Pause(partition="p", seen_token=1))

    await is_refused(store, group, Resume(partition="p", seen_token=0), paused)
    await is_refused(store, group, Resume(partition="p", seen_token=2), paused)


@scenario(Raise)
async def raise_raises_the_token_and_leaves_the_rest(store: Store, group: str) -> None:
    """The checkpoint of the old owner is refused from then on; who takes the lease goes on counting from there."""
    held = await owned(store, group, seq=3)

    raised = replace(held, token=1_000_000_001)
    await is_applied(store, group, Raise(partition="p", seen_token=1, token=1_000_000_001), raised)


@scenario(Raise)
async def raise_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """A mistyped partition must not become a lease."""
    await is_refused(store, group, Raise(partition="p", seen_token=0, token=5), None)


@scenario(Raise)
async def raise_is_refused_when_the_token_differs(store: Store, group: str) -> None:
    """Somebody has acquired it since: not all hosts are stopped. Sent twice it is done once."""
    held = await owned(store, group)

    await is_refused(store, group, Raise(partition="p", seen_token=0, token=5), held)
    await is_refused(store, group, Raise(partition="p", seen_token=2, token=5), held)


@scenario(Raise)
async def raise_is_refused_when_the_token_would_not_rise(store: Store, group: str) -> None:
    """A token that falls, or stays, fences nobody."""
    held = await applied(store, group, an_acquire(await owned(store, group)))

    await is_refused(store, group, Raise(partition="p", seen_token=2, token=2), held)
    await is_refused(store, group, Raise(partition="p", seen_token=2, token=1), held)


@scenario(Delete)
async def delete_removes_the_lease_of_a_finished_partition(store: Store, group: str) -> None:
    """The source lists it no more. A lease made afterwards is a new one."""
    await finished(store, group)

    await is_applied(store, group, Delete(partition="p", seen_token=1), None)
    again = Create(partition="p", position="again")
    await is_applied(store, group, again, a_lease("p", position="again"))


@scenario(Delete)
async def delete_is_refused_when_there_is_no_lease(store: Store, group: str) -> None:
    """Another host was faster."""
    await is_refused(store, group, Delete(partition="p", seen_token=0), None)


@scenario(Delete)
async def delete_is_refused_when_the_partition_is_not_finished(store: Store, group: str) -> None:
    """Its progress would be lost, and the partition handled again from the start."""
    free = await created(store, group)
    await is_refused(store, group, Delete(partition="p", seen_token=0), free)

    held = await applied(store, group, an_acquire(free))
    await is_refused(store, group, Delete(partition="p", seen_token=1), held)


@scenario(Delete)
async def delete_is_refused_when_the_token_differs(store: Store, group: str) -> None:
    """It is not the lease that was seen: one of the same name was made and finished since."""
    done = await finished(store, group)

    await is_refused(store, group, Delete(partition="p", seen_token=0), done)
    await is_refused(store, group, Delete(partition="p", seen_token=2), done)
