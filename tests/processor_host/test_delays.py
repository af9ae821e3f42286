"""Which steps wait, for how long, and that what waits is no reason to read."""

from __future__ import annotations

import pytest

from partitions.items import LeaseItem, SessionItem
from partitions.planner import Plan
from partitions.weights import LoadRule
from processor_host.delays import Comings, Delays, HeldBack, held_back, note_sessions
from processor_host.outlook import loads_differ, outlook_of
from processor_host.steps import AcquireStep, Steps, is_settled, steps_of
from tests.builders import a_lease, a_session

__all__: list[str] = []

A, B, C = a_session("a:1"), a_session("b:1"), a_session("c:1")
DELAYS = Delays(steal_delay_s=30.0, rejoin_grace_s=20.0)
OF_B = a_lease("p-0", owner="b:1", token=4, last_host="b")
FREE_OF_B = a_lease("p-0", token=4, last_host="b")
EXPIRED_OF_B = a_lease("p-0", owner="b:1", token=4, last_host="b")
TO_A = Plan(targets={"p-0": "a:1"})


def seen(*looks: tuple[float, tuple[SessionItem, ...]], delays: Delays = DELAYS) -> Comings:
    """What is known after looks at these times."""
    comings = Comings()
    for at_s, sessions in looks:
        comings = note_sessions(comings, sessions, at_s, delays)
    return comings


def waits(
    lease: LeaseItem, sessions: tuple[SessionItem, ...], comings: Comings, now_s: float, delays: Delays = DELAYS
) -> HeldBack:
    """What of one lease that is planned for host a waits."""
    return held_back(TO_A, [lease], sessions, comings, now_s, delays)


@pytest.mark.parametrize(("now_s", "expected"), [(129.9, {"p-0"}), (130.0, set())])
def test_asks_for_the_sake_of_balance_wait_after_a_host_joined(now_s: float, expected: set[str]) -> None:
    """A replacement that has just started may be the heir of a host that stops in a moment."""
    comings = seen((0.0, (B,)), (100.0, (A, B)), (120.0, (A, B)))

    assert waits(OF_B, (A, B), comings, now_s) == HeldBack(asks=frozenset(expected))


def test_newcomer_waits_from_its_own_first_look_on() -> None:
    """It sees all others for the first time, and itself."""
    assert waits(OF_B, (A, B), seen((100.0, (A, B))), 129.0).asks == {"p-0"}


def test_host_that_leaves_makes_nobody_wait_to_even_out() -> None:
    """Only who joins may be a replacement."""
    comings = seen((0.0, (A, B, C)), (100.0, (A, B)))

    assert waits(OF_B, (A, B), comings, 101.0) == HeldBack()


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(a_session("b:1", draining=True), id="draining"),
        pytest.param(a_session("b:1", drain_asked=True), id="asked to drain"),
        pytest.param(a_session("b:1", asks={"p-0@4": "a:1"}), id="asked already"),
    ],
)
def test_leases_of_draining_hosts_and_those_asked_for_move_at_once(owner: SessionItem) -> None:
    """They leave anyway."""
    assert waits(OF_B, (A, owner), seen((100.0, (A, owner))), 101.0) == HeldBack()


def test_free_leases_are_taken_at_once_after_a_host_joined() -> None:
    """Nobody processes them."""
    free = a_lease("p-0", token=4, last_host="a")

    assert waits(free, (A, B), seen((100.0, (A, B))), 101.0) == HeldBack()


@pytest.mark.parametrize("lease", [FREE_OF_B, EXPIRED_OF_B])
@pytest.mark.parametrize(("now_s", "expected"), [(219.9, {"p-0"}), (220.0, set())])
def test_leases_of_a_host_that_is_gone_wait_for_it(lease: LeaseItem, now_s: float, expected: set[str]) -> None:
    """Counted from when its last session was seen to be gone."""
    comings = seen((0.0, (A, B)), (200.0, (A,)), (210.0, (A,)))

    assert waits(lease, (A,), comings, now_s) == HeldBack(free=frozenset(expected))


def test_leases_of_a_host_that_is_back_wait_no_longer() -> None:
    """The plan gives them to it; where it does not, it has enough."""
    again = a_session("b:2")
    comings = seen((0.0, (A, B)), (200.0, (A,)), (205.0, (A, again)))

    assert waits(FREE_OF_B, (A, again), comings, 206.0).free == frozenset()


@pytest.mark.parametrize("change", ["draining", "drain_asked"])
def test_leases_of_a_host_that_drained_wait_for_nobody(change: str) -> None:
    """It gave them away on purpose, and what is left of them must not rest."""
    draining = a_session("b:1", **{change: True})
    comings = seen((0.0, (A, B)), (190.0, (A, draining)), (200.0, (A,)), (201.0, (A,)))

    assert waits(FREE_OF_B, (A,), comings, 202.0) == HeldBack()


def test_operators_command_makes_nobody_wait() -> None:
    """It joins and leaves, and what it has reset it was the last to have; none of that is a host's coming or going."""
    command = a_session("b:1", capacity=0.0)
    beside = seen((0.0, (A, C)), (100.0, (A, C, command)))
    after = seen((0.0, (A,)), (100.0, (A, command)), (101.0, (A,)))

    assert waits(a_lease("p-0", owner="c:1", token=4), (A, C, command), beside, 101.0) == HeldBack()
    assert waits(FREE_OF_B, (A,), after, 102.0) == HeldBack()


def test_leases_of_a_host_that_was_never_seen_wait_from_the_first_look_on() -> None:
    """Whoever starts after the crash cannot know when it was; the grace bounds it all the same."""
    comings = seen((100.0, (A,)))

    assert [waits(FREE_OF_B, (A,), comings, now_s).free for now_s in (119.0, 121.0)] == [{"p-0"}, frozenset()]


def test_leases_that_nobody_has_had_wait_for_nobody() -> None:
    """A new partition has no host to come back."""
    assert waits(a_lease("p-0"), (A,), seen((100.0, (A,))), 101.0) == HeldBack()


def test_nothing_waits_by_default() -> None:
    """Both waits cost something: evenness, or records that rest."""
    comings = seen((100.0, (A, B)), (101.0, (A,)), delays=Delays())

    assert waits(FREE_OF_B, (A,), comings, 101.0, Delays()) == HeldBack()
    assert waits(OF_B, (A, B), seen((100.0, (A, B)), delays=Delays()), 100.0, Delays()) == HeldBack()


def test_hosts_that_went_long_ago_are_forgotten() -> None:
    """Where host ids never come back, each restart leaves one."""
    looks = [(float(n), (A, a_session(f"h{n}:1"))) for n in range(100)]

    assert set(seen(*looks).gone_s) <= {f"h{n}" for n in range(78, 100)}


@pytest.mark.parametrize(
    ("lease", "sessions", "waiting", "step"),
    [
        (OF_B, (A, B), HeldBack(asks=frozenset({"p-0"})), Steps(ask={"b:1": (OF_B,)})),
        (
            FREE_OF_B,
            (A, B),
            HeldBack(free=frozenset({"p-0"})),
            Steps(acquire=(AcquireStep(lease=FREE_OF_B, reason="free"),)),
        ),
        (
            EXPIRED_OF_B,
            (A,),
            HeldBack(free=frozenset({"p-0"})),
            Steps(acquire=(AcquireStep(lease=EXPIRED_OF_B, reason="expired"),)),
        ),
    ],
)
def test_step_that_waits_is_not_made_and_leaves_the_plan_settled(
    lease: LeaseItem, sessions: tuple[SessionItem, ...], waiting: HeldBack, step: Steps
) -> None:
    """Else every host would read all leases in every round for as long as it waits."""

    def steps(waiting: HeldBack) -> Steps:
        return steps_of(TO_A, [lease], sessions, session_id="a:1", is_busy=lambda _: False, waiting=waiting)

    assert (steps(HeldBack()), steps(waiting)) == (step, Steps())
    assert not is_settled(TO_A, [lease], sessions)
    assert is_settled(TO_A, [lease], sessions, waiting)


def test_own_acquire_whose_answer_was_lost_is_resolved_however_much_waits() -> None:
    """Rule 8: the store has it as this session's already."""
    mine = a_lease("p-0", owner="a:1", token=4)
    everything = HeldBack(free=frozenset({"p-0"}), asks=frozenset({"p-0"}))

    steps = steps_of(TO_A, [mine], (A, B), session_id="a:1", is_busy=lambda _: False, waiting=everything)

    assert steps == Steps(acquire=(AcquireStep(lease=mine, reason="resolved"),))


# --- The outlook ----------------------------------------------------------------------------------------------------


def test_outlook_of_a_lease_that_waits_for_its_host_shows_no_reason_to_read() -> None:
    """It is planned for somebody and owned by nobody, and the sums add up without it."""
    sessions = (a_session("a:1", owned=1),)
    leases = [FREE_OF_B, a_lease("p-1", owner="a:1", token=1, last_host="a")]
    comings = seen((0.0, (A, B)), (200.0, sessions))

    outlook = outlook_of(
        leases,
        sessions,
        session_id="a:1",
        held=1,
        listed=None,
        load=None,
        comings=comings,
        delays=DELAYS,
        now_s=201.0,
    )

    assert outlook.plan.targets == {"p-0": "a:1", "p-1": "a:1"}
    assert outlook.waiting == HeldBack(free=frozenset({"p-0"}))
    assert (outlook.evidence.is_settled, outlook.evidence.planned, outlook.evidence.owned) == (True, 1, 1)


@pytest.mark.parametrize(
    ("loads", "differ"),
    [
        pytest.param((20.0, 20.0), False, id="as read"),
        pytest.param((21.5, 20.0), False, id="less than the threshold"),
        pytest.param((20.0, 23.0), True, id="more than the threshold"),
        pytest.param((15.0, 20.0), True, id="less than was read"),
        pytest.param((20.0, 0.0), False, id="not measured yet"),
    ],
)
def test_loads_differ_when_a_session_publishes_another_one_than_its_leases_weighed(
    loads: tuple[float, float], differ: bool
) -> None:
    """The cheap sign that weights have changed: they lie with the leases, which a group at rest does not read."""
    leases = [a_lease(f"p-{n}", owner=owner, token=1, weight=10.0) for n, owner in enumerate(["a:1", "b:1"] * 2)]
    sessions = [a_session(name, load=load) for name, load in zip(("a:1", "b:1"), loads, strict=True)]

    assert loads_differ(leases, sessions, LoadRule(threshold=0.1, moves_max=10)) is differ
