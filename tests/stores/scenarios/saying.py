"""
What a scenario is, and the words in which it speaks.

A scenario is a function of an open store and of a group id that nobody has used in it; it raises where the store does
not keep its contract. Every answer is checked twice: the answer itself, and what the store holds afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from partitions.items import LeaseItem, LockItem, SessionItem
from partitions.lock_verbs import LockVerb
from partitions.stores.base import Store
from partitions.verbs import (
    Applied,
    Complete,
    Create,
    LeaseVerb,
    Refused,
    SaveCheckpoint,
    SessionVerb,
    Verb,
)
from tests.builders import a_register, an_acquire, an_acquire_of_lock

__all__ = [
    "ABOUT",
    "About",
    "Scenario",
    "applied",
    "created",
    "finished",
    "held",
    "is_applied",
    "is_refused",
    "owned",
    "registered",
    "scenario",
]

Scenario = Callable[[Store, str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """One scenario and the verb that it is about, or None where it is about reads."""

    scenario: Scenario
    verb: type[Verb[Any]] | None
    needs_transactions: bool
    """Whether it completes a partition with children, which writes to several items at once."""


ABOUT: Final[dict[str, About]] = {}
"""Every scenario by its name, in the order in which they were written."""


def scenario(verb: type[Verb[Any]] | None, *, needs_transactions: bool = False) -> Callable[[Scenario], Scenario]:
    """Enter a scenario about `verb` into `ABOUT`."""

    def enter(function: Scenario) -> Scenario:
        name = function.__name__
        assert name not in ABOUT, name
        ABOUT[name] = About(scenario=function, verb=verb, needs_transactions=needs_transactions)
        return function

    return enter


async def stored(store: Store, group: str, verb: Verb[Any]) -> Any:
    """Read the item that a verb is about."""
    if isinstance(verb, LeaseVerb):
        return await store.read_lease(group, verb.partition)
    if isinstance(verb, SessionVerb):
        return await store.read_session(group, verb.session_id)
    if isinstance(verb, LockVerb):
        return await store.read_lock(group, verb.name)
    return await store.read_group(group)


async def is_applied(store: Store, group: str, verb: Verb[Any], item: Any) -> None:
    """The verb is answered with `item`, and the store holds it."""
    assert await store.submit(group, verb) == Applied(item=item)
    assert await stored(store, group, verb) == item


async def is_refused(store: Store, group: str, verb: Verb[Any], current: Any) -> None:
    """The verb is refused with `current`, and the store still holds it."""
    assert await store.submit(group, verb) == Refused(current=current)
    assert await stored(store, group, verb) == current


async def applied(store: Store, group: str, verb: Verb[Any]) -> Any:
    """Do what a scenario needs to have been done; return the item."""
    result = await store.submit(group, verb)
    assert isinstance(result, Applied), result
    return result.item


async def created(store: Store, group: str, partition: str = "p", parents: tuple[str, ...] = ()) -> LeaseItem:
    """A lease that nobody has had."""
    item: LeaseItem = await applied(store, group, Create(partition=partition, position="start", parents=parents))
    return item


async def owned(store: Store, group: str, partition: str = "p", *, by: str = "a:1", seq: int = 0) -> LeaseItem:
    """A lease in its first term, with its checkpoint `seq` at position "at <seq>" if there was one."""
    item: LeaseItem = await applied(store, group, an_acquire(await created(store, group, partition), by))
    if seq:
        saved = SaveCheckpoint(partition=partition, owner=by, token=1, position=f"at {seq}", seq=seq, weight=0.5)
        item = await applied(store, group, saved)
    return item


async def finished(store: Store, group: str, partition: str = "p") -> LeaseItem:
    """A lease that was processed to its end in its first term."""
    held = await owned(store, group, partition)
    item: LeaseItem = await applied(store, group, Complete(partition=partition, owner="a:1", token=held.token))
    return item


async def registered(store: Store, group: str, session_id: str = "a:1", **changes: Any) -> SessionItem:
    """A session without a beat."""
    item: SessionItem = await applied(store, group, a_register(session_id, **changes))
    return item


async def held(store: Store, group: str, *, by: str = "a:1", **changes: Any) -> LockItem:
    """A lock in its first term."""
    item: LockItem = await applied(store, group, an_acquire_of_lock(None, by, **changes))
    return item
