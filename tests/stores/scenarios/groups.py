"""Scenarios of the group's own item, and of several groups in one store."""

from __future__ import annotations

from dataclasses import replace

from partitions.stores.base import Store
from partitions.verbs import Adopt, Fence, NoteRestore, SetUp
from tests.builders import a_beat, a_group, a_session
from tests.stores.scenarios.saying import applied, is_applied, is_refused, owned, registered, scenario

__all__: list[str] = []


@scenario(SetUp)
async def set_up_makes_the_groups_item(store: Store, group: str) -> None:
    """All that hosts must agree on, with what a later version adds."""
    rule = {"plan_mode": "load", "load_threshold": 0.0, "moves_max": 3, "weighed_by": "seconds"}
    item = a_group(schema_version=7, source="s@1", start="@time:1.5", restore_count=2, **rule)

    await is_applied(
        store,
        group,
        SetUp(item=replace(item, extra={"threshold": 0.25, "note": "ü"})),
        replace(item, extra={"threshold": 0.25, "note": "ü"}),
    )


@scenario(SetUp)
async def set_up_is_refused_when_the_group_is_there(store: Store, group: str) -> None:
    """The first host decides where the group starts; the others go by what it wrote."""
    first = await applied(store, group, SetUp(item=a_group(start="first")))

    await is_refused(store, group, SetUp(item=a_group(start="second")), first)


@scenario(Adopt)
async def adopt_goes_on_with_another_stream(store: Store, group: str) -> None:
    """Only the stream changes."""
    item = await applied(store, group, SetUp(item=a_group(source="old", restore_count=2, extra={"note": "x"})))

    await is_applied(store, group, Adopt(seen_source="old", source="new"), replace(item, source="new"))


@scenario(Adopt)
async def adopt_is_refused_when_the_stream_is_not_the_one_that_was_seen(store: Store, group: str) -> None:
    """Another operator was faster, maybe with a third stream."""
    item = await applied(store, group, SetUp(item=a_group(source="third")))

    await is_refused(store, group, Adopt(seen_source="old", source="new"), item)


@scenario(Adopt)
async def adopt_is_refused_when_nobody_has_set_the_group_up(store: Store, group: str) -> None:
    """There is nothing to go on with."""
    await is_refused(store, group, Adopt(seen_source="old", source="new"), None)


@scenario(NoteRestore)
async def note_restore_counts_it(store: Store, group: str) -> None:
    """Nothing else changes."""
    item = await applied(store, group, SetUp(item=a_group(restore_count=2, extra={"note": "x"})))

    await is_applied(store, group, NoteRestore(seen_count=2), replace(item, restore_count=3))


@scenario(NoteRestore)
async def note_restore_is_refused_when_the_count_differs(store: Store, group: str) -> None:
    """Sent twice it counts once."""
    item = await applied(store, group, SetUp(item=a_group(restore_count=2)))

    await is_refused(store, group, NoteRestore(seen_count=1), item)
    await is_refused(store, group, NoteRestore(seen_count=3), item)


@scenario(NoteRestore)
async def note_restore_is_refused_when_nobody_has_set_the_group_up(store: Store, group: str) -> None:
    """There is nothing that could have been restored."""
    await is_refused(store, group, NoteRestore(seen_count=0), None)


@scenario(None)
async def groups_live_side_by_side(store: Store, group: str) -> None:
    """Many applications share one store; the same names in another group are other items, as are longer group ids."""
    others = (f"{group}.2", f"{group}-", group[:-1])
    held = await owned(store, group, seq=3)
    session = await registered(store, group)
    item = await applied(store, group, SetUp(item=a_group()))

    for other in others:
        assert await store.read_leases(other) == ()
        assert await store.read_some_leases(other, ["p"]) == ()
        assert await store.read_sessions(other, consistent=True) == ()
        assert await store.read_group(other) is None
        assert (await owned(store, other, by="x:1")).token == 1
        await registered(store, other)
        await applied(store, other, a_beat())
        await applied(store, other, SetUp(item=a_group(start="elsewhere")))
        await is_applied(store, other, Fence(session_id="a:1", seen_beat=1), None)

    assert await store.read_leases(group) == (held,)
    assert await store.read_sessions(group, consistent=True) == (session,) == (a_session(),)
    assert await store.read_group(group) == item
