"""Progress of partitions: which do not move while records wait, and which merely rest."""

from __future__ import annotations

import pytest

from partitions.events import EndReason, Event, LeaseAcquired, LeaseEnded
from processor_host.events import (
    BatchHandled,
    LagSeen,
    PartitionDone,
    ProcessorFailed,
    PumpStarted,
    RecordsGivenUp,
)
from processor_host.page.progress import Progress, next_progress, stalled_s

__all__: list[str] = []

ACQUIRED = LeaseAcquired(
    partition="p-0", token=3, reason="free", previous_owner=None, position="@earliest", duration_s=0.1
)
STARTED = PumpStarted(partition="p-0", token=3, position="@earliest", since_acquired_s=0.1)
FAILED = ProcessorFailed(partition="p-0", token=3, stage="process", error="boom", traceback="", attempt=1, pause_s=1.0)


def read(records: int, lag_s: float = 0.0) -> LagSeen:
    return LagSeen(partition="p-0", lag_s=lag_s, records=records)


def handled(records: int, lag_s: float | None = 0.0) -> BatchHandled:
    return BatchHandled(partition="p-0", records=records, bytes=1, duration_s=0.1, lag_s=lag_s)


def given_up(records: int) -> RecordsGivenUp:
    return RecordsGivenUp(
        partition="p-0", token=3, policy="skip", first="1", last="1", records=records, attempts=1, error="boom"
    )


def ended(token: int) -> LeaseEnded:
    return LeaseEnded(partition="p-0", token=token, reason=EndReason.RELEASED)


def told(*events: tuple[float, Event]) -> Progress | None:
    progress: Progress | None = None
    for now_s, event in ((0.0, ACQUIRED), (0.0, STARTED), *events):
        progress = next_progress(progress, event, now_s)
    return progress


@pytest.mark.parametrize(
    ("events", "expected_s"),
    [
        # Nothing was ever read: an idle partition.
        ([], None),
        # Read and not handled, although the reader is at the newest record.
        ([(10.0, read(2))], 90.0),
        ([(10.0, read(2)), (20.0, handled(2))], None),
        # One of two is left in the buffer.
        ([(10.0, read(2)), (30.0, handled(1))], 70.0),
        ([(10.0, read(2)), (30.0, given_up(1))], 70.0),
        ([(10.0, read(1)), (30.0, given_up(1))], None),
        # After an idle hour one record is no stall from the start of the hour on.
        ([(1.0, read(1)), (2.0, handled(1)), (95.0, read(1))], None),
        # The reader cannot keep up, or is held up by a full buffer.
        ([(10.0, read(0, lag_s=5.0))], 90.0),
        ([(10.0, read(0, lag_s=5.0)), (20.0, read(0, lag_s=0.0))], None),
        # A processor that fails again and again does not move, though each start reads anew.
        ([(10.0, read(2)), (11.0, FAILED), (12.0, STARTED), (13.0, read(2)), (14.0, FAILED)], 90.0),
        ([(10.0, FAILED)], 90.0),
        ([(9.0, read(2)), (10.0, FAILED), (12.0, STARTED), (13.0, read(2)), (14.0, handled(2))], None),
        # Where `until` ends a run, what was read beyond is nobody's business.
        ([(10.0, read(5)), (11.0, handled(2)), (11.0, PartitionDone(partition="p-0", token=3, handled=2))], None),
    ],
)
def test_partition_stalls_where_records_wait_and_nothing_moves(
    events: list[tuple[float, Event]], expected_s: float | None
) -> None:
    """Marks that come up for idle partitions are soon not looked at, and a hanging processor raises nothing."""
    progress = told(*events)

    assert progress is not None
    assert stalled_s(progress, 100.0, limit_s=60.0) == expected_s


def test_partition_does_not_stall_below_the_limit() -> None:
    """A slow batch is not a stall."""
    progress = told((10.0, read(2)))

    assert progress is not None
    assert [stalled_s(progress, now_s, limit_s=60.0) for now_s in (69.9, 70.0)] == [None, 60.0]


def test_lag_is_that_of_the_last_read_or_batch() -> None:
    """A batch of a source that cannot say leaves what a read has shown."""
    assert told((1.0, read(1, lag_s=5.0)), (2.0, handled(1, lag_s=None))) == Progress(
        token=3, lag_s=5.0, read=1, done=1, waits_since_s=2.0
    )


def test_partition_is_forgotten_when_its_term_ends_and_not_by_an_earlier_one() -> None:
    """The next owner measures it; the end of an old term may be told late."""
    assert told((1.0, ended(2))) == Progress(token=3)
    assert told((1.0, ended(3))) is None
    assert told((1.0, ended(3)), (2.0, read(1))) is None
