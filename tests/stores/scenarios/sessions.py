"""Scenarios of the verbs of a session: register, beat, ask, drain, fence, leave."""

from __future__ import annotations

from dataclasses import replace

from partitions.items import ASKS_MAX, Known, ask_key
from partitions.stores.base import Store
from partitions.verbs import Ask, Drain, Fence, Leave, Register
from partitions.verbs import Beat as BeatVerb
from tests.builders import a_beat, a_register, a_session
from tests.stores.scenarios.saying import applied, is_applied, is_refused, registered, scenario

__all__: list[str] = []


@scenario(Register)
async def register_begins_a_session_with_beat_0_and_no_asks(store: Store, group: str) -> None:
    """Every field that the host publishes once is kept, also those for people."""
    fields = {
        "duration_s": 2.5,
        "handoff_s": 7.25,
        "capacity": 0.5,
        "max_leases": 3,
        "draining": True,
        "extra": {"pid": 4711, "host": "ä b", "started_s": 1.5, "canary": False, "status_url": None},
    }

    await is_applied(store, group, a_register(**fields), a_session(**fields))


@scenario(Register)
async def register_fills_in_what_is_not_given(store: Store, group: str) -> None:
    """Capacity 1, no limit, not draining."""
    await is_applied(store, group, a_register(), a_session())


@scenario(Register)
async def register_is_refused_when_the_session_is_there(store: Store, group: str) -> None:
    """A duplicate delivered late must not set the beat back: observers would take it for dead."""
    await registered(store, group)
    alive = await applied(store, group, a_beat(owned=2))

    await is_refused(store, group, a_register(), alive)


@scenario(BeatVerb)
async def beat_rises_by_one_and_publishes_the_state(store: Store, group: str) -> None:
    """What the host registered with stays; the answer is the whole item."""
    extra = {"pid": 4711}
    await registered(store, group, capacity=2.0, max_leases=9, extra=extra)
    known = Known(count=12, checksum=4_294_967_295)

    first = a_session(capacity=2.0, max_leases=9, extra=extra, beat=1, owned=3, load=1.25, draining=True, known=known)
    first = replace(first, sick=True)
    await is_applied(store, group, a_beat(owned=3, load=1.25, draining=True, known=known, sick=True), first)
    idle = replace(first, beat=2, owned=0, load=0.0, draining=False, known=None, sick=False)
    await is_applied(store, group, a_beat(), idle)


@scenario(BeatVerb)
async def beat_removes_exactly_the_asks_that_were_handled(store: Store, group: str) -> None:
    """A newer ask for the same partition names another token, and nobody has seen it yet (rule 11)."""
    await registered(store, group)
    await applied(store, group, Ask(session_id="a:1", keys=("p@1", "p@2", "q@1", "p@11"), asker="b:1"))

    handled = a_session(beat=1, asks={"p@2": "b:1", "q@1": "b:1", "p@11": "b:1"})
    await is_applied(store, group, a_beat(handled=("p@1",)), handled)
    await is_applied(store, group, a_beat(handled=("p@1", "q@2")), replace(handled, beat=2))
    rest = replace(handled, beat=3, asks={"p@11": "b:1"})
    await is_applied(store, group, a_beat(handled=("q@1", "p@2")), rest)


@scenario(BeatVerb)
async def beat_leaves_the_wish_of_an_operator(store: Store, group: str) -> None:
    """The host reads it in the answer; were it cleared, an answer that is lost would lose the wish."""
    await registered(store, group)
    await applied(store, group, Drain(session_id="a:1"))

    await is_applied(store, group, a_beat(), a_session(beat=1, drain_asked=True))


@scenario(BeatVerb)
async def beat_is_refused_when_there_is_no_session(store: Store, group: str) -> None:
    """It never makes the item: a session that was fenced stays dead (rule 3)."""
    await is_refused(store, group, a_beat(), None)
    await registered(store, group)
    await applied(store, group, Fence(session_id="a:1", seen_beat=0))

    await is_refused(store, group, a_beat(), None)


@scenario(Fence)
async def fence_deletes_the_session_whose_beat_stood_still(store: Store, group: str) -> None:
    """Its leases are free from here on."""
    await registered(store, group)
    await applied(store, group, a_beat())

    await is_applied(store, group, Fence(session_id="a:1", seen_beat=1), None)


@scenario(Fence)
async def fence_is_refused_when_the_beat_moved(store: Store, group: str) -> None:
    """It beat in the last moment, so it is alive; an observer with a stale read does no harm (rule 12)."""
    await registered(store, group)
    alive = await applied(store, group, a_beat())

    await is_refused(store, group, Fence(session_id="a:1", seen_beat=0), alive)
    await is_refused(store, group, Fence(session_id="a:1", seen_beat=2), alive)


@scenario(Fence)
async def fence_is_refused_when_there_is_no_session(store: Store, group: str) -> None:
    """Another observer was faster."""
    await is_refused(store, group, Fence(session_id="a:1", seen_beat=0), None)


@scenario(Leave)
async def leave_deletes_the_session(store: Store, group: str) -> None:
    """Whatever its beat, and no other session."""
    other = await registered(store, group, "b:1")
    await registered(store, group)
    await applied(store, group, a_beat())

    await is_applied(store, group, Leave(session_id="a:1"), None)
    assert await store.read_sessions(group, consistent=True) == (other,)


@scenario(Leave)
async def leave_is_refused_when_there_is_no_session(store: Store, group: str) -> None:
    """It was fenced meanwhile, or this is a duplicate."""
    await is_refused(store, group, Leave(session_id="a:1"), None)


@scenario(Drain)
async def drain_is_noted_in_the_session(store: Store, group: str) -> None:
    """The host sees it in the answer to its next beat; `draining` is the host's own word."""
    await registered(store, group)

    await is_applied(store, group, Drain(session_id="a:1"), a_session(drain_asked=True))
    await is_applied(store, group, Drain(session_id="a:1"), a_session(drain_asked=True))


@scenario(Drain)
async def drain_is_refused_when_there_is_no_session(store: Store, group: str) -> None:
    """A mistyped session id must not become a session."""
    await is_refused(store, group, Drain(session_id="a:1"), None)


@scenario(Ask)
async def ask_stands_in_the_owners_session(store: Store, group: str) -> None:
    """Several in one request, by several askers, or for nobody; letters of a partition id do not matter."""
    await registered(store, group)
    odd = ask_key('a "b".#:@ü', 7)

    asked = a_session(asks={"p@1": "b:1", odd: "b:1"})
    await is_applied(store, group, Ask(session_id="a:1", keys=("p@1", odd), asker="b:1"), asked)
    both = replace(asked, asks={**asked.asks, "q@3": ""})
    await is_applied(store, group, Ask(session_id="a:1", keys=("q@3",), asker=""), both)


@scenario(Ask)
async def ask_is_refused_as_a_whole_when_one_of_its_keys_stands(store: Store, group: str) -> None:
    """The first asker has been waiting for it; the returned item shows which ones to leave out."""
    await registered(store, group)
    asked = await applied(store, group, Ask(session_id="a:1", keys=("p@1",), asker="b:1"))

    await is_refused(store, group, Ask(session_id="a:1", keys=("q@1", "p@1"), asker="c:1"), asked)
    await is_refused(store, group, Ask(session_id="a:1", keys=("p@1", "q@1"), asker="c:1"), asked)


@scenario(Ask)
async def ask_is_refused_when_too_many_would_stand(store: Store, group: str) -> None:
    """Every host reads the item in every beat period. The last one that fits is taken."""
    await registered(store, group)
    keys = tuple(f"p-{number}@1" for number in range(ASKS_MAX - 1))
    asked = await applied(store, group, Ask(session_id="a:1", keys=keys, asker="b:1"))

    await is_refused(store, group, Ask(session_id="a:1", keys=("q@1", "r@1"), asker="b:1"), asked)
    full = replace(asked, asks={**asked.asks, "q@1": "b:1"})
    await is_applied(store, group, Ask(session_id="a:1", keys=("q@1",), asker="b:1"), full)
    await is_refused(store, group, Ask(session_id="a:1", keys=("r@1",), asker="b:1"), full)


@scenario(Ask)
async def ask_is_refused_when_there_is_no_session(store: Store, group: str) -> None:
    """The owner is gone, and its leases are free; an ask never makes the item."""
    await is_refused(store, group, Ask(session_id="a:1", keys=("p@1",), asker="b:1"), None)
