"""
The careful beginning of a term after a death: the killer record is found, and its neighbours are never blamed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.sources.base import Record
from processor_host.caution import Caution, Phase
from processor_host.failures import PassOver, Skip, died, what_next

__all__: list[str] = []


def caution(suspects: int = 1, attempts: int = 0, *, records: int = 3) -> Caution:
    return Caution.of(suspects=suspects, attempts=attempts, batch_records_max=records, checkpoint_interval_s=5.0)


def test_term_of_a_lease_that_was_released_is_normal_from_the_start() -> None:
    """The usual case costs nothing."""
    fresh = caution(suspects=0)

    assert [fresh.phase(0.0), fresh.passed(1, 0.0).phase(0.0)] == [Phase.NORMAL, Phase.NORMAL]


@pytest.mark.parametrize("start", [caution(suspects=2), caution(suspects=0, attempts=1)])
def test_suspect_term_is_one_at_a_time_then_careful_then_normal(start: Caution) -> None:
    """One at a time for as many records as may have been in flight, careful for ten checkpoint intervals."""
    seen = [start.phase(0.0)]
    for count, now_s in ((1, 10.0), (1, 20.0), (1, 30.0)):
        start = start.passed(count, now_s)
        seen.append(start.phase(now_s))

    assert seen == [Phase.ONE_AT_A_TIME, Phase.ONE_AT_A_TIME, Phase.ONE_AT_A_TIME, Phase.CAREFUL]
    assert [start.phase(79.9), start.passed(9, 79.0).phase(80.0)] == [Phase.CAREFUL, Phase.NORMAL]


def test_attempts_are_of_the_record_that_comes_next() -> None:
    """They go on from what earlier terms have stored, and end with that record."""
    first = caution(attempts=2)

    assert [first.attempts, first.begun().attempts, first.begun().passed(1, 0.0).attempts] == [2, 3, 0]


@dataclass
class Stored:
    """What the lease item holds."""

    position: int = 0
    attempts: int = 0
    suspects: int = 0


def run_term(
    stored: Stored, count: int, killer: int | None, dies_at: int | None, *, limit: int, size: int, saved_every: int
) -> tuple[bool, list[int], list[int]]:
    """
    Play one term over the records 1 to `count`; return whether its host died, what was handled and what was given up.

    The checkpoint is stored every `saved_every` batches where nothing else asks for it; the host dies at the killer,
    and at `dies_at`, which is no record's fault.
    """
    now = Caution.of(
        suspects=stored.suspects, attempts=stored.attempts, batch_records_max=size, checkpoint_interval_s=1.0
    )
    handled: list[int] = []
    given_up: list[int] = []
    done, batches = stored.position, 0

    def save() -> None:
        if done > stored.position:
            stored.position, stored.attempts, stored.suspects = done, 0, 0

    while done < count:
        clock_s = float(batches)
        phase = now.phase(clock_s)
        ends = done + 1 if phase is Phase.ONE_AT_A_TIME else min(count, done + size)
        if phase is Phase.ONE_AT_A_TIME:
            record = Record(partition="p0", position=str(ends), key=None, data=b"")
            if now.attempts and isinstance(
                what_next(Skip(attempts=limit), died(record, token=1, attempts=now.attempts)), PassOver
            ):
                given_up.append(ends)
                done, now = ends, now.passed(1, clock_s)
                save()
                continue
            save()
            stored.attempts += 1
            now = now.begun()
        elif phase is Phase.CAREFUL or batches % saved_every == 0:
            save()
        for number in range(done + 1, ends + 1):
            if number in (killer, dies_at):
                stored.suspects += 1
                return True, handled, given_up
            handled.append(number)
        now = now.passed(ends - done, clock_s)
        done, batches = ends, batches + 1
    save()
    return False, handled, given_up


@given(
    count=st.integers(1, 60),
    killer=st.integers(1, 60),
    limit=st.integers(1, 4),
    size=st.integers(1, 7),
    saved_every=st.integers(1, 5),
)
def test_killer_alone_is_given_up_after_its_attempts_and_a_bounded_number_of_deaths(
    count: int, killer: int, limit: int, size: int, saved_every: int
) -> None:
    """Wherever it is, and however far behind the stored position was."""
    stored, deaths, handled, lost = Stored(), 0, list[int](), list[int]()
    is_over = False
    while not is_over:
        died_now, some, gone = run_term(stored, count, killer, None, limit=limit, size=size, saved_every=saved_every)
        handled, lost, deaths = handled + some, lost + gone, deaths + died_now
        is_over = not died_now
        assert deaths <= limit + 2

    assert lost == ([killer] if killer <= count else [])
    assert {*handled, *lost} == set(range(1, count + 1))


@given(
    count=st.integers(1, 40),
    deaths=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    size=st.integers(1, 7),
    saved_every=st.integers(1, 5),
)
def test_three_deaths_of_healthy_hosts_give_nothing_up(
    count: int, deaths: list[int], size: int, saved_every: int
) -> None:
    """A deploy that kills hosts at any record, three times over, must not cost one."""
    stored, handled, lost = Stored(), list[int](), list[int]()
    for dies_at in [*deaths, None]:
        _, some, gone = run_term(stored, count, None, dies_at, limit=3, size=size, saved_every=saved_every)
        handled, lost = handled + some, lost + gone

    assert (lost, set(handled)) == ([], set(range(1, count + 1)))
