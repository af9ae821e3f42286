"""
What a URL of a Kinesis source says: `kinesis://<stream>[,<stream>…]?region=…&endpoint_url=…&start=…&idle_read_s=…`, or
`mode=fanout&consumer=…` instead of the last.

Pure. A stream is a name or an ARN. Region and address are read by `partitions.aws.places`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote

from partitions.aws.places import AwsPlace, parse_query, query_of
from partitions.positions import Start, parse_start
from partitions.sources.kinesis._pace import IDLE_S
from partitions.sources.kinesis._shards import stream_name

__all__ = ["IDLE_READ_S_MAX", "IDLE_READ_S_MIN", "KinesisPlace", "parse_url"]

SCHEME: Final = "kinesis://"
_STREAM: Final = re.compile(r"(arn:[a-z-]+:kinesis:([a-z0-9-]+):[0-9]{12}:stream/)?[A-Za-z0-9_.-]{1,128}", re.ASCII)
_CONSUMER: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)
IDLE_READ_S_MIN: Final = 0.2
"""Five reads a second are all that Kinesis allows to all readers of a shard together."""
IDLE_READ_S_MAX: Final = 60.0
"""An iterator lives for five minutes; and nobody wants to learn of a record later than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisPlace:
    """Which streams are read, where they are, and how."""

    streams: tuple[str, ...]
    """At least one: names or ARNs."""
    aws: AwsPlace = field(default_factory=AwsPlace)
    start: Start | None = None
    """Where a new group starts; None leaves it to the settings of the host."""
    idle_read_s: float = IDLE_S
    """How often a shard without news is read, seconds."""
    consumer: str | None = None
    """
    The consumer of enhanced fan-out to which records are pushed; None polls. One for each group: two readers with the
    same one cut each other off. It is made where it is not there.
    """

    def __post_init__(self) -> None:
        regions = set()
        for stream in self.streams:
            if (match := _STREAM.fullmatch(stream)) is None:
                raise ValueError(
                    f"{stream!r} is no stream; expected a name, or an ARN such as "
                    "'arn:aws:kinesis:eu-west-1:123456789012:stream/orders'; correct it"
                )
            regions.add(match[2] or self.aws.region)
        if not self.streams:
            raise ValueError("no stream is named; write one after 'kinesis://'")
        names = [stream_name(stream) for stream in self.streams]
        if len(set(names)) < len(names):
            raise ValueError(f"the streams {', '.join(names)} are not all different; name each once")
        if len(regions) > 1 or (self.aws.region is not None and regions != {self.aws.region}):
            found = ", ".join(sorted(str(region) for region in {*regions, self.aws.region} - {None}))
            raise ValueError(f"the streams are in several regions ({found}); one source reads one region")
        if not IDLE_READ_S_MIN <= self.idle_read_s <= IDLE_READ_S_MAX:
            raise ValueError(
                f"idle_read_s={self.idle_read_s:g} is not between {IDLE_READ_S_MIN:g} and {IDLE_READ_S_MAX:g} seconds"
            )
        if self.consumer is not None and not _CONSUMER.fullmatch(self.consumer):
            raise ValueError(
                f"consumer={self.consumer!r} is no name; expected 1 to 128 of A-Z, a-z, 0-9, '_', '.' and '-'"
            )
        # An ARN says where its stream is; a call to another region would not find it.
        object.__setattr__(self, "aws", replace(self.aws, region=regions.pop()))

    @property
    def url(self) -> str:
        """The URL that is read as this place."""
        own = [
            f"{key}={quote(value, safe=':')}"
            for key, value in (("start", self.start), ("idle_read_s", f"{self.idle_read_s:g}"))
            if value is not None and (key, value) != ("idle_read_s", f"{IDLE_S:g}")
        ]
        if self.consumer is not None:
            own += ["mode=fanout", f"consumer={self.consumer}"]
        query = "&".join(part for part in (query_of(self.aws), *own) if part)
        return f"{SCHEME}{','.join(self.streams)}" + (f"?{query}" if query else "")


def parse_url(url: str) -> KinesisPlace:
    """
    Return the place that a URL names.

    Raises:
        ValueError: it is no URL of Kinesis, names no stream, has an unknown or doubled key, or a value that cannot be.
    """
    if not url.startswith(SCHEME):
        raise ValueError(f"{url!r} is no URL of Kinesis; expected one such as 'kinesis://orders?region=eu-west-1'")
    streams, _, query = url.removeprefix(SCHEME).partition("?")
    # Not as in a form: the plus of an ISO time's zone is a plus.
    aws, own = parse_query(query.replace("+", "%2B"), ("start", "idle_read_s", "mode", "consumer"))
    return KinesisPlace(
        streams=tuple(stream for stream in streams.split(",") if stream),
        aws=aws,
        start=parse_start(own["start"]) if "start" in own else None,
        idle_read_s=_seconds(own["idle_read_s"]) if "idle_read_s" in own else IDLE_S,
        consumer=_consumer(own.get("mode", "poll"), own.get("consumer")),
    )


def _consumer(mode: str, consumer: str | None) -> str | None:
    if mode not in ("poll", "fanout"):
        raise ValueError(f"mode={mode!r} is neither poll nor fanout; correct it or leave it out")
    if mode == "fanout" and consumer is None:
        raise ValueError(
            "mode=fanout needs consumer=NAME, a name for each group: two groups with one cut each other off"
        )
    if mode == "poll" and consumer is not None:
        raise ValueError(f"consumer={consumer!r} is for mode=fanout alone; add that, or leave the consumer out")
    return consumer


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"idle_read_s={text!r} is no number of seconds, expected one such as 1.0") from None
