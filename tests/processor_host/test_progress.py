"""Progress of partitions: which do not move while records wait, and which merely rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partitions.events import EndReason, Event, LeaseAcquired, LeaseEnded
from processor_host.events import (
    BatchHandled,
    LagSeen,
    PartitionDone,
    PartitionPausedFor,
    ProcessorFailed,
    PumpStarted,
    ReadFailed,
    RecordsGivenUp,
    RecordsMarked,
)
from processor_host.progress import Progress, is_alone, next_progress, stalled_s

__all__: list[str] = []

ACQUIRED = LeaseAcquired(
    partition="p-0", token=3, reason="free", previous_owner=None, position="@earliest", duration_s=0.1
)
STARTED = PumpStarted(partition="p-0", token=3, position="@earliest", since_acquired_s=0.1)
FAILED = ProcessorFailed(partition="p-0", token=3, stage="process", error="boom", traceback="", attempt=1, pause_s=1.0)


FAILED_READ = ReadFailed(partition="p-0", error="boom", attempt=1, pause_s=1.0)


def started(carried: int) -> PumpStarted:
    return PumpStarted(partition="p-0", token=3, position="@earliest", since_acquired_s=0.1, carried=carried)


def paused(pause_s: float) -> PartitionPausedFor:
    return PartitionPausedFor(partition="p-0", token=3, pause_s=pause_s)


def marked(found_done: int = 0) -> RecordsMarked:
    return RecordsMarked(partition="p-0", token=3, found_done=found_done)


def read(records: int, lag_s: float | None = 0.0) -> LagSeen:
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
        # What a failed run has left in memory is handed on first, beside what is read behind it.
        ([(9.0, FAILED), (10.0, started(4)), (11.0, read(2)), (12.0, handled(4))], 88.0),
        ([(9.0, FAILED), (10.0, started(4)), (11.0, read(2)), (12.0, handled(4)), (13.0, handled(2))], None),
        # A batch that failed and had stored a part of itself: that part is not handed on again.
        ([(9.0, read(4)), (10.0, FAILED), (10.0, marked(3)), (12.0, handled(1))], None),
        # A long batch that checkpoints itself goes on.
        ([(10.0, read(9)), (20.0, marked()), (35.0, marked())], 65.0),
        # User code asked for a pause, and the batch behind it begins after that.
        ([(10.0, read(4)), (20.0, paused(15.0)), (20.0, handled(2))], 65.0),
        # A source that cannot say how far behind it is.
        ([(10.0, read(2, lag_s=None))], 90.0),
        ([(10.0, read(2, lag_s=None)), (11.0, handled(2, lag_s=None))], None),
        # A batch was read before the read that reached the newest record, and is handled after it.
        ([(10.0, read(2, lag_s=5.0)), (11.0, read(2)), (12.0, handled(2, lag_s=5.0)), (13.0, handled(2))], None),
        ([(10.0, read(2, lag_s=5.0)), (11.0, read(0)), (12.0, handled(2, lag_s=5.0))], None),
        # A long stretch of the stream without any record: each read comes nearer.
        ([(10.0, read(0, lag_s=500.0)), (20.0, read(0, lag_s=400.0)), (35.0, read(0, lag_s=300.0))], 65.0),
        ([(10.0, read(0, lag_s=500.0)), (40.0, read(0, lag_s=500.0)), (70.0, read(0, lag_s=501.0))], 90.0),
        # Reads that come nearer are no progress of the records in hand.
        ([(10.0, read(2, lag_s=500.0)), (40.0, read(0, lag_s=400.0))], 90.0),
        # While reads fail nobody knows whether records wait.
        ([(10.0, FAILED_READ), (50.0, FAILED_READ)], 90.0),
        ([(10.0, FAILED_READ), (50.0, read(0))], None),
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


def test_partition_whose_processor_does_not_open_stalls() -> None:
    """Nothing is read meanwhile, so nobody can say that no record waits."""
    hanging = next_progress(None, ACQUIRED, 10.0)
    assert hanging is not None
    opened = next_progress(hanging, STARTED, 99.0)
    assert opened is not None

    assert (stalled_s(hanging, 100.0), hanging.stage) == (90.0, "open")
    assert (stalled_s(opened, 100.0), opened.stage) == (None, "read")


@pytest.mark.parametrize(
    ("events", "stage"),
    [
        ([(1.0, read(2))], "process"),
        ([(1.0, read(2)), (2.0, FAILED)], "process"),
        ([(1.0, read(2)), (2.0, replace(FAILED, stage="decode"))], "decode"),
        ([(1.0, replace(FAILED, stage="open"))], "open"),
        ([(1.0, read(0, lag_s=5.0))], "read"),
        ([(1.0, FAILED_READ)], "read"),
        # Reading ahead fails while the processor does.
        ([(1.0, read(2)), (2.0, FAILED), (3.0, FAILED_READ)], "process"),
        ([(1.0, replace(FAILED, stage="open")), (2.0, started(0)), (3.0, read(1))], "process"),
    ],
)
def test_stage_names_what_is_waited_for(events: list[tuple[float, Event]], stage: str) -> None:
    """Whoever is woken looks there first."""
    progress = told(*events)

    assert progress is not None
    assert progress.stage == stage


def in_process(since_s: float | None, moved_s: float | None = None) -> Progress:
    return Progress(token=3, is_open=True, read=1, waits_since_s=since_s, moved_s=moved_s)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        # Nobody to compare with, or nobody who waits: nothing speaks against it.
        ([], True),
        ([in_process(None)], True),
        ([in_process(None, moved_s=1.0)], True),
        # Something else has moved since.
        ([in_process(90.0, moved_s=90.0)], True),
        ([in_process(20.0), in_process(None, moved_s=90.0)], True),
        # Something else waits as well, for however long, and nothing has moved.
        ([in_process(20.0)], False),
        ([in_process(95.0)], False),
        ([in_process(5.0, moved_s=5.0), in_process(None)], False),
    ],
)
def test_partition_is_stuck_by_itself_unless_others_wait_and_none_moves(others: list[Progress], expected: bool) -> None:
    """A database that hangs stops everything; paused for that, every partition would wait for a person."""
    of = {f"p-{n}": other for n, other in enumerate(others, 1)} | {"p-0": in_process(10.0)}

    assert is_alone("p-0", of) is expected


def test_partition_that_cannot_be_read_is_never_stuck_by_itself() -> None:
    """Reading fails wherever it goes, and ends by itself once the source is back."""
    failing = told((10.0, FAILED_READ))
    assert failing is not None

    assert is_alone("p-0", {"p-0": failing, "p-1": in_process(None, moved_s=90.0)}) is False


def test_partition_does_not_stall_below_the_limit() -> None:
    """A slow batch is not a stall."""
    progress = told((10.0, read(2)))

    assert progress is not None
    assert [stalled_s(progress, now_s, limit_s=60.0) for now_s in (69.9, 70.0)] == [None, 60.0]


def test_lag_is_that_of_the_last_read_or_batch() -> None:
    """A batch of a source that cannot say leaves what a read has shown."""
    assert told((1.0, read(1, lag_s=5.0)), (2.0, handled(1, lag_s=None))) == Progress(
        token=3, is_open=True, lag_s=5.0, is_behind=True, read=1, done=1, waits_since_s=2.0, moved_s=2.0
    )


def test_partition_is_forgotten_when_its_term_ends_and_not_by_an_earlier_one() -> None:
    """The next owner measures it; the end of an old term may be told late."""
    assert told((1.0, ended(2))) == Progress(token=3, is_open=True, moved_s=0.0)
    assert told((1.0, ended(3))) is None
    assert told((1.0, ended(3)), (2.0, read(1))) is None
