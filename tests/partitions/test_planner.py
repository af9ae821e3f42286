"""
The planner's promises (DESIGN section 6), each a property named after it, and the groups that field cases name.

The oracles here are slow and simple on purpose: they try every fair division instead of computing one.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.planner import plan
from partitions.quotas import Share, quotas
from tests.builders import a_lease, a_session
from tests.partitions.planning import (
    GONE,
    Crowd,
    Group,
    carried_out,
    groups,
    is_bound_to_an_operator,
    is_draining,
    is_operator,
    owned,
    steps_of,
)

__all__: list[str] = []


def shares_of(targets: Mapping[str, str | None]) -> dict[str | None, int]:
    return dict(Counter(targets.values()))


def moves_of(leases: Iterable[LeaseItem], targets: Mapping[str, str | None]) -> dict[str, str | None]:
    """The targets of the leases that are to leave an owner; all owners are taken to live."""
    return {
        lease.partition: targets[lease.partition]
        for lease in leases
        if lease.owner is not None and targets[lease.partition] != lease.owner
    }


# --- Any group ------------------------------------------------------------------------------------------------------


def fair_divisions(total: int, shares: Sequence[Share]) -> Iterator[dict[str, int]]:
    """
    Every fair division: whoever the maximum holds back has it, anybody else its exact share, rounded down or up.

    Tries every set of sessions that might be held back by their maxima, and keeps those that are consistent.
    """
    limits = {share.session_id: share.max_leases for share in shares}
    weights = {share.session_id: Fraction(str(share.capacity)) for share in shares}
    if None not in limits.values() and sum(limit or 0 for limit in limits.values()) <= total:
        yield {name: limit or 0 for name, limit in limits.items()}
        return
    for size in range(len(shares)):
        for full in itertools.combinations(limits, size):
            others = [name for name in limits if name not in full]
            fixed = {name: limits[name] for name in full}
            if None in fixed.values():
                continue
            left = total - sum(limit or 0 for limit in fixed.values())
            level = Fraction(left) / sum(weights[name] for name in others)
            exact = {name: level * weights[name] for name in others}
            if all((limit or 0) <= level * weights[name] for name, limit in fixed.items()) and all(
                limit is None or exact[name] < limit for name, limit in limits.items() if name in exact
            ):
                ways = [{int(share), int(share) + (share.denominator != 1)} for share in exact.values()]
                for way in itertools.product(*ways):
                    if sum(way) == left:
                        yield {
                            **{name: limit or 0 for name, limit in fixed.items()},
                            **dict(zip(others, way, strict=True)),
                        }
                return


def fewest_moves(group: Group) -> int:
    """The fewest leases that must leave a living session until the group is balanced; for a group without asks."""
    leases = [lease for lease in group.plannable() if not is_bound_to_an_operator(group, lease)]
    held = Counter(lease.owner for lease in leases if group.session(lease.owner) is not None)
    takers = group.takers()
    if not takers:
        return 0
    shares = [
        Share(session_id=one.session_id, capacity=one.capacity, max_leases=one.max_leases, held=0) for one in takers
    ]
    free = len(leases) - held.total()
    fewest = []
    for division in fair_divisions(len(leases), shares):
        excess = sum(max(0, count - division.get(name or "", 0)) for name, count in held.items())
        room = sum(max(0, most - held[name]) for name, most in division.items())
        fewest.append(min(excess, max(0, room - free)))
    return min(fewest)


@given(group=groups())
def test_plan_is_for_exactly_the_plannable_partitions_and_for_sessions_that_are_there(group: Group) -> None:
    """What is finished, paused or waits for a parent counts for nobody; a session that is gone can take nothing."""
    targets = group.targets()

    assert list(targets) == sorted(lease.partition for lease in group.plannable())
    assert set(targets.values()) <= {None, *(session.session_id for session in group.sessions)}


@given(group=groups(), seed=st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_the_order_of_items(group: Group, seed: random.Random) -> None:
    """Stores return items in any order; two hosts that read the same must plan the same."""

    def shuffled(items: Iterable[LeaseItem] | Iterable[SessionItem]) -> list[LeaseItem] | list[SessionItem]:
        return sorted(items, key=lambda _: seed.random())  # type: ignore[return-value]

    sessions = [
        replace(session, asks=dict(sorted(session.asks.items(), key=lambda _: seed.random())))
        for session in group.sessions
    ]

    again = plan(
        seed.sample(group.leases, len(group.leases)), seed.sample(sessions, len(sessions)), listed=group.listed
    )

    assert list(again.targets.items()) == list(group.targets().items())


def test_plan_does_not_depend_on_the_order_of_sessions_when_room_is_short() -> None:
    """Two draining hosts and one free place: all hosts must mean the same lease."""
    leases = [*owned("a:1", 1), *owned("b:1", 0)]
    sessions = [a_session("a:1", draining=True), a_session("b:1", draining=True), a_session("c:1", max_leases=1)]

    assert plan(leases, sessions) == plan(leases, sessions[::-1])


@given(group=groups())
def test_plan_shares_differ_by_at_most_one_in_proportion_to_capacity(group: Group) -> None:
    """One lease more for the smaller share and one less for the larger must not be fairer: for any two hosts."""
    shares = shares_of(group.targets())

    for more, less in itertools.permutations(group.takers(), 2):
        if less.max_leases is None or shares.get(less.session_id, 0) < less.max_leases:
            assert (shares.get(more.session_id, 0) - 1) * less.capacity < (
                shares.get(less.session_id, 0) + 1
            ) * more.capacity


@given(group=groups())
def test_plan_respects_max_leases_and_leaves_nothing_while_anybody_has_room(group: Group) -> None:
    """What a host cannot take goes to the others; only when all are full may a lease stay without a target."""
    shares = shares_of(group.targets())
    takers = group.takers()

    assert all(shares.get(one.session_id, 0) <= one.max_leases for one in takers if one.max_leases is not None)
    if None in shares:
        assert all(shares.get(one.session_id, 0) == one.max_leases for one in takers)


@given(group=groups())
def test_plan_gives_nothing_to_draining_hosts_and_to_operators_only_what_they_have_or_asked_for(group: Group) -> None:
    """A draining host leaves, and a command that resets one lease must not be given the work of a host."""
    for lease in group.plannable():
        target = group.session(group.targets()[lease.partition])
        assert target is None or not is_draining(target)
        if target is not None and is_operator(target):
            asks = [session.asks.get(ask_key(lease.partition, lease.token)) for session in group.sessions]
            assert target.session_id in (lease.owner, *asks)


@given(group=groups(asks=False))
def test_plan_moves_are_the_fewest_that_any_fair_division_needs(group: Group) -> None:
    """Every move interrupts a partition: the remainders must go where they spare one."""
    targets = group.targets()
    moved = [
        lease
        for lease in group.plannable()
        if group.session(lease.owner) is not None and targets[lease.partition] not in (None, lease.owner)
    ]

    assert len(moved) == fewest_moves(group)


@given(group=groups())
def test_plan_moves_nothing_when_balanced(group: Group) -> None:
    """Once everybody has done its steps, the plan is the state: no lease moves in a group in which nothing changes."""
    targets = group.targets()
    balanced = carried_out(group, targets)

    assert balanced.targets() == targets
    assert steps_of(balanced) == []


@given(group=groups(asks=False), seed=st.randoms(use_true_random=False))
def test_plan_needs_no_move_more_when_only_a_part_of_it_is_carried_out(group: Group, seed: random.Random) -> None:
    """Hosts act at different moments; whatever was done first, the way to the balance gets shorter and never longer."""
    fewest = fewest_moves(group)
    moves = 0
    while steps := steps_of(group):
        part = seed.sample(steps, seed.randint(1, len(steps)))
        moves += sum(group.session(lease.owner) is not None for lease in group.leases if lease.partition in part)
        group = carried_out(group, part)

    assert moves == fewest


@given(group=groups(asks=False), seed=st.randoms(use_true_random=False), actions=st.integers(min_value=0, max_value=40))
def test_hosts_that_each_act_for_themselves_need_no_move_more_than_the_plan(
    group: Group, seed: random.Random, actions: int
) -> None:
    """With asks that stand, leases on their way and free for a moment, nobody may take what was meant for another."""
    crowd = Crowd(group)
    fewest = fewest_moves(group)
    names = list(crowd.sessions)
    for _ in range(actions if names else 0):
        seed.choice([crowd.take, crowd.honour, crowd.beat])(seed.choice(names))
    for _ in range(2 * len(group.leases) + 2):
        for name in names:
            crowd.take(name)
            crowd.honour(name)
            crowd.beat(name)

    assert (steps_of(crowd.group()), crowd.moves()) == ([], fewest)


# --- Quotas ---------------------------------------------------------------------------------------------------------


def share(session_id: str, held: int = 0, *, capacity: float = 1.0, max_leases: int | None = None) -> Share:
    return Share(session_id=session_id, capacity=capacity, max_leases=max_leases, held=held)


@given(
    total=st.integers(min_value=0, max_value=40),
    shares=st.lists(
        st.builds(
            share,
            st.sampled_from("abcde"),
            st.integers(min_value=0, max_value=12),
            capacity=st.sampled_from([1.0, 1.0, 0.1, 0.2, 0.3, 2.0, 7.5]),
            max_leases=st.sampled_from([None, None, 0, 1, 3, 9]),
        ),
        max_size=5,
        unique_by=lambda one: one.session_id,
    ),
)
def test_quotas_are_a_fair_division_that_needs_the_fewest_moves(total: int, shares: list[Share]) -> None:
    """Tried against every fair division there is."""
    result = quotas(total, shares)
    fair = list(fair_divisions(total, shares)) if shares else [{}]

    def excess(division: Mapping[str, int]) -> int:
        return sum(max(0, one.held - division[one.session_id]) for one in shares)

    assert result in fair
    assert excess(result) == min(map(excess, fair))


def test_quotas_give_the_remainders_to_those_who_hold_most() -> None:
    """Each of them then gives one lease less away; a tie is broken by the name, the same on every host."""
    held = {"a": 0, "b": 3, "c": 3, "d": 5, "e": 4}

    assert quotas(12, [share(name, count) for name, count in held.items()]) == {"a": 2, "b": 2, "c": 2, "d": 3, "e": 3}
    assert quotas(13, [share(name, count) for name, count in held.items()]) == {"a": 2, "b": 3, "c": 2, "d": 3, "e": 3}


def test_quotas_give_the_larger_remainder_first_when_it_spares_no_move() -> None:
    """Of 10 leases 4:1:3 shares are 5, 1.25 and 3.75; the one left over belongs to the third."""
    capacities = {"a": 4.0, "b": 1.0, "c": 3.0}

    assert quotas(10, [share(name, capacity=each) for name, each in capacities.items()]) == {"a": 5, "b": 1, "c": 4}
    assert quotas(10, [share(name, 9, capacity=each) for name, each in capacities.items()]) == {"a": 5, "b": 1, "c": 4}


def test_quotas_give_no_remainder_to_a_session_whose_share_is_whole() -> None:
    """It would be a whole lease away from its share, only because it holds too many now."""
    shares = [share("a", 9, capacity=4.0), share("b", capacity=3.0), share("c", capacity=3.0)]

    assert quotas(5, shares) == {"a": 2, "b": 2, "c": 1}


def test_quotas_do_not_change_while_free_leases_are_being_taken() -> None:
    """Else hosts that start together would race for the one lease that is left over."""
    for held in itertools.product(range(3), range(2), range(2)):
        assert quotas(4, map(share, "abc", held)) == {"a": 2, "b": 1, "c": 1}


def test_quotas_read_capacities_as_they_are_written() -> None:
    """In binary 0.3 is less than three times 0.1, and its host would miss a lease."""
    assert quotas(4, [share("a", 2, capacity=0.1), share("b", 2, capacity=0.3)]) == {"a": 1, "b": 3}


def test_quotas_pass_on_what_a_full_session_cannot_take() -> None:
    """A small host must not leave partitions without an owner while a large one has room."""
    capped = [share("a", max_leases=1), share("b", max_leases=4), share("c")]

    assert quotas(12, capped) == {"a": 1, "b": 4, "c": 7}
    assert quotas(12, capped[:2]) == {"a": 1, "b": 4}


# --- Groups that users and field cases name -------------------------------------------------------------------------


def hosts(count: int) -> list[SessionItem]:
    return [a_session(f"h{number:02}:1") for number in range(count)]


def dealt(count: int, sessions: Sequence[SessionItem]) -> list[LeaseItem]:
    """`count` leases, dealt out to the sessions in turn."""
    return [lease for number in range(count) for lease in owned(sessions[number % len(sessions)].session_id, number)]


def test_plan_moves_exactly_four_when_a_fourth_host_joins_three_with_16_partitions() -> None:
    """6, 5 and 5 become 4 each: two leave the first, one each of the others, all to the newcomer."""
    three, fourth = hosts(3), a_session("h99:1")
    leases = dealt(16, three)

    targets = plan(leases, [*three, fourth]).targets

    assert list(moves_of(leases, targets).values()) == ["h99:1"] * 4
    assert shares_of(targets) == {"h00:1": 4, "h01:1": 4, "h02:1": 4, "h99:1": 4}


@pytest.mark.parametrize(("count", "partitions"), [(6, 32), (20, 160), (20, 170), (3, 7), (8, 32)])
def test_plan_gives_every_partition_of_a_new_group_a_host_at_once(count: int, partitions: int) -> None:
    """Shares rounded down at each host would leave the remainder to nobody."""
    shares = shares_of(plan([a_lease(f"p-{n}") for n in range(partitions)], hosts(count)).targets)

    assert None not in shares
    assert (len(shares), sum(shares.values())) == (count, partitions)
    assert max(shares.values()) - min(shares.values()) <= 1


def test_plan_moves_nothing_when_there_are_more_hosts_than_partitions() -> None:
    """An idle host is ready to take over; it has nothing to take."""
    leases = dealt(2, hosts(2))

    assert moves_of(leases, plan(leases, hosts(5)).targets) == {}


def test_plan_gives_the_leases_of_a_dead_host_to_the_survivors() -> None:
    """A session that is not there any more must not count in the share that the others are entitled to."""
    three = hosts(3)
    leases = dealt(6, three)

    targets = plan(leases, three[1:]).targets

    assert shares_of(targets) == {"h01:1": 3, "h02:1": 3}
    assert {targets["p-00"], targets["p-03"]} == {"h01:1", "h02:1"}
    assert moves_of([lease for lease in leases if lease.owner != "h00:1"], targets) == {}


def test_plan_ignores_finished_partitions_in_the_shares() -> None:
    """Closed partitions stay listed for days; hosts full of them would get no open one."""
    parents = [a_lease(f"p-{n}", finished=True, token=1, last_host=f"h{n:02}") for n in range(4)]
    children = [a_lease(f"c-{n}", parents=(f"p-{n // 2}",)) for n in range(8)]

    targets = plan([*parents, *children], hosts(4)).targets

    assert shares_of(targets) == {f"h{n:02}:1": 2 for n in range(4)}


def test_plan_moves_everything_off_a_draining_host() -> None:
    """Either flag counts: the host's own, or an operator's that the host has not seen yet."""
    for flag in ({"draining": True}, {"drain_asked": True}):
        leaving, staying = a_session("a:1", **flag), a_session("b:1")
        leases = [*owned("a:1", 0, 1), *owned("b:1", 2)]

        assert plan(leases, [leaving, staying]).targets == {"p-00": "b:1", "p-01": "b:1", "p-02": "b:1"}


def test_plan_has_no_target_when_all_hosts_are_draining() -> None:
    """Nobody may take a lease, so nobody asks for one; the owner gives it up when it leaves."""
    leases = [*owned("a:1", 0), *owned("b:1", 1), a_lease("p-02")]

    targets = plan(leases, [a_session("a:1", draining=True), a_session("b:1", drain_asked=True)]).targets

    assert targets == {"p-00": None, "p-01": None, "p-02": None}


def test_plan_has_no_target_when_nobody_is_there() -> None:
    """A group whose hosts are all gone waits; that is no error."""
    assert plan([a_lease("p-00"), *owned(GONE, 1)], []).targets == {"p-00": None, "p-01": None}
    assert plan([], hosts(2)).targets == {}


def test_plan_gives_a_full_host_nothing_more() -> None:
    """What it cannot take goes to the other; once that is full too, the rest stay free."""
    leases = [a_lease(f"p-{n}") for n in range(9)]
    first = a_session("a:1", max_leases=2)

    assert shares_of(plan(leases, [first, a_session("b:1")]).targets) == {"a:1": 2, "b:1": 7}
    assert shares_of(plan(leases, [first, a_session("b:1", max_leases=4)]).targets) == {"a:1": 2, "b:1": 4, None: 3}


def test_plan_takes_free_leases_before_it_moves_any_when_room_is_short() -> None:
    """A draining host still processes what it has; a free lease stands still."""
    leases = [*owned("a:1", 0, 1), a_lease("p-02")]

    targets = plan(leases, [a_session("a:1", draining=True), a_session("b:1", max_leases=1)]).targets

    assert targets == {"p-00": None, "p-01": None, "p-02": "b:1"}


def test_plan_empties_a_draining_host_before_one_that_has_too_many() -> None:
    """The draining one leaves in any case; where room is short the other one can go on."""
    leases = [*owned("a:1", 0, 1), *owned("b:1", 2)]
    sessions = [a_session("a:1", max_leases=1), a_session("b:1", draining=True), a_session("c:1", max_leases=1)]

    assert moves_of(leases[2:], plan(leases, sessions).targets) == {"p-02": "c:1"}


def test_plan_counts_a_dead_host_until_it_is_fenced() -> None:
    """Only the fence proves that its terms have ended; a plan that guessed would differ from host to host."""
    three = [replace(session, beat=7) for session in hosts(3)]
    leases = dealt(6, three)

    assert moves_of(leases, plan(leases, three).targets) == {}


# --- Where free leases go -------------------------------------------------------------------------------------------


def test_plan_gives_a_restarted_host_its_own_leases_back() -> None:
    """Its caches are warm for them, and nobody else is interrupted."""
    others = [*owned("b:1", 10, 11, 12), *owned("c:1", 20, 21, 22)]
    back = [replace(lease, owner="a:1") for lease in owned("a:1", 0, 1, 2)]

    targets = plan([*others, *back], [a_session("a:2"), a_session("b:1"), a_session("c:1")]).targets

    assert {targets[lease.partition] for lease in back} == {"a:2"}
    assert moves_of(others, targets) == {}


def test_plan_moves_the_leases_of_a_draining_life_to_the_next_life_of_the_host() -> None:
    """A rolling restart that starts the new process first keeps partitions on their machine."""
    leases = [*owned("a:1", 0, 1), *owned("b:1", 2, 3), *owned("c:1", 4, 5)]
    sessions = [a_session("a:1", draining=True), a_session("a:2"), a_session("b:1"), a_session("c:1")]

    targets = plan(leases, sessions).targets

    assert moves_of(leases, targets) == {"p-00": "a:2", "p-01": "a:2"}


@pytest.mark.parametrize("host", ["a", "b", "c"])
def test_plan_gives_children_to_the_host_that_had_a_parent(host: str) -> None:
    """What it keeps per key is there already."""
    parent = a_lease("p-00", finished=True, token=3, last_host=host)
    children = [a_lease("p-01", parents=("p-00", "gone")), a_lease("p-02", parents=("p-00",))]
    rest = [a_lease(f"q-{number}") for number in range(4)]

    targets = plan(
        [parent, *children, *rest], [a_session("a:1"), a_session("b:1"), a_session("c:1")], listed=frozenset()
    ).targets

    assert {targets["p-01"], targets["p-02"]} == {f"{host}:1"}


def test_plan_lets_quotas_win_over_where_a_lease_was() -> None:
    """Three hosts left and one came back: it must not get everything only because it was the last to have it."""
    leases = [replace(lease, owner=None) for lease in owned("a:1", 0, 1, 2, 3)]

    assert shares_of(plan(leases, [a_session("a:2"), a_session("b:1")]).targets) == {"a:2": 2, "b:1": 2}


def test_plan_gives_a_lease_back_before_it_gives_a_child_or_any_other() -> None:
    """One free place at the host: the lease that was there comes before the child whose parent was there."""
    parent = a_lease("p-00", finished=True, token=3, last_host="b")
    child = a_lease("p-01", parents=("p-00",))
    was_there = replace(owned("b:1", 2)[0], owner=None)

    targets = plan([parent, child, was_there], [a_session("a:1"), a_session("b:2")]).targets

    assert targets == {"p-01": "a:1", "p-02": "b:2"}


def test_plan_keeps_most_targets_of_free_leases_when_one_more_host_appears() -> None:
    """Hosts that start together see each other one by one; a plan that changed altogether would make them race."""
    leases = [a_lease(f"p-{number:03}") for number in range(210)]

    before, after = plan(leases, hosts(6)).targets, plan(leases, hosts(7)).targets
    changed = sum(before[partition] != after[partition] for partition in before)

    # The newcomer's share is 30; a plan by plain order would change about 180.
    assert 30 <= changed < 90


def test_plan_is_the_same_on_every_machine_and_in_every_version() -> None:
    """During a rolling update two versions plan side by side; a changed rank makes them race for free leases."""
    targets = plan([a_lease(f"shard-{number}") for number in range(6)], hosts(3)).targets

    assert targets == {
        "shard-0": "h00:1",
        "shard-1": "h00:1",
        "shard-2": "h01:1",
        "shard-3": "h02:1",
        "shard-4": "h02:1",
        "shard-5": "h01:1",
    }


# --- Which leases move ----------------------------------------------------------------------------------------------


def test_plan_moves_the_same_leases_whoever_takes_them() -> None:
    """Two hosts that see different newcomers must not ask an owner for more than it has too many."""
    leases = owned("a:1", *range(12))

    one = moves_of(leases, plan(leases, [a_session("a:1"), a_session("b:1")]).targets)
    other = moves_of(leases, plan(leases, [a_session("a:1"), a_session("c:1")]).targets)
    both = moves_of(leases, plan(leases, [a_session("a:1"), a_session("b:1"), a_session("c:1")]).targets)

    assert len(one) == 6
    assert one.keys() == other.keys()
    assert one.keys() < both.keys()


def test_plan_does_not_move_the_same_partitions_at_every_host() -> None:
    """Were it always the first by name, they would be interrupted whenever the group grows."""
    first, second = owned("a:1", *range(12)), owned("b:1", *range(12))

    of_first = moves_of(first, plan(first, [a_session("a:1"), a_session("z:1")]).targets)
    of_second = moves_of(second, plan(second, [a_session("b:1"), a_session("z:1")]).targets)

    assert of_first.keys() != of_second.keys()


# --- Asks -----------------------------------------------------------------------------------------------------------


def asks(owner: str, asker: str, *numbers: int, token: int = 1, **changes: object) -> SessionItem:
    """A session in whose item asks for its own leases stand."""
    return a_session(owner, asks={ask_key(f"p-{number:02}", token): asker for number in numbers}, **changes)


def test_plan_counts_a_lease_that_was_asked_for_as_the_askers() -> None:
    """A move that is under way must not be planned a second time, with another lease."""
    leases = owned("a:1", 0, 1, 2, 3)

    assert plan(leases, [asks("a:1", "b:1", 0, 3), a_session("b:1")]).targets == {
        "p-00": "b:1",
        "p-01": "a:1",
        "p-02": "a:1",
        "p-03": "b:1",
    }


def test_plan_keeps_a_released_lease_for_its_asker() -> None:
    """Where it was last is its old owner's host, which has room; it must not snatch back what it has just released."""
    released = replace(owned("a:1", 0)[0], owner=None)

    for asker in ("b:1", "c:1"):
        sessions = [asks("a:1", asker, 0), a_session("b:1"), a_session("c:1")]
        assert plan([released], sessions).targets == {"p-00": asker}


@pytest.mark.parametrize(
    ("asker", "token"),
    [("", 1), (GONE, 1), ("b:1", 1), ("c:1", 1), ("d:1", 0), ("d:1", 2)],
    ids=["nobody", "gone", "draining", "full", "past term", "another term"],
)
def test_plan_ignores_an_ask_that_does_not_bind(asker: str, token: int) -> None:
    """Its asker will not take the lease, so that it would stay without an owner."""
    leases = [*owned("z:1", 0, 1), *owned("c:1", 2), *owned("d:1", 3)]
    sessions = [
        asks("z:1", asker, 0, token=token),
        a_session("b:1", draining=True),
        a_session("c:1", max_leases=1),
        a_session("d:1"),
    ]

    assert plan(leases, sessions).targets == {"p-00": "z:1", "p-01": "z:1", "p-02": "c:1", "p-03": "d:1"}


@pytest.mark.parametrize("first", [0, 2, 4, 6])
def test_plan_lets_asks_bind_until_their_asker_is_full(first: int) -> None:
    """Each one that binds counts for the next, in order of partition."""
    leases = owned("a:1", first, first + 1)

    targets = plan(leases, [asks("a:1", "b:1", first, first + 1), a_session("b:1", max_leases=1)]).targets

    assert targets == {f"p-{first:02}": "b:1", f"p-{first + 1:02}": "a:1"}


def test_plan_lets_an_ask_bind_once_another_ask_has_made_room_at_its_asker() -> None:
    """The asker is full only until what it gives away counts elsewhere, whichever partition comes first."""
    for first, second in ((0, 1), (1, 0)):
        leases = [*owned("a:1", first), *owned("b:1", second)]
        sessions = [asks("a:1", "b:1", first), asks("b:1", "c:1", second, max_leases=1), a_session("c:1")]

        assert plan(leases, sessions).targets == {f"p-{first:02}": "b:1", f"p-{second:02}": "c:1"}


def test_plan_prefers_the_ask_in_the_owners_item() -> None:
    """The owner releases because of that one; the other asker asked a session that had lost the lease."""
    leases = [*owned("b:1", 0), *owned("c:1", 1), *owned("d:1", 2)]
    sessions = [asks("a:1", "d:1", 0), asks("b:1", "c:1", 0), a_session("c:1"), a_session("d:1")]

    assert plan(leases[:1], sessions).targets == {"p-00": "c:1"}
    assert plan([replace(leases[0], owner=None)], sessions).targets == {"p-00": "d:1"}


def test_plan_moves_owned_leases_before_those_that_were_only_asked_for() -> None:
    """The handoff of an asked one has begun; a third host could not even ask for it, since its key stands."""
    leases = [*owned("a:1", 0, 1), *owned("b:1", 2, 3, 4, 5)]
    sessions = [asks("b:1", "a:1", 4, 5), a_session("a:1"), a_session("c:1")]

    targets = plan(leases, sessions).targets

    assert (targets["p-04"], targets["p-05"]) == ("a:1", "a:1")


def test_plan_asks_for_no_lease_twice_when_an_asker_has_too_many() -> None:
    """Hosts that joined after it asked get theirs from what counts as the asker's, not from another owner."""
    leases = owned("a:1", 0, 1, 2, 3)
    sessions = [asks("a:1", "b:1", 0, 1, 2), a_session("b:1"), a_session("c:1")]

    targets = plan(leases, sessions).targets

    assert targets["p-03"] == "a:1"
    assert shares_of(targets) == {"a:1": 1, "b:1": 2, "c:1": 1}


# --- Operators ------------------------------------------------------------------------------------------------------


def test_plan_leaves_a_lease_to_the_operator_who_asked_for_it_or_owns_it() -> None:
    """A command resets a position by holding the lease for a moment; nobody may snatch it or plan a move for it."""
    lease = owned("a:1", 0)[0]
    operator = a_session("ops:1", capacity=0.0)
    asked = [asks("a:1", "ops:1", 0), a_session("b:1"), operator]
    plain = [a_session("a:1"), a_session("b:1"), operator]

    assert plan([lease], asked).targets == {"p-00": "ops:1"}
    assert plan([replace(lease, owner=None)], asked).targets == {"p-00": "ops:1"}
    assert plan([replace(lease, owner="ops:1", token=2)], plain).targets == {"p-00": "ops:1"}


def test_plan_takes_a_lease_from_an_operator_who_drains_or_is_gone() -> None:
    """A command that died must not keep a partition from being processed."""
    lease = replace(owned("a:1", 0)[0], owner="ops:1", token=2)

    assert plan([lease], [a_session("a:1"), a_session("ops:1", capacity=0.0, draining=True)]).targets == {"p-00": "a:1"}
    assert plan([lease], [a_session("a:1")]).targets == {"p-00": "a:1"}


def test_plan_counts_a_lease_with_an_operator_for_nobody() -> None:
    """Two hosts with three leases and one become even, however many a command holds."""
    leases = [*owned("a:1", 0, 1, 2), *owned("b:1", 3), *owned("ops:1", 4, 5, 6)]

    targets = plan(leases, [a_session("a:1"), a_session("b:1"), a_session("ops:1", capacity=0.0)]).targets

    assert shares_of(targets) == {"a:1": 2, "b:1": 2, "ops:1": 3}


@pytest.mark.parametrize("capacity", [0.0, -1.0, float("nan"), float("inf")])
def test_plan_gives_nothing_to_a_session_without_a_sensible_capacity(capacity: float) -> None:
    """One item with nonsense must neither stop the plan of all hosts nor draw all leases to itself."""
    leases = [a_lease("p-00"), a_lease("p-01")]

    targets = plan(leases, [a_session("a:1", capacity=capacity), a_session("b:1")]).targets

    assert targets == {"p-00": "b:1", "p-01": "b:1"}


# --- Speed ----------------------------------------------------------------------------------------------------------


@pytest.mark.bench
@pytest.mark.parametrize(("partitions", "count", "limit_s"), [(1_000, 20, 0.02), (10_000, 100, 0.3)])
@pytest.mark.parametrize("state", ["all free", "balanced", "half the hosts new"])
def test_plan_is_fast(partitions: int, count: int, limit_s: float, state: str) -> None:
    """It runs on the loop of the host, between beats."""
    sessions = hosts(count)
    owners = {"all free": [a_session(GONE)], "balanced": sessions, "half the hosts new": sessions[: count // 2]}[state]
    leases = dealt(partitions, owners)

    took_s = []
    for _ in range(5):
        started_s = time.process_time()
        plan(leases, sessions)
        took_s.append(time.process_time() - started_s)

    print(f"{partitions} leases, {count} sessions, {state}: {min(took_s) * 1e3:.1f} ms")
    assert min(took_s) < limit_s
