"""
Every rule of `partitions.rules`, directly: what each verb needs, one condition at a time, and all that it changes.

Stores are held to the same rules by their own conformance tests; here a wrong rule shows without a store in between.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from partitions.items import ASKS_MAX, GroupItem, Known, LeaseItem, SessionItem, ask_key
from partitions.positions import END
from partitions.rules import PAUSE_REASON, apply, born
from partitions.verbs import (
    Acquire,
    Adopt,
    Applied,
    Ask,
    Beat,
    Child,
    Complete,
    Create,
    Delete,
    Drain,
    Fence,
    LeaseVerb,
    Leave,
    Pause,
    Refused,
    Register,
    Release,
    Resume,
    SaveCheckpoint,
    SessionVerb,
    SetUp,
)
from tests.builders import a_beat, a_group, a_lease, a_register, a_session

__all__: list[str] = []

# Every field differs from its default, so that an effect that drops one shows.
HELD = a_lease(
    "p",
    owner="a:1",
    token=7,
    position="100",
    seq=3,
    parents=("o",),
    weight=2.0,
    last_host="a",
    extra={"note": "kept"},
)
FREE = replace(HELD, owner=None)
FINISHED = replace(FREE, finished=True, position=END)
SESSION = a_session(
    "a:1",
    beat=5,
    owned=2,
    load=1.5,
    capacity=3.0,
    max_leases=9,
    draining=True,
    drain_asked=True,
    known=Known(count=1, checksum=2),
    asks={"p@7": "b:1", "q@1": ""},
    extra={"pid": 4711},
)

SESSION_GONE: Applied[SessionItem] = Applied(item=None)
NO_SESSION: Refused[SessionItem] = Refused(current=None)

ACQUIRE = Acquire(partition="p", seen_owner="a:1", seen_token=7, session_id="b:1", host_id="b")
SAVE = SaveCheckpoint(partition="p", owner="a:1", token=7, position="120", seq=4)
RELEASE = Release(partition="p", owner="a:1", token=7)
COMPLETE = Complete(partition="p", owner="a:1", token=7)


# --- Leases ---------------------------------------------------------------------------------------------------------


def test_create_makes_a_free_lease_with_token_0() -> None:
    """The first acquire must find a state that only one of several racers can change."""
    verb = Create(partition="p", position="100", parents=("o",))

    assert apply(None, verb) == Applied(item=LeaseItem(partition="p", position="100", parents=("o",)))


def test_create_is_refused_when_there_is_an_item() -> None:
    """Made again, a lease would lose its token and its position."""
    assert apply(FREE, Create(partition="p", position="0")) == Refused(current=FREE)


@pytest.mark.parametrize(
    ("lease", "verb"),
    [(HELD, ACQUIRE), (FREE, replace(ACQUIRE, seen_owner=None))],
    ids=["from another owner", "free"],
)
def test_acquire_begins_a_term_under_a_token_that_is_one_higher(lease: LeaseItem, verb: Acquire) -> None:
    """The token fences the old term, and `seq` starts anew with the new one; position and the rest stay."""
    result = apply(lease, verb)

    assert result == Applied(item=replace(lease, owner="b:1", token=8, seq=0, last_host="b"))


@pytest.mark.parametrize(
    ("lease", "verb"),
    [
        (HELD, replace(ACQUIRE, seen_owner="c:1")),
        (HELD, replace(ACQUIRE, seen_owner=None)),
        (FREE, ACQUIRE),
        (HELD, replace(ACQUIRE, seen_token=6)),
        (HELD, replace(ACQUIRE, seen_token=8)),
        (FINISHED, replace(ACQUIRE, seen_owner=None)),
        (replace(HELD, paused=True), ACQUIRE),
    ],
    ids=["other owner", "not free", "released since", "newer token", "older token", "finished", "paused"],
)
def test_acquire_is_refused_unless_the_lease_is_as_it_was_seen_and_may_be_held(lease: LeaseItem, verb: Acquire) -> None:
    """Of any number of racers that saw one state exactly one may win; what is finished or paused nobody may hold."""
    assert apply(lease, verb) == Refused(current=lease)


def test_checkpoint_stores_position_seq_and_weight() -> None:
    """The next owner resumes from here."""
    result = apply(HELD, replace(SAVE, weight=5.0))

    assert result == Applied(item=replace(HELD, position="120", seq=4, weight=5.0))


def test_checkpoint_leaves_the_weight_when_it_carries_none() -> None:
    """A host that does not weigh must not reset what another one measured."""
    assert apply(HELD, SAVE) == Applied(item=replace(HELD, position="120", seq=4))


@pytest.mark.parametrize(
    "verb",
    [replace(SAVE, owner="b:1"), replace(SAVE, token=6), replace(SAVE, seq=3), replace(SAVE, seq=2)],
    ids=["other owner", "old token", "same seq", "lower seq"],
)
def test_checkpoint_is_refused_unless_the_term_is_the_senders_and_seq_is_higher(verb: SaveCheckpoint) -> None:
    """A former owner, or a duplicate that is delivered late, must not move the position back."""
    assert apply(HELD, verb) == Refused(current=HELD)


def test_release_frees_the_lease_and_keeps_the_rest() -> None:
    """The token stays, so that whoever acquires next gets a higher one."""
    assert apply(HELD, RELEASE) == Applied(item=FREE)


def test_release_may_carry_the_last_checkpoint() -> None:
    """One write instead of two: the successor never sees the lease free with an old position."""
    result = apply(HELD, replace(RELEASE, position="130", seq=9))

    assert result == Applied(item=replace(FREE, position="130", seq=9))


@pytest.mark.parametrize(
    "verb", [replace(RELEASE, owner="b:1"), replace(RELEASE, token=6)], ids=["other owner", "old token"]
)
def test_release_is_refused_unless_the_term_is_the_senders(verb: Release) -> None:
    """A release that is delivered late must not free a later term, even one of the same session."""
    assert apply(HELD, verb) == Refused(current=HELD)


def test_complete_finishes_the_lease_at_end_without_an_owner() -> None:
    """Nobody may acquire it again, and its children may start."""
    assert apply(HELD, COMPLETE) == Applied(item=replace(HELD, owner=None, position=END, finished=True))


@pytest.mark.parametrize(
    "verb", [replace(COMPLETE, owner="b:1"), replace(COMPLETE, token=6)], ids=["other owner", "old token"]
)
def test_complete_is_refused_unless_the_term_is_the_senders(verb: Complete) -> None:
    """A former owner's end may lie before records that the new owner still has to handle."""
    assert apply(HELD, verb) == Refused(current=HELD)


def test_born_is_a_free_lease_with_token_0() -> None:
    """A child starts like any created lease, and knows for whom it waits."""
    child = Child(partition="c", parents=("p", "q"), position="0")

    assert born(child) == LeaseItem(partition="c", position="0", parents=("p", "q"))


@pytest.mark.parametrize("lease", [HELD, FREE], ids=["held", "free"])
@pytest.mark.parametrize("reason", [None, "poison"])
def test_pause_takes_the_lease_out_of_the_plan_and_leaves_its_owner(lease: LeaseItem, reason: str | None) -> None:
    """The owner drains on its own; taking the lease away here would let another term overlap."""
    extra = {"note": "kept"} if reason is None else {"note": "kept", PAUSE_REASON: reason}

    result = apply(lease, Pause(partition="p", seen_token=7, reason=reason))

    assert result == Applied(item=replace(lease, paused=True, extra=extra))


def test_resume_puts_the_lease_back_and_forgets_the_reason() -> None:
    """A reason that stays would be shown for the next pause."""
    paused = replace(HELD, paused=True, extra={"note": "kept", PAUSE_REASON: "poison"})

    assert apply(paused, Resume(partition="p", seen_token=7)) == Applied(item=HELD)


@pytest.mark.parametrize("verb", [Pause(partition="p", seen_token=6), Resume(partition="p", seen_token=6)])
def test_pause_and_resume_are_refused_when_the_token_has_changed(verb: LeaseVerb) -> None:
    """An operator decides on a term that was seen, not on one that has begun since."""
    assert apply(HELD, verb) == Refused(current=HELD)


def test_delete_removes_a_finished_lease() -> None:
    """The table would grow with every reshard."""
    assert apply(FINISHED, Delete(partition="p", seen_token=7)) == Applied(item=None)


@pytest.mark.parametrize(
    ("lease", "token"),
    [(FREE, 7), (HELD, 7), (FINISHED, 6)],
    ids=["not finished", "held", "token has changed"],
)
def test_delete_is_refused_unless_the_lease_is_finished_and_as_it_was_seen(lease: LeaseItem, token: int) -> None:
    """Deleting a lease that goes on loses its position and its token."""
    assert apply(lease, Delete(partition="p", seen_token=token)) == Refused(current=lease)


@pytest.mark.parametrize(
    "verb",
    [
        replace(ACQUIRE, seen_owner=None, seen_token=0),
        SAVE,
        RELEASE,
        COMPLETE,
        Pause(partition="p", seen_token=0),
        Resume(partition="p", seen_token=0),
        Delete(partition="p", seen_token=0),
    ],
    ids=lambda verb: type(verb).__name__,
)
def test_no_verb_but_create_makes_a_lease(verb: LeaseVerb) -> None:
    """A late write to a deleted lease would bring back a partition without its position."""
    assert apply(None, verb) == Refused(current=None)


# --- Sessions -------------------------------------------------------------------------------------------------------


def test_register_begins_a_session_with_beat_0_and_no_asks() -> None:
    """What a session publishes it has from its first moment; asks are others' to write."""
    verb = a_register("a:1", capacity=3.0, max_leases=9, draining=True, extra={"pid": 4711})

    assert apply(None, verb) == Applied(
        item=SessionItem(
            session_id="a:1",
            host_id="a",
            beat=0,
            duration_s=verb.duration_s,
            handoff_s=verb.handoff_s,
            capacity=3.0,
            max_leases=9,
            draining=True,
            extra={"pid": 4711},
        )
    )


def test_register_is_refused_when_the_session_is_there() -> None:
    """Made again, the item would lose its beat and the asks that stand in it."""
    assert apply(SESSION, a_register("a:1")) == Refused(current=SESSION)


def test_beat_raises_the_beat_publishes_the_state_and_removes_exactly_the_handled_asks() -> None:
    """An ask that came since must stay; an operator's wish to drain must outlive every beat."""
    known = Known(count=8, checksum=9)
    verb = Beat(session_id="a:1", owned=4, load=0.5, draining=False, known=known, handled=("p@7", "q@2"))

    assert apply(SESSION, verb) == Applied(
        item=replace(SESSION, beat=6, owned=4, load=0.5, draining=False, known=known, asks={"q@1": ""})
    )


def test_fence_deletes_the_session_that_was_seen() -> None:
    """Without its session every lease it owned is free."""
    assert apply(SESSION, Fence(session_id="a:1", seen_beat=5)) == SESSION_GONE


@pytest.mark.parametrize("seen_beat", [4, 6])
def test_fence_is_refused_when_the_session_has_beaten_since(seen_beat: int) -> None:
    """A stale observer must not kill a living host."""
    assert apply(SESSION, Fence(session_id="a:1", seen_beat=seen_beat)) == Refused(current=SESSION)


def test_leave_deletes_the_session() -> None:
    """A clean stop frees at once what a crash frees after the duration."""
    assert apply(SESSION, Leave(session_id="a:1")) == SESSION_GONE


def test_drain_notes_the_wish_and_changes_nothing_else() -> None:
    """It is the host that drains; `draining` is its own to publish."""
    session = replace(SESSION, draining=False, drain_asked=False)

    assert apply(session, Drain(session_id="a:1")) == Applied(item=replace(session, drain_asked=True))


def test_ask_adds_its_keys_beside_those_that_stand() -> None:
    """One request may ask for many leases, and other askers' wishes stay."""
    verb = Ask(session_id="a:1", keys=("r@2", "s@3"), asker="c:1")

    assert apply(SESSION, verb) == Applied(
        item=replace(SESSION, asks={"p@7": "b:1", "q@1": "", "r@2": "c:1", "s@3": "c:1"})
    )


@pytest.mark.parametrize("asker", ["b:1", "c:1", ""])
def test_ask_is_refused_as_a_whole_when_one_of_its_keys_stands(asker: str) -> None:
    """The first asker waits by the moment its ask was applied; another over it would start that wait unseen."""
    verb = Ask(session_id="a:1", keys=("r@2", "p@7"), asker=asker)

    assert apply(SESSION, verb) == Refused(current=SESSION)


def test_ask_is_accepted_up_to_the_bound_and_refused_above_it() -> None:
    """Every host reads the item in every beat period; without a bound it grows with the group."""
    session = replace(SESSION, asks={ask_key("x", token): "" for token in range(ASKS_MAX - 1)})
    fits = Ask(session_id="a:1", keys=("r@2",), asker="c:1")
    too_many = replace(fits, keys=("r@2", "s@3"))

    assert apply(session, fits) == Applied(item=replace(session, asks={**session.asks, "r@2": "c:1"}))
    assert apply(session, too_many) == Refused(current=session)


@pytest.mark.parametrize(
    "verb",
    [
        a_beat("a:1"),
        Fence(session_id="a:1", seen_beat=0),
        Leave(session_id="a:1"),
        Drain(session_id="a:1"),
        Ask(session_id="a:1", keys=("p@7",), asker="b:1"),
    ],
    ids=lambda verb: type(verb).__name__,
)
def test_no_verb_but_register_makes_a_session(verb: SessionVerb) -> None:
    """A session that was fenced stays dead: a late beat that revived it would own its old leases again."""
    assert apply(None, verb) == NO_SESSION


@pytest.mark.parametrize(
    "verb",
    [a_register("a:1", duration_s=1.0, handoff_s=1.0), a_beat("a:1"), Drain(session_id="a:1")],
    ids=lambda verb: type(verb).__name__,
)
def test_duration_and_handoff_of_a_session_never_change(verb: Register | Beat | Drain) -> None:
    """Observers and askers wait by the durations they read; a shorter one published later would come too late."""
    result = apply(SESSION, verb)
    item = result.item if isinstance(result, Applied) else result.current

    assert item is not None
    assert (item.duration_s, item.handoff_s) == (SESSION.duration_s, SESSION.handoff_s)


# --- The group ------------------------------------------------------------------------------------------------------


def test_set_up_makes_the_groups_item_once() -> None:
    """Of several hosts that start together one decides where the group starts."""
    first, second = a_group(start="10"), a_group(start="20")

    assert apply(None, SetUp(item=first)) == Applied(item=first)
    assert apply(first, SetUp(item=second)) == Refused(current=first)


def test_adopt_changes_the_source_alone() -> None:
    """Where the group started and how it plans stay as they were."""
    group = GroupItem(source="old", start="10", plan_mode="weight", restore_count=2, extra={"note": "kept"})

    assert apply(group, Adopt(seen_source="old", source="new")) == Applied(item=replace(group, source="new"))


@pytest.mark.parametrize("group", [a_group(source="other"), None], ids=["another source", "no group"])
def test_adopt_is_refused_unless_the_source_is_the_one_that_was_seen(group: GroupItem | None) -> None:
    """Two operators must not adopt one after the other what neither has looked at."""
    assert apply(group, Adopt(seen_source="old", source="new")) == Refused(current=group)
