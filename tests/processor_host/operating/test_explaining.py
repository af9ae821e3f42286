"""
What is told of a plan: each step with its reason, and what rests with its own.
"""

from __future__ import annotations

import pytest

from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.weights import LoadRule
from processor_host.operating.explaining import Explained, HostPlan, Resting, Step, explain
from tests.builders import a_lease, a_session

__all__: list[str] = []

A, B = a_session("a:1"), a_session("b:1")


def steps_of(leases: list[LeaseItem], *sessions: SessionItem) -> dict[str, list[tuple[str, str, str]]]:
    """What each host would do, with the reason."""
    return {
        host.session_id: [(step.what, step.partition, step.why) for step in host.steps]
        for host in explain(leases, sessions).hosts
    }


def owned(name: str, by: SessionItem, **more: object) -> LeaseItem:
    return a_lease(name, owner=by.session_id, token=1, last_host=by.host_id, **more)


def test_explained_group_at_rest_has_nothing_to_do() -> None:
    """What it owns it holds: seen from outside, no lease is one whose answer was lost."""
    found = explain([owned("p0", A), owned("p1", B)], [A, B])

    assert found == Explained(
        hosts=tuple(
            HostPlan(host_id=host, session_id=f"{host}:1", owned=1, planned=1, state="works", steps=()) for host in "ab"
        ),
        resting=(),
    )
    assert found.is_settled


@pytest.mark.parametrize(
    ("lease", "why"),
    [
        (a_lease("p0"), "it is free, and this host has room for it"),
        (a_lease("p0", last_host="a"), "it is free, and this host had it last"),
        (a_lease("p0", owner="x:9", token=3), "its owner, session x:9, is gone, and this host has room for it"),
    ],
)
def test_explained_acquire_says_why_it_is_free_and_why_it_is_this_hosts(lease: LeaseItem, why: str) -> None:
    """Both are questions that an operator has."""
    assert steps_of([lease], A) == {"a:1": [("acquire", "p0", why)]}


def test_explained_child_goes_to_the_host_of_its_parent() -> None:
    """Its state may still be there."""
    parent = a_lease("p0", finished=True, token=1, last_host="b")
    children = [a_lease(name, parents=("p0",)) for name in ("p1", "p2")]

    assert steps_of([parent, *children], A, B) == {
        "a:1": [("acquire", "p2", "it is free, and this host has room for it")],
        "b:1": [("acquire", "p1", "it is free, and this host had its parent")],
    }


def test_explained_ask_says_what_is_too_much_and_a_drain_that_it_is_one() -> None:
    """A move for balance and a move for a deploy look alike otherwise."""
    leases = [owned(f"p{n}", A) for n in range(4)]
    for_balance = steps_of(leases, A, B)
    for_drain = steps_of(leases, a_session("a:1", drain_asked=True), B)

    assert [(what, why) for what, _, why in for_balance["b:1"]] == [("ask", "a has 4, and its share is 2")] * 2
    assert [(what, why) for what, _, why in for_drain["b:1"]] == [("ask", "a drains")] * 4
    assert for_balance["a:1"] == for_drain["a:1"] == []


def test_explained_wait_names_who_has_asked() -> None:
    """An ask that stands is waited for, whoever wrote it."""
    asked = a_session("a:1", asks={ask_key("p0", 1): "b:1"})
    found = explain([owned("p0", A), owned("p1", A)], [asked, B])

    assert [host.steps for host in found.hosts] == [
        (),
        (Step(partition="p0", what="wait", owner="a", why="b has asked a, which has not released it yet"),),
    ]


def test_explained_resting_partitions_say_what_they_wait_for() -> None:
    """None of them is forgotten."""
    leases = [
        a_lease("p0", finished=True),
        a_lease("p1", paused=True, extra={"paused_because": "poison"}),
        a_lease("p2"),
        a_lease("p3", parents=("p2",)),
    ]

    assert explain(leases, [a_session("op:1", capacity=0.0)]).resting == (
        Resting(partition="p0", why="it has ended"),
        Resting(partition="p1", why="it is paused: poison"),
        Resting(partition="p2", why="no host may take it: there is none, or all are full or draining"),
        Resting(partition="p3", why="it waits for the end of p2"),
    )


def test_explained_parent_that_is_gone_for_good_needs_a_listing() -> None:
    """As for hosts: only a listing read after the leases tells it from one that nobody has discovered yet."""
    child = a_lease("p1", parents=("p0",))

    assert explain([child], [A]).resting == (Resting(partition="p1", why="it waits for the end of p0"),)
    assert explain([child], [A], listed=frozenset({"p1"})).resting == ()


def test_explained_group_in_load_mode_is_planned_by_weight() -> None:
    """Two partitions each, and one host does all the work; its operator sees what hosts will do about it."""
    weights = {"p0": 9.0, "p1": 9.0, "p2": 1.0, "p3": 1.0}
    leases = [owned(name, A if weight > 1 else B, weight=weight) for name, weight in weights.items()]

    found = explain(leases, [A, B], load=LoadRule(threshold=0.1, moves_max=10))

    assert [(host.host_id, [step.what for step in host.steps]) for host in found.hosts] == [("a", []), ("b", ["ask"])]
