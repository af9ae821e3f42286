"""
Steps: what one host does of a plan, and that the steps of all hosts together carry it out.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions import rules
from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.planner import Plan
from partitions.verbs import Acquire, Applied, Ask, Release
from processor_host.steps import AcquireStep, Steps, is_settled, steps_of
from tests.builders import a_lease, a_session

__all__: list[str] = []

A, B = a_session("a:1"), a_session("b:1")


def steps(lease: LeaseItem, target: str | None, *sessions: SessionItem, busy: Iterable[str] = ()) -> Steps:
    """What host a does about one lease."""
    return steps_of(
        Plan(targets={lease.partition: target}), [lease], sessions, session_id="a:1", is_busy=set(busy).__contains__
    )


FREE = a_lease()
OF_A, OF_B, OF_NOBODY_LIVING = (a_lease(owner=owner, token=4) for owner in ("a:1", "b:1", "gone:1"))
ASKED_BY_A, ASKED_BY_C = (a_session("b:1", asks={"p-0@4": asker}) for asker in ("a:1", "c:1"))
ASKED_BEFORE = a_session("b:1", asks={"p-0@3": "a:1"})


@pytest.mark.parametrize(
    ("lease", "target", "sessions", "expected"),
    [
        pytest.param(FREE, "a:1", (A, B), Steps(acquire=(AcquireStep(lease=FREE, reason="free"),)), id="free"),
        pytest.param(
            OF_NOBODY_LIVING,
            "a:1",
            (A, B),
            Steps(acquire=(AcquireStep(lease=OF_NOBODY_LIVING, reason="expired"),)),
            id="its owner is gone",
        ),
        pytest.param(
            OF_A,
            "a:1",
            (A, B),
            Steps(acquire=(AcquireStep(lease=OF_A, reason="resolved"),)),
            id="own, but not held: its acquire's answer was lost",
        ),
        pytest.param(OF_A, "b:1", (A, B), Steps(give_back=(OF_A,)), id="own, not held, and planned for another"),
        pytest.param(OF_A, None, (A, B), Steps(give_back=(OF_A,)), id="own, not held, and planned for nobody"),
        pytest.param(OF_B, "a:1", (A, B), Steps(ask={"b:1": (OF_B,)}), id="of another"),
        pytest.param(
            OF_B, "a:1", (A, ASKED_BY_A), Steps(follow=((OF_B, ASKED_BY_A),)), id="of another who was asked"
        ),
        pytest.param(
            OF_B, "a:1", (A, ASKED_BY_C), Steps(follow=((OF_B, ASKED_BY_C),)), id="of another whom a third has asked"
        ),
        pytest.param(
            OF_B, "a:1", (A, ASKED_BEFORE), Steps(ask={"b:1": (OF_B,)}), id="of another who was asked for an older term"
        ),
        pytest.param(FREE, "b:1", (A, B), Steps(), id="planned for another"),
        pytest.param(OF_B, "b:1", (A, B), Steps(), id="where it should be"),
        pytest.param(FREE, None, (A, B), Steps(), id="planned for nobody"),
    ],
)
def test_steps_bring_to_this_host_what_the_plan_gives_it(
    lease: LeaseItem, target: str | None, sessions: tuple[SessionItem, ...], expected: Steps
) -> None:
    """DESIGN section 6: plan for all, act for oneself."""
    assert steps(lease, target, *sessions) == expected


@pytest.mark.parametrize("lease", [FREE, OF_A, OF_B, OF_NOBODY_LIVING])
@pytest.mark.parametrize("target", ["a:1", "b:1", None])
def test_steps_leave_a_busy_partition_alone(lease: LeaseItem, target: str | None) -> None:
    """Rule 8: what is held, being acquired or being released is not what the read shows."""
    assert steps(lease, target, A, B, busy=["p-0"]) == Steps()


def test_steps_pass_over_a_lease_that_is_not_in_the_plan() -> None:
    """Finished and paused leases are nobody's; one's own that is not held is still given back."""
    plan = Plan(targets={})
    leases = [a_lease("p-0"), a_lease("p-1", owner="b:1"), a_lease("p-2", owner="a:1", paused=True)]

    assert steps_of(plan, leases, [A, B], session_id="a:1", is_busy=lambda _: False) == Steps(give_back=(leases[2],))


def test_steps_ask_each_owner_once_for_all() -> None:
    """One request may carry several asks."""
    leases = [a_lease(f"p-{n}", owner=owner, token=1) for n, owner in enumerate(["b:1", "c:1", "b:1"])]
    plan = Plan(targets={lease.partition: "a:1" for lease in leases})

    found = steps_of(plan, leases, [A, B, a_session("c:1")], session_id="a:1", is_busy=lambda _: False)

    assert found == Steps(ask={"b:1": (leases[0], leases[2]), "c:1": (leases[1],)})


@pytest.mark.parametrize(
    ("lease", "target", "sessions", "settled"),
    [
        pytest.param(OF_A, "a:1", (A, B), True, id="where it should be"),
        pytest.param(FREE, None, (A, B), True, id="planned for nobody"),
        pytest.param(OF_B, "a:1", (A, ASKED_BY_A), True, id="asked for by its target"),
        pytest.param(FREE, "a:1", (A, B), False, id="free"),
        pytest.param(OF_NOBODY_LIVING, "a:1", (A, B), False, id="its owner is gone"),
        pytest.param(OF_B, "a:1", (A, B), False, id="not asked for yet"),
        pytest.param(OF_B, "a:1", (A, ASKED_BEFORE), False, id="asked for an older term"),
        pytest.param(OF_B, "a:1", (A, ASKED_BY_C), False, id="asked for by another"),
    ],
)
def test_plan_is_settled_when_it_leaves_nobody_a_step(
    lease: LeaseItem, target: str | None, sessions: tuple[SessionItem, ...], settled: bool
) -> None:
    """While it is not, ownership is about to change and everybody must read the leases again."""
    assert is_settled(Plan(targets={lease.partition: target}), [lease], sessions) is settled


# --- All hosts together ---------------------------------------------------------------------------------------------

SESSIONS = [f"{name}:1" for name in "abcd"]
PARTITIONS = [f"p-{n}" for n in range(8)]

owners = st.sampled_from([None, "gone:1", *SESSIONS])
targets = st.dictionaries(st.sampled_from(PARTITIONS), st.sampled_from([None, *SESSIONS]))
groups = st.fixed_dictionaries({partition: st.tuples(owners, st.integers(1, 3)) for partition in PARTITIONS})


class Group:
    """The stored items of a group, and hosts that do what their steps say. Owners hold what they own."""

    def __init__(self, leases: dict[str, tuple[str | None, int]]) -> None:
        self.leases = {name: a_lease(name, owner=owner, token=token) for name, (owner, token) in leases.items()}
        self.sessions = {session_id: a_session(session_id) for session_id in SESSIONS}

    def steps(self, plan: Plan, session_id: str) -> Steps:
        held = {lease.partition for lease in self.leases.values() if lease.owner == session_id}
        return steps_of(
            plan, self.leases.values(), self.sessions.values(), session_id=session_id, is_busy=held.__contains__
        )

    def is_settled(self, plan: Plan) -> bool:
        return is_settled(plan, self.leases.values(), self.sessions.values())

    def round(self, plan: Plan) -> None:
        """Every host takes its steps, all planned from the same read."""
        planned = {session_id: self.steps(plan, session_id) for session_id in SESSIONS}
        for session_id, mine in planned.items():
            for step in mine.acquire:
                seen = step.lease
                verb = Acquire(
                    partition=seen.partition,
                    seen_owner=seen.owner,
                    seen_token=seen.token,
                    session_id=session_id,
                    host_id=session_id[0],
                )
                result = rules.apply(self.leases[seen.partition], verb)
                assert isinstance(result, Applied), "two hosts raced for one lease"
                assert result.item is not None
                self.leases[seen.partition] = result.item
            for owner, wanted in mine.ask.items():
                keys = tuple(ask_key(lease.partition, lease.token) for lease in wanted)
                asked = rules.apply(self.sessions[owner], Ask(session_id=owner, keys=keys, asker=session_id))
                assert isinstance(asked, Applied)
                assert asked.item is not None
                self.sessions[owner] = asked.item

    def honour_asks(self) -> None:
        """Every owner releases what it was asked for."""
        for session_id, session in self.sessions.items():
            for name, lease in self.leases.items():
                if ask_key(name, lease.token) in session.asks:
                    freed = rules.apply(lease, Release(partition=name, owner=session_id, token=lease.token))
                    assert isinstance(freed, Applied)
                    assert freed.item is not None
                    self.leases[name] = freed.item


@given(groups, targets)
def test_steps_of_all_hosts_together_bring_every_lease_to_its_target(
    leases: dict[str, tuple[str | None, int]], targets: dict[str, str | None]
) -> None:
    """Nobody acts for another, and still nothing is left over and no two hosts want the same."""
    group, plan = Group(leases), Plan(targets=targets)

    group.round(plan)
    group.honour_asks()
    group.round(plan)

    wanted = {name: target for name, target in targets.items() if target is not None}
    assert {name: group.leases[name].owner for name in wanted} == wanted
    assert group.is_settled(plan)


@given(groups, targets)
def test_settled_plan_leaves_no_host_a_step_and_any_other_leaves_one(
    leases: dict[str, tuple[str | None, int]], targets: dict[str, str | None]
) -> None:
    """Reading the leases and doing something about them must not disagree on what is left to do."""
    group, plan = Group(leases), Plan(targets=targets)
    for _ in range(3):
        planned = [group.steps(plan, session_id) for session_id in SESSIONS]
        has_step = any(mine.acquire or mine.ask for mine in planned)

        assert group.is_settled(plan) is not has_step

        group.round(plan)
