"""
OpenTelemetry spans around batches, exported into memory: linked to those who wrote the records.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from partitions.sources.base import Record
from processor_host.middleware import around
from processor_host.processor import Batch
from processor_host.tracing import LINKS_MAX, tracing
from tests.stage import VIRTUAL_TIME, Stage

__all__: list[str] = []

TRACE_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def traceparent(span_id: int) -> dict[str, str]:
    """The header of a producer, as W3C Trace Context has it."""
    return {"traceparent": f"00-{TRACE_ID:032x}-{span_id:016x}-01"}


class Links:
    """The links that were given to the last span, also those that the SDK leaves out."""

    of_last_span: ClassVar[list[int]] = []


class NotingTracer(trace.Tracer):
    """Passes everything on to the SDK's."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self.tracer = tracer

    def start_span(self, *arguments: Any, **named: Any) -> trace.Span:
        return self.tracer.start_span(*arguments, **named)

    def start_as_current_span(self, *arguments: Any, **named: Any) -> Any:
        Links.of_last_span = [link.context.span_id for link in named["links"]]
        return self.tracer.start_as_current_span(*arguments, **named)


async def exported(*headers: Mapping[str, str], error: Exception | None = None) -> tuple[ReadableSpan, list[int]]:
    """The one span of a batch whose records had these headers, and the current span's id seen inside of `process`."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    stage, inside = Stage(), list[int]()

    async def save(_: int) -> None:
        return

    async def process(batch: Batch) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        if error is not None:
            raise error

    records = [
        Record(partition="p0", position=str(n), key=None, data=b"x", headers=each) for n, each in enumerate(headers, 1)
    ]
    async with stage.living() as session:
        batch = Batch(records, lease=await stage.acquired(session), lag_s=None, save=save)
        middleware = tracing(group="delays", stream="local:s.db", tracer=NotingTracer(provider.get_tracer("tests")))
        try:
            await around([middleware], process)(batch)
        except ValueError:
            assert error is not None
    (span,) = exporter.get_finished_spans()
    return span, inside


async def test_span_of_a_batch_says_what_was_processed() -> None:
    """The conventions for messaging name the attributes, so that every tool shows them the same way."""
    span, inside = await exported({}, {})

    assert (span.name, span.kind, span.links) == ("process local:s.db", trace.SpanKind.CONSUMER, ())
    assert dict(span.attributes or {}) == {
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "local:s.db",
        "messaging.destination.partition.id": "p0",
        "messaging.consumer.group.name": "delays",
        "messaging.batch.message_count": 2,
        "processor_host.fencing_token": 1,
    }
    assert inside == [span.context.span_id if span.context else None]


async def test_span_is_linked_to_the_producers_of_its_records() -> None:
    """Each once and in order: a producer that wrote many records of a batch is one link."""
    span, _ = await exported(traceparent(0xA1), {}, traceparent(0xB2), traceparent(0xA1))

    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [
        (TRACE_ID, 0xA1),
        (TRACE_ID, 0xB2),
    ]
    assert span.parent is None


@pytest.mark.parametrize("header", ["", "00-zz-00-01", f"00-{0:032x}-{1:016x}-01", "x" * 9_000])
async def test_malformed_context_is_no_link_and_no_failure(header: str) -> None:
    """Anybody may write anything into a header; a trace is not worth a record."""
    span, _ = await exported({"traceparent": header}, traceparent(0xB2))

    assert [link.context.span_id for link in span.links] == [0xB2]
    assert Links.of_last_span == [0xB2]


async def test_links_are_bounded_and_the_first_ones_stay() -> None:
    """The SDK would drop the first ones of a large batch, which are the oldest records."""
    span, _ = await exported(*[traceparent(n) for n in range(1, LINKS_MAX + 10)])

    assert [link.context.span_id for link in span.links] == list(range(1, LINKS_MAX + 1))


async def test_failure_is_recorded_in_the_span_and_goes_on() -> None:
    """Tracing that swallows it would count the batch as done."""
    span, _ = await exported({}, error=ValueError("bad"))

    assert span.status.status_code is trace.StatusCode.ERROR
    assert [(event.name, (event.attributes or {})["exception.message"]) for event in span.events] == [
        ("exception", "bad")
    ]


async def test_span_uses_the_tracer_of_the_program_where_none_is_given() -> None:
    """Without an SDK set up that is one which does nothing, and costs no error."""
    stage = Stage()
    handed_on = list[int]()

    async def save(_: int) -> None:
        return

    async def process(batch: Batch) -> None:
        handed_on.append(len(batch))

    record = Record(partition="p0", position="1", key=None, data=b"x", headers=traceparent(1))
    async with stage.living() as session:
        batch = Batch([record], lease=await stage.acquired(session), lag_s=None, save=save)
        await around([tracing(group="g", stream="s")], process)(batch)

    assert handed_on == [1]


def test_import_without_opentelemetry_names_the_extra() -> None:
    """The module is one of few that need something which is not installed with the rest."""
    code = "import sys; sys.modules['opentelemetry'] = None; import processor_host.tracing"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 1
    assert "processor_host.tracing needs OpenTelemetry: pip install 'processor-host[otel]'" in ended.stderr
