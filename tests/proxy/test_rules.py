"""Which calls a fault hits: operations, predicates, each n-th, a number of times, by chance that repeats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proxy import Call, Effect, Fault, Rules

__all__: list[str] = []

CALL = Call(
    service="dynamodb",
    operation="UpdateItem",
    region="us-east-1",
    access_key="test",
    body={},
    content_type="application/x-amz-json-1.0",
    client_port=1,
    at_s=0.0,
)


def hits(fault: Fault, calls: int, seed: int = 0) -> list[int]:
    """Which of so many equal calls, counted from 1, are hit."""
    rules = Rules(seed)
    rules.add(fault)
    return [number for number in range(1, calls + 1) if rules.decide(CALL)]


@pytest.mark.parametrize(
    ("fault", "hit"),
    [
        (Fault(effect=Effect.DENY), [1, 2, 3, 4, 5, 6]),
        (Fault(effect=Effect.DENY, every=3), [3, 6]),
        (Fault(effect=Effect.DENY, times=2), [1, 2]),
        (Fault(effect=Effect.DENY, every=2, times=1), [2]),
        (Fault(effect=Effect.DENY, probability=0.0), []),
        (Fault(effect=Effect.DENY, operation="PutItem"), []),
        (Fault(effect=Effect.DENY, operation={"PutItem", "UpdateItem"}, times=1), [1]),
        (Fault(effect=Effect.DENY, when=lambda call: call.service == "kinesis"), []),
    ],
)
def test_fault_hits_the_calls_that_it_names(fault: Fault, hit: list[int]) -> None:
    """A fault that hits more or fewer calls than a test means makes its figures meaningless."""
    assert hits(fault, 6) == hit


def test_chance_repeats_with_its_seed_and_hits_about_its_share() -> None:
    """A run that failed has to be repeated as it was."""
    fault = Fault(effect=Effect.DENY, probability=0.2)
    first = hits(fault, 1000, seed=7)

    assert (first == hits(fault, 1000, seed=7), first == hits(fault, 1000, seed=8)) == (True, False)
    assert 150 <= len(first) <= 250


def test_first_fault_that_settles_a_call_wins() -> None:
    """Two answers to one call are impossible; which one comes must not be a matter of luck."""
    rules = Rules()
    deny = rules.add(Fault(effect=Effect.DENY, times=1))
    throttle = rules.add(Fault(effect=Effect.THROTTLE))

    assert [rules.decide(CALL), rules.decide(CALL)] == [(deny,), (throttle,)]
    assert (rules.hits(deny), rules.hits(throttle)) == (1, 1)


def test_fault_in_force_for_a_block_is_gone_after_it() -> None:
    """A fault that outlives its block disturbs what the test checks afterwards."""
    rules = Rules()
    fault = Fault(effect=Effect.DENY)
    with rules.applied(fault):
        inside = rules.decide(CALL)

    assert (inside, rules.decide(CALL), rules.hits(fault)) == ((fault,), (), 1)


def test_rules_that_were_cleared_hit_nothing() -> None:
    """A test clears the faults of its first phase before the second."""
    rules = Rules()
    rules.add(Fault(effect=Effect.DENY))
    rules.clear()

    assert rules.decide(CALL) == ()


@pytest.mark.parametrize("wrong", [{"effect": Effect.REFUSE}, {"effect": Effect.DENY, "every": 0}])
def test_fault_that_cannot_be_meant_is_refused(wrong: dict[str, object]) -> None:
    """It would disturb nothing, or everything, and the test would not know."""
    with pytest.raises(ValueError, match="expected"):
        replace(Fault(effect=Effect.DENY), **wrong)  # type: ignore[arg-type]
