"""
OpenTelemetry: a middleware with one span around each batch, linked to the spans of those who wrote its records.

Needs the extra `[otel]`; nothing else in this package imports it. A record carries its producer's context in its
headers as W3C Trace Context (`traceparent`, `tracestate`). A batch has many producers, so they are links, not parents,
as the conventions for messaging have it; a header that is missing or malformed is no link and no error.

Put it first in `middleware=[…]`: then decoding and everything else is inside of the span.

Source: OpenTelemetry semantic conventions for messaging spans ("process" operation, attributes `messaging.*`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from processor_host.middleware import Middleware, Process
from processor_host.processor import Batch

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}; processor_host.tracing needs OpenTelemetry: pip install 'processor-host[otel]'", name=error.name
    ) from error

__all__ = ["LINKS_MAX", "tracing"]

LINKS_MAX: Final = 128
"""The SDK keeps so many links of one span by default, and drops the first ones beyond; here the first ones stay."""

_W3C: Final = TraceContextTextMapPropagator()


def tracing(*, group: str, stream: str, tracer: trace.Tracer | None = None) -> Middleware:
    """
    Return a middleware that puts a span of kind CONSUMER around each batch.

    What `process` raises is recorded in the span and goes on; its status is then an error.

    Args:
        group: The host's group, as `messaging.consumer.group.name`.
        stream: What the spans are named after: "process <stream>".
        tracer: Makes the spans; None for the one of the global provider.
    """
    maker = tracer or trace.get_tracer("processor_host")

    async def middleware(batch: Batch, process: Process) -> None:
        attributes: dict[str, str | int] = {
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": stream,
            "messaging.destination.partition.id": batch.partition,
            "messaging.consumer.group.name": group,
            "messaging.batch.message_count": len(batch),
            "processor_host.fencing_token": batch.lease.token,
        }
        with maker.start_as_current_span(
            f"process {stream}",
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=list(_links(batch)),
        ):
            await process(batch)

    return middleware


def _links(batch: Batch) -> Iterator[trace.Link]:
    """A link for each producer's span, each once, in the order of the records."""
    seen: set[tuple[int, int]] = set()
    for record in batch:
        if "traceparent" not in record.headers:
            continue
        context = trace.get_current_span(_W3C.extract(carrier=dict(record.headers))).get_span_context()
        name = (context.trace_id, context.span_id)
        if not context.is_valid or name in seen:
            continue
        seen.add(name)
        yield trace.Link(context)
        if len(seen) >= LINKS_MAX:
            return
