"""
The promises of load mode (DESIGN section 6), each a property named after it, and the groups that show what is meant.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.planner import plan
from partitions.weights import AVERAGE, LIGHTEST, LoadRule, load_rule_of, units_of
from tests.builders import a_group, a_lease, a_session
from tests.partitions.planning import (
    Crowd,
    Group,
    carried_out,
    groups,
    is_draining,
    is_operator,
    is_taker,
    steps_of,
)

__all__: list[str] = []

RULE = LoadRule(threshold=0.1, moves_max=10)
EXACT = LoadRule(threshold=0.0, moves_max=1000)
ROUNDS_MAX = 200


def weighted(session_id: str, *weights: float, first: int = 0) -> list[LeaseItem]:
    """Leases of these weights that the session owns, numbered from `first` on."""
    host_id = session_id.rpartition(":")[0]
    return [
        a_lease(f"p-{first + n:03}", owner=session_id, token=1, last_host=host_id, weight=weight)
        for n, weight in enumerate(weights)
    ]


def moved(leases: Iterable[LeaseItem], sessions: Sequence[SessionItem], rule: LoadRule = RULE) -> dict[str, str | None]:
    """The targets of the leases that are to leave an owner; all owners are taken to live."""
    leases = list(leases)
    targets = plan(leases, sessions, load=rule).targets
    return {
        lease.partition: targets[lease.partition]
        for lease in leases
        if lease.owner is not None and targets[lease.partition] != lease.owner
    }


def held_by_takers(group: Group) -> list[LeaseItem]:
    """The leases that enter the division: all in the plan but those that are bound to an operator."""
    return [lease for lease in group.plannable() if (one := group.session(lease.owner)) is None or not is_operator(one)]


def levels_of(group: Group) -> tuple[dict[str, Fraction], Fraction]:
    """What each taker carries by its capacity, by owner, and the fair level."""
    leases = held_by_takers(group)
    units = units_of(leases)
    capacities = {one.session_id: Fraction(str(one.capacity)) for one in group.takers()}
    carried = Counter[str]()
    for lease in leases:
        carried[lease.owner or ""] += units[lease.partition]
    levels = {name: carried[name] / capacity for name, capacity in capacities.items()}
    return levels, Fraction(sum(units.values())) / sum(capacities.values())


def at_rest(group: Group, seed: random.Random) -> Group:
    """The group once nobody has a step left, a part of all steps at a time."""
    for _ in range(ROUNDS_MAX):
        steps = steps_of(group)
        if not steps:
            return group
        group = carried_out(group, seed.sample(steps, seed.randint(1, len(steps))))
    raise AssertionError(f"not at rest after {ROUNDS_MAX} rounds: {group}")


# --- Any group ------------------------------------------------------------------------------------------------------


@given(group=groups(load=True), seed=st.randoms(use_true_random=False))
def test_load_plan_does_not_depend_on_the_order_of_items(group: Group, seed: random.Random) -> None:
    """Stores return items in any order; two hosts that read the same must plan the same, to the last rounding."""
    again = plan(
        seed.sample(group.leases, len(group.leases)),
        seed.sample(group.sessions, len(group.sessions)),
        listed=group.listed,
        load=group.load,
    )

    assert list(again.targets.items()) == list(group.targets().items())


@given(group=groups(load=True))
def test_load_plan_is_for_exactly_the_plannable_partitions_and_for_sessions_that_may_take_them(group: Group) -> None:
    """What is finished, paused or waits weighs nothing; who drains gets nothing, an operator what it asked for."""
    targets = group.targets()

    assert list(targets) == sorted(lease.partition for lease in group.plannable())
    for lease in group.plannable():
        target = group.session(targets[lease.partition])
        assert (target is None) == (targets[lease.partition] is None)
        assert target is None or not is_draining(target)
        if target is not None and is_operator(target):
            asks = [session.asks.get(ask_key(lease.partition, lease.token)) for session in group.sessions]
            assert target.session_id in (lease.owner, *asks)


@given(group=groups(load=True))
def test_load_plan_respects_max_leases_and_places_everything_free_at_once(group: Group) -> None:
    """Only where all are full may a lease stay without a target, whatever it weighs and however few may move."""
    shares = Counter(group.targets().values())
    takers = group.takers()

    assert all(shares[one.session_id] <= one.max_leases for one in takers if one.max_leases is not None)
    if None in shares:
        assert all(shares[one.session_id] == one.max_leases for one in takers)


@given(group=groups(load=True))
def test_load_plan_counts_an_ask_as_its_askers_and_plans_nothing_else_for_it(group: Group) -> None:
    """A pending move is not planned twice, nor turned round while it is under way, unless the asker has too many."""
    targets = group.targets()
    for lease in group.plannable():
        owner = group.session(lease.owner)
        asker = None if owner is None else group.session(owner.asks.get(ask_key(lease.partition, lease.token)))
        if owner is not None and asker is not None and is_taker(asker) and asker.max_leases is None:
            assert targets[lease.partition] == asker.session_id


@given(group=groups(load=True))
def test_load_plan_keeps_the_number_of_leases_on_their_way_within_its_bound(group: Group) -> None:
    """Each move is a pause; of a group that is badly out of balance not everything may pause at once."""
    assert group.load is not None
    takers = {one.session_id: one for one in group.takers()}
    targets = group.targets()
    owned = Counter(lease.owner for lease in group.plannable())
    # Where a session has more than it may, the rest must leave, however many are on their way.
    assume(all(one.max_leases is None or owned[name] <= one.max_leases for name, one in takers.items()))
    under_way = 0
    new = 0
    for lease in group.plannable():
        owner, target = takers.get(lease.owner or ""), targets[lease.partition]
        if owner is not None and target not in (None, lease.owner) and target in takers:
            key = ask_key(lease.partition, lease.token)
            if any(session.asks.get(key) == target for session in group.sessions):
                under_way += 1
            else:
                new += 1

    assert new == 0 or new + under_way <= group.load.moves_max


@given(group=groups(load=True), seed=st.randoms(use_true_random=False))
def test_load_plan_moves_nothing_when_balanced(group: Group, seed: random.Random) -> None:
    """However little of each plan is carried out at a time, it ends; and then the plan is the state."""
    resting = at_rest(group, seed)

    assert {
        lease.partition: lease.owner for lease in resting.plannable() if resting.targets()[lease.partition] is not None
    } == {partition: target for partition, target in resting.targets().items() if target is not None}


@given(group=groups(asks=False, load=True), seed=st.randoms(use_true_random=False))
def test_load_plan_ends_with_a_spread_of_at_most_the_lightest_movable_weight_and_the_threshold(
    group: Group, seed: random.Random
) -> None:
    """The promise of `partitions.loads`, for any two sessions; without a threshold it is the weight alone."""
    resting = at_rest(group, seed)
    assert resting.load is not None
    if not resting.takers():
        return
    levels, fair = levels_of(resting)
    allowance = Fraction(resting.load.threshold) * fair
    units = units_of(held_by_takers(resting))
    owned = Counter(lease.owner for lease in resting.plannable())
    for high in resting.takers():
        mine = [units[lease.partition] for lease in held_by_takers(resting) if lease.owner == high.session_id]
        for low in resting.takers():
            if not mine or (low.max_leases is not None and owned[low.session_id] >= low.max_leases):
                continue
            one, other = Fraction(str(high.capacity)), Fraction(str(low.capacity))
            bound = max(min(mine) / other + allowance, allowance * (one + other) / other)
            # The plan counts levels as floats.
            slack = Fraction(1, 10**9) * fair
            assert levels[high.session_id] - levels[low.session_id] <= bound + slack


@given(group=groups(asks=False, load=True), seed=st.randoms(use_true_random=False))
def test_load_plan_lowers_the_higher_of_any_two_with_every_move(group: Group, seed: random.Random) -> None:
    """So no division of the leases comes twice, and whatever part of a plan is carried out, nothing swings."""
    group = at_rest(replace(group, load=LoadRule(threshold=1000.0, moves_max=1)), seed)
    group = replace(group, load=LoadRule(threshold=seed.choice([0.0, 0.1, 0.3]), moves_max=1))
    for _ in range(20):
        steps = steps_of(group)
        if not steps:
            return
        before, _fair = levels_of(group)
        (partition,) = steps
        source = next(lease.owner for lease in group.leases if lease.partition == partition)
        target = group.targets()[partition]
        group = carried_out(group, steps)
        after, _fair = levels_of(group)
        assert source is not None
        assert target is not None
        assert max(after[source], after[target]) < before[source]


@given(group=groups(asks=False, load=True), seed=st.randoms(use_true_random=False), actions=st.integers(0, 40))
def test_hosts_that_each_act_for_themselves_come_to_rest_in_load_mode(
    group: Group, seed: random.Random, actions: int
) -> None:
    """With asks that stand and leases on their way, the plans of all together still end."""
    crowd = Crowd(group)
    names = list(crowd.sessions)
    for _ in range(actions if names else 0):
        seed.choice([crowd.take, crowd.honour, crowd.beat])(seed.choice(names))
    for _ in range(8 * len(group.leases) + 8):
        for name in names:
            crowd.take(name)
            crowd.honour(name)
            crowd.beat(name)

    assert steps_of(crowd.group()) == []


@given(
    weights=st.lists(st.floats(min_value=0.5, max_value=4.0), min_size=2, max_size=12),
    errors=st.lists(st.floats(min_value=-1, max_value=1), min_size=12, max_size=12),
    owners=st.lists(st.sampled_from(["a:1", "b:1", "c:1"]), min_size=12, max_size=12),
    threshold=st.sampled_from([0.1, 0.3]),
)
def test_load_plan_lowers_true_levels_as_long_as_none_is_measured_wrongly_by_half_a_threshold(
    weights: list[float], errors: list[float], owners: list[str], threshold: float
) -> None:
    """The reason why noise moves no lease back and forth: the true division never comes twice."""
    sessions = [a_session(name) for name in ("a:1", "b:1", "c:1")]
    total = sum(weights)
    fair = total / 3
    measured = [weight * (1 + 0.3 * error) for weight, error in zip(weights, errors, strict=False)]
    # Brought to the same sum, since only the proportions are planned with.
    measured = [weight * total / sum(measured) for weight in measured]

    def levels(values: Sequence[float]) -> dict[str, float]:
        return {
            one.session_id: sum(value for value, owner in zip(values, owners, strict=False) if owner == one.session_id)
            for one in sessions
        }

    true, seen = levels(weights), levels(measured)
    errors_of_leases = max(abs(one - other) for one, other in zip(weights, measured, strict=True))
    # What moves is measured wrongly too, and the units are rounded.
    wrong = max(abs(true[name] - seen[name]) for name in true) + errors_of_leases / 2 + 0.002 * fair
    assume(wrong <= threshold * fair / 2)
    leases = [
        a_lease(f"p-{n:02}", owner=owners[n], token=1, last_host=owners[n][0], weight=weight)
        for n, weight in enumerate(measured)
    ]

    for partition, target in moved(leases, sessions, LoadRule(threshold=threshold, moves_max=1)).items():
        number = int(partition[2:])
        assert target is not None
        before = true[owners[number]]
        assert max(before - weights[number], true[target] + weights[number]) < before


# --- Weights --------------------------------------------------------------------------------------------------------


@given(
    weights=st.lists(st.sampled_from([1.0, 2.0, 3.0, 0.5, 10.0]), min_size=1, max_size=12),
    scale=st.sampled_from([2.0**-40, 2.0**20, 2.0**200]),
)
def test_units_depend_on_the_proportions_of_weights_alone(weights: list[float], scale: float) -> None:
    """Bytes or seconds, a second or an hour: the plan must be the same."""
    leases = [a_lease(f"p-{n}", weight=weight) for n, weight in enumerate(weights)]

    assert units_of(replace(lease, weight=lease.weight * scale) for lease in leases) == units_of(leases)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_lease_of_no_weight_yet_counts_as_the_average(weight: float) -> None:
    """A new partition is no lighter than the others, only unknown; and one host's nonsense stops nobody's plan."""
    leases = [a_lease("p-0", weight=weight), a_lease("p-1", weight=10.0), a_lease("p-2", weight=30.0)]

    assert units_of(leases) == {"p-0": AVERAGE, "p-1": AVERAGE // 2, "p-2": AVERAGE * 3 // 2}


def test_leases_that_nobody_has_weighed_count_alike() -> None:
    """A group that has just begun is balanced by number."""
    assert units_of([a_lease("p-0"), a_lease("p-1")]) == {"p-0": AVERAGE, "p-1": AVERAGE}


@pytest.mark.parametrize("heavy", [1e6, 1.7e308])
def test_idle_partition_counts_for_something(heavy: float) -> None:
    """Without a least weight all idle partitions could end on one host."""
    units = units_of([a_lease("p-0", weight=heavy), a_lease("p-1", weight=1e-9), a_lease("p-2", weight=heavy)])

    assert units == {"p-0": AVERAGE * 3 // 2, "p-1": LIGHTEST, "p-2": AVERAGE * 3 // 2}


def test_tiniest_of_weights_are_no_weights() -> None:
    """Their average would round to nothing, and nothing can be divided by it."""
    assert units_of([a_lease("p-0", weight=5e-324), a_lease("p-1", weight=5e-324)]) == {"p-0": AVERAGE, "p-1": AVERAGE}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({}, None),
        ({"plan_mode": "count", "load_threshold": 0.2}, None),
        ({"plan_mode": "load"}, LoadRule(threshold=0.1, moves_max=10)),
        ({"plan_mode": "load", "load_threshold": 0.0, "moves_max": 3}, LoadRule(threshold=0.0, moves_max=3)),
    ],
)
def test_load_rule_is_that_of_the_groups_item(changes: Mapping[str, object], rule: LoadRule | None) -> None:
    """No private setting enters the plan, so all hosts plan alike."""
    assert load_rule_of(a_group(**changes)) == rule


@pytest.mark.parametrize("changes", [{"load_threshold": -0.1}, {"load_threshold": math.nan}, {"moves_max": 0}])
def test_load_rule_refuses_what_nobody_can_plan_with(changes: Mapping[str, object]) -> None:
    """A group that never moves anything, or always, looks like a fault of the product."""
    with pytest.raises(ValueError, match=next(iter(changes))):
        load_rule_of(a_group(plan_mode="load", **changes))


# --- Groups that show what is meant ---------------------------------------------------------------------------------


A, B, C = a_session("a:1"), a_session("b:1"), a_session("c:1")


def test_load_plan_evens_out_what_counts_alike_but_does_not_weigh_alike() -> None:
    """Two partitions each, and one host does nine tenths of the work."""
    leases = [*weighted("a:1", 9, 9), *weighted("b:1", 1, 1, first=2)]

    assert list(moved(leases, [A, B]).values()) == ["b:1"]


def test_load_plan_leaves_alone_what_no_move_mends() -> None:
    """One partition that outweighs all others stays where it is, and what is beside it goes."""
    leases = [*weighted("a:1", 100, 1), *weighted("b:1", 1, 1, 1, first=2)]

    assert moved(leases, [A, B]) == {"p-001": "b:1"}
    assert moved([*weighted("a:1", 100), *weighted("b:1", 1, 1, 1, first=2)], [A, B]) == {}


def test_load_plan_moves_leases_past_a_host_whose_only_lease_is_heavy() -> None:
    """The heaviest host can give nothing; the next one must, or the newcomer would stay idle."""
    leases = [*weighted("a:1", 100), *weighted("b:1", *[10] * 10, first=1)]

    targets = moved(leases, [A, B, C])

    assert set(targets.values()) == {"c:1"}
    assert len(targets) == 5


def test_load_plan_begins_to_move_at_a_distance_of_two_thresholds_and_ends_in_the_middle() -> None:
    """Between 0 and 2 T nothing moves: that is where noise lives."""
    still = [*weighted("a:1", *[1.0] * 54), *weighted("b:1", *[1.0] * 46, first=54)]
    far = [*weighted("a:1", *[1.0] * 56), *weighted("b:1", *[1.0] * 44, first=56)]

    assert moved(still, [A, B]) == {}
    assert len(moved(far, [A, B])) == 6


def test_load_plan_gives_a_newcomer_its_share_though_each_of_the_others_has_hardly_too_much() -> None:
    """Of 20 hosts each is 5 % above what is fair then, half of the threshold."""
    sessions = [a_session(f"h{n:02}:1") for n in range(20)]
    leases = [lease for n, one in enumerate(sessions) for lease in weighted(one.session_id, *[1.0] * 20, first=20 * n)]

    targets = moved(leases, [*sessions, a_session("new:1")], LoadRule(threshold=0.1, moves_max=1000))

    assert set(targets.values()) == {"new:1"}
    assert 17 <= len(targets) <= 19


def test_load_plan_takes_the_lightest_where_nothing_fits() -> None:
    """Four partitions on each of five hosts, and a sixth that has none: nobody is a whole partition above fair."""
    sessions = [a_session(f"h{n}:1") for n in range(5)]
    leases = [lease for n, one in enumerate(sessions) for lease in weighted(one.session_id, 1, 1, 1, 1, first=4 * n)]

    targets = moved(leases, [*sessions, a_session("new:1")])

    assert list(targets.values()) == ["new:1"] * 3


def test_load_plan_moves_one_heavy_lease_rather_than_many_light_ones() -> None:
    """Each move is a pause."""
    leases = [*weighted("a:1", 50, *[1.0] * 55), *weighted("b:1", *[1.0] * 5, first=56)]

    assert moved(leases, [A, B], LoadRule(threshold=0.1, moves_max=100)) == {"p-000": "b:1"}


def test_load_plan_follows_capacity() -> None:
    """A host of three times the capacity takes three times the weight."""
    sessions = [a_session("a:1", capacity=3.0), a_session("b:1", capacity=1.0)]
    free = [a_lease(f"p-{n:02}", weight=1.0 + n % 3) for n in range(40)]

    targets = plan(free, sessions, load=EXACT).targets
    carried = Counter[str | None]()
    for lease in free:
        carried[targets[lease.partition]] += round(lease.weight)

    assert sum(carried.values()) == 79
    assert abs(carried["a:1"] - 3 * carried["b:1"]) <= 3


@pytest.mark.parametrize("rule", [RULE, EXACT])
def test_load_plan_of_a_new_group_is_at_rest_at_once(rule: LoadRule) -> None:
    """What was just placed must not move right afterwards."""
    for seed in range(20):
        chance = random.Random(seed)
        free = [a_lease(f"p-{n:02}", weight=chance.paretovariate(1.2)) for n in range(50)]
        sessions = [a_session(f"h{n}:1", capacity=chance.choice([1.0, 2.0])) for n in range(6)]
        group = Group(leases=tuple(free), sessions=tuple(sessions), load=rule)

        assert steps_of(carried_out(group, group.targets())) == []


def test_load_plan_gives_a_restarted_host_its_own_leases_back() -> None:
    """As in count mode; also where they are a little more than its fair share."""
    leases = [*weighted("a:1", 3, 2, 2, 2), *weighted("b:1", 3, 1, 3, 1, first=4)]
    again = a_session("a:2")

    targets = plan(leases, [B, again], load=RULE).targets

    assert [targets[lease.partition] for lease in leases] == ["a:2"] * 4 + ["b:1"] * 4


def test_load_plan_gives_a_child_to_the_host_that_had_its_parent() -> None:
    """Where it fits: its caches are warm there."""
    parent = a_lease("p-parent", token=1, finished=True, last_host="b")
    children = [a_lease(f"p-child-{n}", parents=("p-parent",)) for n in range(2)]
    leases = [parent, *children, *weighted("a:1", 1, 1, 1, 1), *weighted("b:1", 1, 1, first=4)]

    targets = plan(leases, [A, B], load=RULE).targets

    assert [targets["p-child-0"], targets["p-child-1"]] == ["b:1", "b:1"]


def test_load_plan_moves_everything_off_a_draining_host_at_once() -> None:
    """The bound of moves is for the sake of balance; a host that leaves is not asked to wait."""
    sessions = [a_session("a:1", draining=True), B, C]
    leases = [*weighted("a:1", *[1.0] * 30), *weighted("b:1", 1, 1, first=30)]

    targets = moved(leases, sessions, LoadRule(threshold=0.1, moves_max=1))

    assert sorted(Counter(targets.values()).items()) == [("b:1", 14), ("c:1", 16)]


def test_load_plan_lets_go_what_a_session_has_above_its_most() -> None:
    """The most that a host holds goes before any balance."""
    leases = weighted("a:1", 1, 1, 1)

    assert len(moved(leases, [a_session("a:1", max_leases=1), a_session("b:1", capacity=0.01)])) == 2


def test_load_plan_counts_what_was_asked_for_among_the_leases_on_their_way() -> None:
    """Else every round would add another bound's worth to those that have not arrived."""
    leases = weighted("a:1", *[1.0] * 40)
    asked = a_session("a:1", asks={ask_key(f"p-{n:03}", 1): "b:1" for n in range(8)})

    targets = moved(leases, [asked, B])

    assert len(targets) == 10
    assert {f"p-{n:03}" for n in range(8)} < set(targets)


def test_load_plan_leaves_alone_what_its_owner_was_asked_to_let_go_for_nobody() -> None:
    """A pause or a release is under way; the next owner is planned once it is free."""
    leases = [*weighted("a:1", 3, 3, 3, 3), *weighted("b:1", 1, first=4)]
    asked = a_session("a:1", asks={ask_key("p-000", 1): "", ask_key("p-001", 1): "gone:1"})

    targets = moved(leases, [asked, B])

    assert set(targets.values()) == {"b:1"}
    assert not {"p-000", "p-001"} & set(targets)


@pytest.mark.bench
@pytest.mark.parametrize(("partitions", "count", "limit_s"), [(1_000, 20, 0.05), (10_000, 100, 0.6)])
@pytest.mark.parametrize("state", ["all free", "balanced", "half the hosts new"])
def test_load_plan_is_fast(partitions: int, count: int, limit_s: float, state: str) -> None:
    """It runs on the loop of the host, between beats."""
    chance = random.Random(1)
    sessions = [a_session(f"h{n:03}:1") for n in range(count)]
    owners: dict[str, Sequence[SessionItem | None]] = {
        "all free": [None],
        "balanced": sessions,
        "half the hosts new": sessions[: count // 2],
    }
    leases = []
    for n in range(partitions):
        owner = owners[state][n % len(owners[state])]
        changes = {} if owner is None else {"owner": owner.session_id, "token": 1, "last_host": owner.host_id}
        leases.append(a_lease(f"p-{n:05}", weight=chance.uniform(1, 5), **changes))

    took_s = []
    for _ in range(5):
        started_s = time.process_time()
        plan(leases, sessions, load=RULE)
        took_s.append(time.process_time() - started_s)

    print(f"{partitions} leases, {count} sessions, {state}: {min(took_s) * 1e3:.1f} ms")
    assert min(took_s) < limit_s
