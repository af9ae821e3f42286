"""Whole items: what DynamoDB keeps of each kind, where it lies, and what others may have put beside it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.codecs.items import GROUP, LEASE, LOCK, SESSION
from partitions.codecs.keys import group_key, lease_key, leases_pks, session_key
from partitions.errors import StoreMisconfigured
from partitions.items import GroupItem, Known, LeaseItem, LockItem, Prepared, SessionItem
from tests.builders import a_group, a_lease, a_session

__all__: list[str] = []

TEXTS = st.text(max_size=20)
IDS = st.text(min_size=1, max_size=20)
WHOLES = st.integers(0, 2**63)
NUMBERS = st.floats(min_value=0, max_value=1e9).filter(lambda value: value == 0 or value > 1e-100)
EXTRAS = st.dictionaries(IDS.map("x_{}".format), st.none() | st.booleans() | TEXTS | WHOLES, max_size=3)

LEASES = st.builds(
    LeaseItem,
    partition=IDS,
    owner=st.none() | TEXTS,
    token=WHOLES,
    position=TEXTS,
    seq=WHOLES,
    parents=st.lists(TEXTS, max_size=3).map(tuple),
    finished=st.booleans(),
    paused=st.booleans(),
    weight=NUMBERS,
    last_host=st.none() | TEXTS,
    attempts=WHOLES,
    suspects=WHOLES,
    prepared=st.none() | st.builds(Prepared, state=TEXTS, position=TEXTS),
    extra=EXTRAS,
)
SESSIONS = st.builds(
    SessionItem,
    session_id=IDS,
    host_id=TEXTS,
    beat=WHOLES,
    duration_s=NUMBERS,
    handoff_s=NUMBERS,
    owned=WHOLES,
    load=NUMBERS,
    capacity=NUMBERS,
    max_leases=st.none() | WHOLES,
    draining=st.booleans(),
    drain_asked=st.booleans(),
    known=st.none() | st.builds(Known, count=WHOLES, checksum=st.integers(0, 2**32 - 1)),
    sick=st.booleans(),
    asks=st.dictionaries(TEXTS, TEXTS, max_size=3),
    extra=EXTRAS,
)
LOCKS = st.builds(
    LockItem,
    name=IDS,
    owner=st.none() | TEXTS,
    token=WHOLES,
    expires=st.booleans(),
    holder=st.none() | TEXTS,
    extra=EXTRAS,
)
GROUPS = st.builds(
    GroupItem,
    source=TEXTS,
    start=TEXTS,
    plan_mode=TEXTS,
    load_threshold=NUMBERS,
    moves_max=WHOLES,
    weighed_by=TEXTS,
    restore_count=WHOLES,
    schema_version=WHOLES,
    extra=EXTRAS,
)


@given(LOCKS)
def test_a_lock_comes_back_as_it_was(lock: LockItem) -> None:
    """Every field, whatever it holds."""
    assert LOCK.to_item(LOCK.to_attributes("g", lock)) == lock


@given(LEASES)
def test_a_lease_comes_back_as_it_was(lease: LeaseItem) -> None:
    """Every field, whatever it holds."""
    assert LEASE.to_item(LEASE.to_attributes("g", lease)) == lease


@given(SESSIONS)
def test_a_session_comes_back_as_it_was(session: SessionItem) -> None:
    """Every field, whatever it holds."""
    assert SESSION.to_item(SESSION.to_attributes("g", session)) == session


@given(GROUPS)
def test_a_group_comes_back_as_it_was(group: GroupItem) -> None:
    """Every field, whatever it holds."""
    assert GROUP.to_item(GROUP.to_attributes("g", group)) == group


def test_a_lease_is_kept_under_one_of_eight_keys_with_every_field_that_it_has() -> None:
    """Keys and names are read by other versions, and by people in the console: they never change."""
    lease = a_lease("p", owner="a:1", token=3, position="77", seq=2, parents=("o",), weight=0.5, last_host="a")

    assert LEASE.to_attributes("g", lease) == {
        "pk": {"S": "g#leases#1"},
        "sk": {"S": "p"},
        "owner": {"S": "a:1"},
        "token": {"N": "3"},
        "position": {"S": "77"},
        "seq": {"N": "2"},
        "parents": {"L": [{"S": "o"}]},
        "finished": {"BOOL": False},
        "paused": {"BOOL": False},
        "weight": {"N": "0.5"},
        "last_host": {"S": "a"},
    }
    assert LEASE.to_attributes("g", a_lease("p")).keys().isdisjoint({"owner", "last_host"})


def test_a_session_is_kept_with_its_asks_as_a_map_also_where_there_are_none() -> None:
    """An update reaches into the map; where there is none, DynamoDB refuses the path."""
    session = a_session("a:1", known=Known(count=2, checksum=9), extra={"pid": 7})

    assert SESSION.to_attributes("g", session) == {
        "pk": {"S": "g#hosts"},
        "sk": {"S": "a:1"},
        "host_id": {"S": "a"},
        "beat": {"N": "0"},
        "duration_s": {"N": "10"},
        "handoff_s": {"N": "30"},
        "owned": {"N": "0"},
        "load": {"N": "0"},
        "capacity": {"N": "1"},
        "draining": {"BOOL": False},
        "drain_asked": {"BOOL": False},
        "known": {"M": {"count": {"N": "2"}, "checksum": {"N": "9"}}},
        "asks": {"M": {}},
        "pid": {"N": "7"},
    }


def test_leases_are_spread_evenly_over_their_keys() -> None:
    """One key takes only 1,000 writes a second."""
    keys = Counter(lease_key("g", f"shardId-{number:012}").pk for number in range(8000))

    assert set(keys) == set(leases_pks("g"))
    assert min(keys.values()) > 800


@given(st.sampled_from(["g", "g#hosts", "g#leases#0", "#", "g#group", ""]), st.sampled_from(["g", "g#hosts", "#", ""]))
def test_groups_never_share_a_key_whatever_their_names(one: str, other: str) -> None:
    """Two applications in one table must not see each other's items (case C54)."""

    def keys(group: str) -> set[str]:
        return {*leases_pks(group), session_key(group, "s").pk, group_key(group).pk}

    assert len(keys(one)) == 10
    assert one == other or keys(one).isdisjoint(keys(other))


def test_fields_of_a_later_version_are_kept_if_they_are_single_values_and_else_not_shown() -> None:
    """A reader keeps what it does not know; updates name what they change, so the others stay as they are."""
    later: dict[str, Any] = {"colour": {"N": "3"}, "shapes": {"SS": ["a"]}, "depths": {"M": {}}}

    found = LEASE.to_item({**LEASE.to_attributes("g", a_lease("p")), **later})

    assert found == a_lease("p", extra={"colour": 3})


@pytest.mark.parametrize(
    ("change", "told"),
    [({"position": None}, "position"), ({"token": {"S": "1"}}, "KeyError"), ({"token": {"N": "x"}}, "Syntax")],
)
def test_an_item_that_something_else_has_written_is_told_with_its_key(change: dict[str, Any], told: str) -> None:
    """Whoever repairs it needs the key."""
    attributes = {**LEASE.to_attributes("g", a_lease("p")), **change}
    broken = {name: value for name, value in attributes.items() if value is not None}

    with pytest.raises(StoreMisconfigured, match=f"pk='g#leases#1' and sk='p' is no LeaseItem .*{told}.*repair"):
        LEASE.to_item(broken)


@pytest.mark.parametrize("name", ["pk", "sk", "beat"])
def test_a_field_for_people_with_the_name_of_a_field_is_refused(name: str) -> None:
    """It would overwrite what all hosts decide by."""
    with pytest.raises(ValueError, match=name):
        SESSION.to_attributes("g", a_session(extra={name: 1}))


def test_group_of_an_earlier_version_is_balanced_by_number() -> None:
    """Its item has none of the fields that say otherwise."""
    attributes = GROUP.to_attributes("g", a_group())
    for name in ("load_threshold", "moves_max", "weighed_by"):
        del attributes[name]

    assert GROUP.to_item(attributes) == a_group()
