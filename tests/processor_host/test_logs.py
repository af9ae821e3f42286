"""
Log lines: each event's level, name and keys, and what reaches the stream in both formats.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from partitions import events as lease_events
from partitions.events import (
    Asked,
    BeatAnswered,
    CheckpointRefused,
    EndReason,
    Event,
    LeaseAcquired,
    LeaseEnded,
    SessionEnded,
)
from partitions.locks import events as lock_events
from partitions.locks.events import LockEnd, LockEnded
from processor_host import events as host_events
from processor_host.events import (
    HostStopped,
    LeasesCreated,
    PartitionGap,
    PartitionMoved,
    PartitionStuck,
    PlanRound,
    ProcessorFailed,
    SingletonEnded,
    SingletonFailed,
)
from processor_host.logs import LEVELS, EventLog, Line, LogFormat, configure, line_of

__all__: list[str] = []

ACQUIRED = LeaseAcquired(
    partition="shard-3",
    token=8,
    reason="expired",
    previous_owner="host-a/7:11aa",
    position="200",
    duration_s=0.0312345,
)

FAILED = ProcessorFailed(
    partition="shard-3",
    token=8,
    stage="process",
    error="ValueError('x')",
    traceback="Traceback (most recent call last):\nValueError: x",
    attempt=1,
    pause_s=1.0,
)


@pytest.fixture
def restored() -> Iterator[None]:
    """`configure` is for whole processes; the next test has its own."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def written(log_format: LogFormat, *events: Event) -> str:
    stream = io.StringIO()
    configure(log_format, "debug", stream)
    log = EventLog(group="orders", host_id="host-b")
    for event in events:
        log.on_event(event)
    return stream.getvalue()


def event_types() -> list[type[Event]]:
    return [
        kind
        for module in (lease_events, lock_events, host_events)
        for name in module.__all__
        if isinstance(kind := getattr(module, name), type) and issubclass(kind, Event) and kind is not Event
    ]


def test_every_event_has_a_name_of_its_own() -> None:
    """An event without one would be logged by its type's name, at a level nobody chose."""
    lines = [line_of(example(kind)) for kind in event_types()]

    assert [line for line in lines if "." not in line.name or line.level not in LEVELS] == []
    assert len({line.name for line in lines}) == len(lines) > 30


def example(kind: type[Event]) -> Event:
    """An event of this type, with some value in each field."""
    values: dict[str, Any] = {"str": "x", "int": 1, "float": 1.0, "bool": True, "EndReason": EndReason.REFUSED}
    values["tuple[int, ...]"] = (1, 2)
    hints = {name: field.type for name, field in kind.__dataclass_fields__.items()}
    return kind(**{name: values.get(str(hint).removesuffix(" | None"), ("x", "y")) for name, hint in hints.items()})


def failed_singleton(attempt: int) -> SingletonFailed:
    return SingletonFailed(singleton="x", token=1, error="y", traceback="", attempt=attempt, pause_s=1.0)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            ACQUIRED,
            Line(
                level="info",
                name="lease.acquired",
                values={
                    "partition": "shard-3",
                    "fencing_token": 8,
                    "reason": "expired",
                    "previous_owner": "host-a/7:11aa",
                    "position": "200",
                    "duration_s": 0.03123,
                },
            ),
        ),
        (
            CheckpointRefused(partition="shard-3", token=7, position="200", found_token=8),
            Line(
                level="warning",
                name="checkpoint.refused",
                values={"partition": "shard-3", "fencing_token": 7, "position": "200", "found_token": 8},
            ),
        ),
        (
            BeatAnswered(session_id="a:1", beat=2, latency_s=0.002, attempt=1),
            Line(
                level="debug",
                name="beat.answered",
                values={"session_id": "a:1", "beat": 2, "duration_s": 0.002, "attempt": 1},
            ),
        ),
        (
            Asked(partition="p", token=1, asker="", left_s=30.0, held=True),
            Line(
                level="info",
                name="lease.asked",
                values={"partition": "p", "fencing_token": 1, "asker": "nobody", "left_s": 30.0, "held": True},
            ),
        ),
        (
            LeaseEnded(partition="p", token=1, reason=EndReason.ASK_DEADLINE),
            Line(
                level="warning",
                name="lease.ended",
                values={"partition": "p", "fencing_token": 1, "reason": "ask deadline"},
            ),
        ),
        (
            LeasesCreated(partitions=tuple("abcdefghijklm")),
            Line(
                level="info",
                name="leases.created",
                values={"leases": 13, "partitions": [*"abcdefghij", "…"]},
            ),
        ),
    ],
)
def test_line_has_the_same_keys_for_the_same_things(event: Event, expected: Line) -> None:
    """Who searches for a partition or a token finds it in every line under one key."""
    assert line_of(event) == expected


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (SessionEnded(session_id="a:1", reason="left", lost=False), "info"),
        (SessionEnded(session_id="a:1", reason="run out", lost=True), "warning"),
        (LeaseEnded(partition="p", token=1, reason=EndReason.RELEASED), "debug"),
        (LeaseEnded(partition="p", token=1, reason=EndReason.COMPLETED), "info"),
        (LeaseEnded(partition="p", token=1, reason=EndReason.SESSION_ENDED), "warning"),
        (PlanRound(leases=9, hosts=3, acquired=0, asked=0, full_read="audit", duration_s=0.1), "debug"),
        (PlanRound(leases=9, hosts=3, acquired=1, asked=0, full_read=None, duration_s=0.1), "info"),
        (PlanRound(leases=9, hosts=3, acquired=0, asked=1, full_read=None, duration_s=0.1), "info"),
        (LockEnded(lock="x", token=1, reason=LockEnd.RELEASED), "debug"),
        (LockEnded(lock="x", token=1, reason=LockEnd.SEEN_TAKEN), "warning"),
        (SingletonEnded(singleton="x", token=1, reason="stopped"), "info"),
        (SingletonEnded(singleton="x", token=1, reason="lock lost"), "warning"),
        (failed_singleton(2), "warning"),
        (failed_singleton(3), "error"),
        (HostStopped(), "info"),
        (HostStopped(still_running=("p",)), "error"),
    ],
)
def test_level_says_whether_anything_moved_or_went_wrong(event: Event, level: str) -> None:
    """A quiet group writes nothing at info, and a lost session is never quiet."""
    assert line_of(event).level == level


def test_processor_that_goes_on_failing_becomes_an_error_with_a_hint() -> None:
    """One failure may pass; after three nobody but a person can help."""
    levels = [line_of(replace(FAILED, attempt=attempt)).level for attempt in (1, 2, 3, 4)]

    assert levels == ["warning", "warning", "error", "error"]


def test_every_line_for_a_person_says_what_to_do() -> None:
    """An error without a remedy only wakes somebody up."""
    lines = [line_of(example(kind)) for kind in event_types()]
    errors = {line.name: line.values.get("hint") for line in lines if line.level == "error"}

    assert set(errors) == {"beats.held", "host.stopped", "partition.stopped"}
    assert all(errors.values())


@pytest.mark.parametrize(
    ("is_failing", "first"),
    [(True, "mend what fails"), (False, "see what it waits for, and give that a time-out")],
)
def test_stuck_partition_is_a_warning_that_says_what_it_waits_in(is_failing: bool, first: str) -> None:
    """A processor that hangs logs nothing itself; this line is all there is."""
    event = PartitionStuck(partition="p", token=3, stuck_s=61.234, stage="process", is_failing=is_failing, lag_s=None)

    assert line_of(event) == Line(
        level="warning",
        name="partition.stuck",
        values={
            "partition": "p",
            "fencing_token": 3,
            "stuck_s": 61.23,
            "stage": "process",
            "is_failing": is_failing,
            "hint": f"{first}; or pause the partition, and reset it behind the record",
        },
    )


def test_partition_that_goes_on_is_told_with_how_long_it_was_stuck() -> None:
    """Whoever was woken by the first line sees that it is over."""
    assert line_of(PartitionMoved(partition="p", token=3, stuck_s=75.0)) == Line(
        level="info", name="partition.moved", values={"partition": "p", "fencing_token": 3, "stuck_s": 75.0}
    )


def test_gap_is_a_warning_that_says_how_to_lose_no_more() -> None:
    """What is lost stays lost and the partition goes on by itself, so nobody has to be woken up."""
    hint = "records are lost: keep them longer at the source, or add hosts so that the group keeps up"

    assert line_of(PartitionGap(partition="p", position="4")) == Line(
        level="warning", name="partition.gap", values={"partition": "p", "position": "4", "hint": hint}
    )


def test_json_log_has_one_object_for_each_event(restored: None) -> None:
    """Collectors read a line at a time, also where a traceback has many."""
    lines = [json.loads(line) for line in written("json", ACQUIRED, FAILED).splitlines()]

    for line in lines:
        assert line.pop("timestamp").endswith("Z")
    assert lines == [
        {
            "event": "lease.acquired",
            "level": "info",
            "group": "orders",
            "host_id": "host-b",
            "partition": "shard-3",
            "fencing_token": 8,
            "reason": "expired",
            "previous_owner": "host-a/7:11aa",
            "position": "200",
            "duration_s": 0.03123,
        },
        {
            "event": "processor.failed",
            "level": "warning",
            "group": "orders",
            "host_id": "host-b",
            "partition": "shard-3",
            "fencing_token": 8,
            "stage": "process",
            "error": "ValueError('x')",
            "exception": "Traceback (most recent call last):\nValueError: x",
            "attempt": 1,
            "pause_s": 1.0,
        },
    ]


def test_console_log_is_plain_where_it_is_not_a_terminal(restored: None) -> None:
    """A file full of colour codes can be neither read nor searched."""
    text = written("console", ACQUIRED)

    assert "\x1b" not in text
    assert "[info     ] lease.acquired" in text
    assert "partition='shard-3'" in text


def test_console_log_escapes_what_a_name_holds(restored: None) -> None:
    """Whoever names a partition must not be able to forge a line or to colour a terminal."""
    hostile = CheckpointRefused(partition="p\n\x1b[31mforged\ud800", token=1, position="x\r\ny", found_token=None)

    text = written("console", hostile)

    assert len(text.splitlines()) == 1
    assert r"partition='p\n\x1b[31mforged\ud800'" in text


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_log_never_shows_the_values_of_variables(log_format: LogFormat, restored: None) -> None:
    """A traceback with values would put payloads into the log; the renderer that does so is installed."""
    stream = io.StringIO()
    configure(log_format, "debug", stream)
    try:
        payload = "card " + "4111"
        raise ValueError(f"bad record of length {len(payload)}")
    except ValueError:
        logging.getLogger("user").exception("handler.failed")
        structlog.get_logger("user").exception("handler.failed")

    assert stream.getvalue().count("ValueError: bad record of length 9") == 2
    assert "card 4111" not in stream.getvalue()


def test_configure_writes_lines_of_other_code_in_the_same_format(restored: None) -> None:
    """A processor's own log lines belong beside those of its host."""
    stream = io.StringIO()
    configure("json", "info", stream)

    logging.getLogger("orders").info("stored %d rows", 3)
    logging.getLogger("orders").debug("hidden")
    logging.getLogger("botocore").info("hidden: headers of a request")

    (line,) = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert (line["event"], line["level"]) == ("stored 3 rows", "info")


def test_configure_leaves_out_what_is_below_the_level(restored: None) -> None:
    """At warning a host that works writes nothing."""
    stream = io.StringIO()
    configure("json", "warning", stream)
    log = EventLog(group="orders", host_id="host-b")

    for event in (ACQUIRED, FAILED):
        log.on_event(event)

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["processor.failed"]


def test_event_log_writes_to_the_logger_of_the_application() -> None:
    """Who embeds a host has a log of its own."""
    with structlog.testing.capture_logs() as captured:
        EventLog(group="g", host_id="h", logger=structlog.get_logger().bind(service="billing")).on_event(
            SessionEnded(session_id="h:1", reason="left", lost=False)
        )

    assert captured == [
        {
            "event": "session.ended",
            "log_level": "info",
            "service": "billing",
            "group": "g",
            "host_id": "h",
            "session_id": "h:1",
            "reason": "left",
            "lost": False,
        }
    ]
