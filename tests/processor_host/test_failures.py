"""
The failure policies and the decision they lead to, as tables: nothing is given up that the user did not give up.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.sources.base import Record
from partitions.transactions import TransactionsUnsupported
from processor_host.errors import SettingsError
from processor_host.failures import (
    Again,
    Bury,
    DeadLetter,
    Failure,
    HostDied,
    PassOver,
    Policy,
    Retry,
    Skip,
    SplitUp,
    Stage,
    Step,
    Stop,
    StopPartition,
    check_policy,
    died,
    what_next,
)
from processor_host.letters.base import Letter

__all__: list[str] = []


class Sink:
    url = "memory:"

    async def open(self) -> None: ...

    async def write(self, letter: Letter) -> None: ...

    async def close(self) -> None: ...


class Named(Exception):
    """An error that names a record, as a decode failure does."""

    def __init__(self, position: str, partition: str = "p0") -> None:
        self.partition = partition
        self.position = position


SINK = Sink()
LIMITED: tuple[Policy, ...] = (Stop(attempts=3), DeadLetter(SINK, attempts=3), Skip(attempts=3))
ENDINGS: dict[type, Step] = {
    Stop: StopPartition(reason="process failed 3 times at position 1: ValueError: bad"),
    DeadLetter: Bury(sink=SINK),
    Skip: PassOver(),
}


def records(count: int) -> tuple[Record, ...]:
    return tuple(Record(partition="p0", position=str(n), key=None, data=b"x") for n in range(1, count + 1))


def failure(attempts: int, count: int = 1, *, stage: Stage = "process", **changes: Any) -> Failure:
    values: dict[str, Any] = {"error": ValueError("bad"), "records": records(count), **changes}
    return Failure(partition="p0", token=7, stage=stage, attempts=attempts, **values)


@pytest.mark.parametrize("stage", ["open", "decode", "process", "close"])
@pytest.mark.parametrize("attempts", [1, 2, 1_000_000])
def test_retry_gives_nothing_up_however_often_it_fails(stage: Stage, attempts: int) -> None:
    """The default: whoever said nothing loses nothing."""
    assert what_next(Retry(), failure(attempts, 5, stage=stage)) == Again(attempt=attempts)


@pytest.mark.parametrize("policy", LIMITED)
def test_limited_policy_acts_with_its_last_attempt(policy: Policy) -> None:
    """One call less is a lost record that a retry had saved, one more a block that nobody asked for."""
    steps = [what_next(policy, failure(attempts)) for attempts in (1, 2, 3, 4)]

    ending = ENDINGS[type(policy)]
    later = StopPartition(reason="process failed 4 times at position 1: ValueError: bad") if ending == steps[2] else 0
    assert steps[:3] == [Again(attempt=1), Again(attempt=2), ending]
    assert steps[3] == (later if isinstance(policy, Stop) else ending)


@pytest.mark.parametrize("stage", ["open", "close"])
@pytest.mark.parametrize("policy", [DeadLetter(SINK, attempts=1), Skip(attempts=1)])
def test_no_record_is_given_up_for_what_open_or_close_raise(stage: Stage, policy: Policy) -> None:
    """A database that is away in `open` would else cost one record after the other."""
    assert what_next(policy, failure(9, 0, stage=stage)) == Again(attempt=9)


def test_stop_pauses_the_partition_where_open_fails() -> None:
    """It gives up no record, so it may act there too."""
    assert what_next(Stop(attempts=2), failure(2, 0, stage="open")) == StopPartition(
        reason="open failed 2 times: ValueError: bad"
    )


def test_stop_names_the_range_of_a_batch_and_bounds_its_reason() -> None:
    """The reason stands in an item that every host reads, and must say where to look."""
    step = what_next(Stop(attempts=1), failure(1, 40, error=ValueError("x" * 9_000)))

    assert isinstance(step, StopPartition)
    assert (step.reason[:64], len(step.reason)) == (
        "process failed once at positions 1 to 40: ValueError: " + "x" * 10,
        500,
    )


def test_stop_tells_the_type_of_an_error_that_has_no_text() -> None:
    """A user's `__str__` that raises must not keep a partition from being stopped."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert what_next(Stop(attempts=1), failure(1, error=Mute())) == StopPartition(
        reason="process failed once at position 1: Mute"
    )


@pytest.mark.parametrize("policy", LIMITED)
def test_batch_is_given_up_as_a_whole_unless_it_is_bisected(policy: Policy) -> None:
    """Whoever handles batches says what a failing one means; cutting it up is opted into."""
    step = what_next(policy, failure(3, 8))

    assert type(step) is type(ENDINGS[type(policy)])


@pytest.mark.parametrize(
    ("attempts", "count", "is_part", "step"),
    [
        (2, 8, False, Again(attempt=2)),
        (3, 8, False, SplitUp(at=(4,))),
        (1, 4, True, SplitUp(at=(2,))),
        (1, 3, True, SplitUp(at=(1,))),
        (1, 1, True, Again(attempt=1)),
        (3, 1, True, PassOver()),
    ],
)
def test_bisection_ends_at_single_records_that_have_all_their_attempts(
    attempts: int, count: int, is_part: bool, step: Step
) -> None:
    """A part fails for the same reason as its batch, so it is cut at once; only a single record is given up."""
    assert what_next(Skip(attempts=3, bisect=True), failure(attempts, count, is_part=is_part)) == step


@pytest.mark.parametrize("policy", [Retry(), *LIMITED])
@pytest.mark.parametrize(
    ("position", "at"),
    [("1", (1,)), ("3", (2, 3)), ("5", (4,))],
)
def test_record_that_an_error_names_is_set_apart_at_once(policy: Policy, position: str, at: tuple[int, ...]) -> None:
    """Its neighbours are neither blamed nor held up, whatever the policy."""
    assert what_next(policy, failure(3, 5, error=Named(position))) == SplitUp(at=at)


@pytest.mark.parametrize("error", [Named("9"), Named("3", "p1"), Named(None)])  # type: ignore[arg-type]
def test_error_that_names_no_record_of_the_batch_blames_none(error: Exception) -> None:
    """Positions of another partition mean nothing here."""
    assert what_next(Skip(attempts=3), failure(1, 5, error=error)) == Again(attempt=1)


def test_record_during_which_the_host_died_counts_those_attempts() -> None:
    """A record that kills its process never raises, and must reach its limit all the same."""
    (record,) = records(1)
    steps = [what_next(DeadLetter(SINK, attempts=2), died(record, token=9, attempts=attempts)) for attempts in (1, 2)]

    assert steps == [Again(attempt=1), Bury(sink=SINK)]
    assert str(died(record, token=9, attempts=2).error) == (
        "partition 'p0': the host died 2 times while the record at '1' was at work; "
        "look for a crash, an exit or a lack of memory at this record"
    )
    assert isinstance(died(record, token=9, attempts=1).error, HostDied)


@given(
    policy=st.builds(Skip, attempts=st.integers(1, 4), bisect=st.booleans()),
    attempts=st.integers(1, 6),
    count=st.integers(1, 9),
    is_part=st.booleans(),
)
def test_nothing_is_passed_over_before_its_attempts(policy: Skip, attempts: int, count: int, is_part: bool) -> None:
    """Whatever else is decided, records are given up only at the limit, and alone where they are to be found out."""
    step = what_next(policy, failure(attempts, count, is_part=is_part))

    if isinstance(step, PassOver):
        assert attempts >= policy.attempts
        assert count == 1 or not policy.bisect
    if isinstance(step, SplitUp):
        assert all(0 < at < count for at in step.at)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Stop(attempts=0), "on_failure=Stop(attempts=0): expected a whole number, at least 1"),
        (lambda: Skip(attempts=True), "on_failure=Skip(attempts=True): expected a whole number, at least 1"),
        (lambda: Retry(pause_s=0), "on_failure=Retry(pause_s=0): expected seconds, more than 0"),
        (lambda: Retry(pause_max_s=float("inf")), "on_failure=Retry(pause_max_s=inf): expected seconds, more than 0"),
        (
            lambda: Skip(pause_s=4, pause_max_s=2),
            "on_failure=Skip: pause_max_s=2 is less than pause_s=4; the pauses grow up to it",
        ),
        (
            lambda: DeadLetter("letters.db"),  # type: ignore[arg-type]
            "on_failure=DeadLetter('letters.db'): not a sink for dead letters; give one of processor_host.letters, "
            "or an object with its methods open, write and close",
        ),
        (lambda: check_policy(None), "on_failure=None is no policy; use Retry, Stop, DeadLetter or Skip"),
        (
            lambda: check_policy(Skip),
            f"on_failure={Skip!r} is no policy; use Retry, Stop, DeadLetter or Skip; write Skip() with brackets",
        ),
    ],
)
def test_policy_that_cannot_work_is_refused_with_the_remedy(make: Any, text: str) -> None:
    """It is made once, at the start; a wrong one must not show first at the first failure."""
    with pytest.raises(SettingsError) as refused:
        make()

    assert str(refused.value) == text


@pytest.mark.parametrize("policy", [Retry(), *LIMITED])
def test_policy_that_is_one_is_taken_as_it_is(policy: Policy) -> None:
    """A check that changes or refuses what is right would change what the user said."""
    assert check_policy(policy) is policy


@pytest.mark.parametrize("policy", [Retry(), Stop(), DeadLetter(SINK, attempts=1), Skip(attempts=1, bisect=True)])
def test_call_that_the_store_lacks_stops_the_partition_at_once_whatever_the_policy_is(policy: Policy) -> None:
    """No retry makes the store another one, and given up for that every record would be lost."""
    records = tuple(Record(partition="p0", position=str(n), key=None, data=b"") for n in (1, 2))
    error = TransactionsUnsupported("sqlite:l.db", "`tx.put`", remedy="its transactions have `tx.execute`")
    failure = Failure(partition="p0", token=1, stage="process", error=error, attempts=1, records=records)

    assert what_next(policy, failure) == StopPartition(
        reason="process failed once at positions 1 to 2: TransactionsUnsupported: "
        "store 'sqlite:l.db' has no `tx.put`; its transactions have `tx.execute`"
    )
