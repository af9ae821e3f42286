"""Verbs as requests: whole values of the telling ones, and what must hold of all of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from partitions import lock_verbs, verbs
from partitions.codecs.checks import held_check, lock_check
from partitions.codecs.encoding import codec_of, key_of, writes_of
from partitions.codecs.items import GROUP, LEASE, LOCK, SESSION
from partitions.codecs.writes import EXPRESSION_BYTES_MAX, Write
from partitions.items import ASKS_MAX, Known, Prepared, ask_key
from partitions.lock_verbs import RaiseLock, ReleaseLock
from partitions.verbs import (
    Acquire,
    Adopt,
    Ask,
    Attempt,
    Beat,
    Child,
    Complete,
    Create,
    Delete,
    Drain,
    Fence,
    Leave,
    NoteRestore,
    Pause,
    Prepare,
    Raise,
    Release,
    Resume,
    SaveCheckpoint,
    SetUp,
    Verb,
)
from tests.builders import a_beat, a_group, a_lease, a_lock, a_register, an_acquire, an_acquire_of_lock

__all__: list[str] = []

LEFT = Child(partition="left", parents=("p",), position="start")
EVERY: list[Verb[Any]] = [
    Create(partition="p", position="start"),
    an_acquire(a_lease("p")),
    an_acquire(a_lease("p", owner="b:1", token=4)),
    an_acquire(a_lease("p", owner="b:1", token=4), is_suspect=True),
    SaveCheckpoint(partition="p", owner="a:1", token=4, position="7", seq=2),
    SaveCheckpoint(partition="p", owner="a:1", token=4, position="7", seq=2, weight=0.5),
    SaveCheckpoint(partition="p", owner="a:1", token=4, position="7", seq=2, advances=False, keeps_prepared=True),
    Attempt(partition="p", owner="a:1", token=4, seq=2),
    Attempt(partition="p", owner="a:1", token=4, seq=2, position="7"),
    Prepare(partition="p", owner="a:1", token=4, seq=2, prepared=Prepared(state="s", position="9")),
    Release(partition="p", owner="a:1", token=4),
    Release(partition="p", owner="a:1", token=4, attempts=3),
    Release(partition="p", owner="a:1", token=4, position="7", seq=2, attempts=3, keeps_prepared=True),
    Release(partition="p", owner="a:1", token=4, position="7", seq=2),
    Complete(partition="p", owner="a:1", token=4, children=(LEFT,)),
    Pause(partition="p", seen_token=4, reason="poison"),
    Resume(partition="p", seen_token=4),
    Raise(partition="p", seen_token=4, token=10**9),
    NoteRestore(seen_count=2),
    Delete(partition="p", seen_token=4),
    a_register(),
    a_beat(known=Known(count=1, checksum=2), handled=("p@1", "q@2")),
    a_beat(),
    Fence(session_id="a:1", seen_beat=3),
    Leave(session_id="a:1"),
    Drain(session_id="a:1"),
    Ask(session_id="a:1", keys=("p@1", "q@2"), asker="b:1"),
    an_acquire_of_lock(None),
    an_acquire_of_lock(a_lock()),
    an_acquire_of_lock(a_lock(owner="b:1"), extra={"pid": 7, "odd name!": "x"}),
    ReleaseLock(name="nightly", owner="a:1", token=1),
    RaiseLock(name="nightly", seen_token=None, token=7),
    RaiseLock(name="nightly", seen_token=1, token=7),
    SetUp(item=a_group()),
    Adopt(seen_source="one", source="other"),
]
IDS = [f"{type(verb).__name__}-{number}" for number, verb in enumerate(EVERY)]
WORDS = {"AND", "SET", "REMOVE", "attribute_exists", "attribute_not_exists", "size", "if_not_exists"}


def only(verb: Verb[Any]) -> Write:
    (write,) = writes_of("g", verb)
    return write


def test_every_verb_is_here() -> None:
    """What holds of all of them is shown for each."""
    concrete = {
        value
        for value in (*vars(verbs).values(), *vars(lock_verbs).values())
        if isinstance(value, type) and issubclass(value, Verb) and not value.__subclasses__()
    }

    assert {type(verb) for verb in EVERY} == concrete


@pytest.mark.parametrize("verb", EVERY, ids=IDS)
def test_expressions_consist_of_placeholders_alone_and_each_of_them_is_used(verb: Verb[Any]) -> None:
    """A reserved word in plain text is refused, and so is a name or a value that no text uses."""
    for write in writes_of("g", verb):
        text = f"{write.condition} {write.update}"

        assert set(re.findall(r"(?<![#:\w])[A-Za-z_]\w*", text)) <= WORDS
        assert set(re.findall(r"[#:]\w+", text)) == {*write.names, *write.values}


@pytest.mark.parametrize("verb", EVERY, ids=IDS)
def test_every_verb_is_conditional_and_a_refusal_asks_for_the_item(verb: Verb[Any]) -> None:
    """A write without a condition overwrites what another host has written since."""
    own, *children = writes_of("g", verb)
    request = own.request("leases")

    assert request["ConditionExpression"] == " AND ".join(own.conditions) != ""
    assert request["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert request["TableName"] == "leases"
    assert own.key == key_of("g", verb)
    assert all(child.conditions == () for child in children)


def test_acquire_of_a_free_lease_needs_no_owner_the_token_and_neither_end_nor_pause() -> None:
    """The whole request, once."""
    verb = Acquire(partition="p", seen_owner=None, seen_token=4, session_id="a:1", host_id="a")

    assert only(verb).request("leases") == {
        "TableName": "leases",
        "Key": {"pk": {"S": "g#leases#1"}, "sk": {"S": "p"}},
        "ConditionExpression": (
            "attribute_not_exists(#owner) AND #token = :seen_token"
            " AND #finished = :seen_finished AND #paused = :seen_paused"
        ),
        "UpdateExpression": "SET #owner = :owner, #token = :token, #seq = :seq, #last_host = :last_host",
        "ExpressionAttributeNames": {
            "#owner": "owner",
            "#token": "token",
            "#finished": "finished",
            "#paused": "paused",
            "#seq": "seq",
            "#last_host": "last_host",
        },
        "ExpressionAttributeValues": {
            ":seen_token": {"N": "4"},
            ":seen_finished": {"BOOL": False},
            ":seen_paused": {"BOOL": False},
            ":owner": {"S": "a:1"},
            ":token": {"N": "5"},
            ":seq": {"N": "0"},
            ":last_host": {"S": "a"},
        },
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_checkpoint_needs_owner_and_token_and_a_lower_number() -> None:
    """The three of DESIGN section 4."""
    write = only(SaveCheckpoint(partition="p", owner="a:1", token=4, position="7", seq=2))

    assert write.conditions == ("#owner = :seen_owner", "#token = :seen_token", "#seq < :seq")
    assert write.update == "SET #seq = :seq, #position = :position REMOVE #attempts, #suspects, #prepared"


def test_beat_answers_with_the_whole_item_and_removes_exact_asks() -> None:
    """A key that is named twice is one path: DynamoDB refuses paths that overlap."""
    write = only(a_beat(handled=("p@1", "q@2", "p@1")))

    assert write.removes == ("#known", "#asks.#k0", "#asks.#k1")
    assert (write.names["#k0"], write.names["#k1"]) == ("p@1", "q@2")
    assert write.request("leases")["ReturnValues"] == "ALL_NEW"


def test_the_most_asks_fit_into_one_expression_however_long_the_partition_ids() -> None:
    """4 KB an expression; the ids are names, which are not counted, and with the values far below 2 MB."""
    keys = tuple(ask_key(f"{number:03}" + "x" * 1000, 2**53) for number in range(ASKS_MAX))

    ask = only(Ask(session_id="a:1", keys=keys, asker="b" * 200))
    beat = only(a_beat(handled=keys))

    assert (len(ask.conditions), len(ask.sets), len(beat.removes)) == (ASKS_MAX + 1, ASKS_MAX, ASKS_MAX + 1)
    for text in (ask.condition, ask.update, beat.update):
        assert len(text.encode()) <= EXPRESSION_BYTES_MAX
    for write in (ask, beat):
        assert len(repr(write.request("leases"))) < 200_000


def test_asks_leave_room_for_no_more_than_the_most() -> None:
    """`size` is of the map as it is before the update."""
    write = only(Ask(session_id="a:1", keys=("p@1", "q@1", "r@1"), asker=""))

    assert write.values[":room"] == {"N": str(ASKS_MAX - 3)}


def test_complete_is_a_transaction_of_the_partition_and_each_child_once() -> None:
    """A transaction takes an item once; of two children of one name the first stands, and the parent is there."""
    again = Child(partition="left", parents=("q",), position="elsewhere")
    itself = Child(partition="p", parents=(), position="start")

    own, *children = writes_of("g", Complete(partition="p", owner="a:1", token=4, children=(LEFT, again, itself)))

    assert own.conditions == ("#owner = :seen_owner", "#token = :seen_token")
    assert (
        own.update == "SET #position = :position, #finished = :finished REMOVE #owner, #attempts, #suspects, #prepared"
    )
    (child,) = children
    assert child.transact_item("leases") == {
        "Update": {
            "TableName": "leases",
            "Key": {"pk": {"S": key_of("g", Create(partition="left", position="")).pk}, "sk": {"S": "left"}},
            "UpdateExpression": "SET "
            + ", ".join(
                f"#{name} = if_not_exists(#{name}, :{name})"
                for name in ("token", "position", "seq", "parents", "finished", "paused", "weight")
            ),
            "ExpressionAttributeNames": {
                f"#{name}": name for name in ("token", "position", "seq", "parents", "finished", "paused", "weight")
            },
            "ExpressionAttributeValues": {
                ":token": {"N": "0"},
                ":position": {"S": "start"},
                ":seq": {"N": "0"},
                ":parents": {"L": [{"S": "p"}]},
                ":finished": {"BOOL": False},
                ":paused": {"BOOL": False},
                ":weight": {"N": "0"},
            },
        }
    }


def test_complete_without_children_is_a_single_write() -> None:
    """A transaction costs twice as much and may meet a conflict."""
    assert len(writes_of("g", Complete(partition="p", owner="a:1", token=4))) == 1


def test_held_check_needs_owner_and_token() -> None:
    """What a user puts into a transaction of their own."""
    check = held_check("g", "p", owner="a:1", token=4).transact_item("leases")

    assert check == {
        "ConditionCheck": {
            "TableName": "leases",
            "Key": {"pk": {"S": "g#leases#1"}, "sk": {"S": "p"}},
            "ConditionExpression": "#owner = :seen_owner AND #token = :seen_token",
            "ExpressionAttributeNames": {"#owner": "owner", "#token": "token"},
            "ExpressionAttributeValues": {":seen_owner": {"S": "a:1"}, ":seen_token": {"N": "4"}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def test_lock_check_is_that_of_a_lease_on_the_locks_item() -> None:
    """The same fence, under the key of locks: a lock may have the name of a partition."""
    check, of_lease = (
        made.transact_item("leases")["ConditionCheck"]
        for made in (lock_check("g", "p", owner="a:1", token=4), held_check("g", "p", owner="a:1", token=4))
    )

    assert check == {**of_lease, "Key": {"pk": {"S": "g#locks"}, "sk": {"S": "p"}}}


def test_codec_is_that_of_the_verbs_kind() -> None:
    """A session read as a lease would be told as broken."""
    every = (EVERY[0], a_beat(), an_acquire_of_lock(None), EVERY[-1])

    assert [codec_of(verb) for verb in every] == [LEASE, SESSION, LOCK, GROUP]


def test_beat_that_no_number_can_hold_names_the_value() -> None:
    """A load of infinity is a fault of whoever measures it."""
    with pytest.raises(ValueError, match="inf"):
        writes_of("g", Beat(session_id="a:1", owned=0, load=float("inf"), draining=False, known=None))
