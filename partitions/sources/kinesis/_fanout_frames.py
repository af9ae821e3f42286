"""
An event stream of SubscribeToShard that can be waited for and left at any moment.

Knows no shard and no position. The SDK decodes the messages and checks their sums; here they are only cut apart.

Theory of operation. The SDK's event stream is an asynchronous generator that waits for the network: cancelling such a
wait, as the end of every read does that finds nothing, would end it for good, and Kinesis refuses another subscription
within five seconds. So the body of the answer is replaced, before the SDK reads it, by one that waits outside of the
generator and gives it whole messages alone: while the generator runs, it never waits. Bytes that came in before a wait
was cancelled stay where they are. The SDK's hook for this is its event "before-parse".

Nothing is read ahead: what is not asked for stays in the connection, whose buffer is bounded, and then at Kinesis.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

from aiohttp import ClientPayloadError

__all__ = ["Events", "subscribe"]

FRAME_BYTES_MAX: Final = 25 * 1024 * 1024
"""More than the SDK takes for a message (24 MiB with its headers); a longer one is not the beginning of a message."""
LENGTH_BYTES: Final = 4
"""A message begins with its own length."""

_HOOK: Final = "before-parse.kinesis.SubscribeToShard"


class _Raw(Protocol):
    """The answer of the HTTP client."""

    @property
    def content(self) -> Any: ...
    def close(self) -> None: ...


class Frames:
    """Stands in for the body of the answer; the SDK takes whole messages out of it."""

    def __init__(self, raw: _Raw) -> None:
        self._raw = raw
        self._data = bytearray()
        self._is_closed = False

    @property
    def content(self) -> Frames:
        """What the SDK iterates over."""
        return self

    async def arrived(self) -> bool:
        """
        Wait until a whole message is there; false if none will come. May be cancelled without a loss.

        Raises:
            aiohttp.ClientError, OSError: the connection broke or fell silent, or what came is no message.
        """
        while not self._is_whole():
            if self._is_closed or not (chunk := await self._raw.content.readany()):
                return False
            self._data += chunk
        return True

    async def iter_chunks(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Give the SDK one message at a time; it waits here only for the first one, the answer to the call."""
        while await self.arrived():
            length = self._length()
            frame = bytes(self._data[:length])
            del self._data[:length]
            yield frame, True

    def close(self) -> None:
        """Close the connection, which cannot be used again, and end what the SDK iterates over."""
        self._is_closed = True
        self._data.clear()
        self._raw.close()

    def _is_whole(self) -> bool:
        if len(self._data) < LENGTH_BYTES:
            return False
        if (length := self._length()) > FRAME_BYTES_MAX or length <= LENGTH_BYTES:
            raise ClientPayloadError(f"a message of {length} bytes in an event stream, at most {FRAME_BYTES_MAX}")
        return len(self._data) >= length

    def _length(self) -> int:
        return int.from_bytes(self._data[:LENGTH_BYTES], "big")


class Events:
    """The events of one subscription, from its answer on."""

    def __init__(self, frames: Frames, stream: Any) -> None:
        self._frames = frames
        self._events = aiter(stream)
        self._is_closed = False

    async def arrived(self) -> bool:
        """See `Frames.arrived`: after true, `next` waits for nothing."""
        return await self._frames.arrived()

    async def next(self) -> Mapping[str, Any] | None:
        """
        Return the next event as the SDK parses it; None where the subscription has ended.

        Raises:
            botocore.exceptions.EventStreamError: Kinesis ended the subscription with an error.
            botocore.eventstream.ParserError: a message is broken.
        """
        event: Mapping[str, Any] | None = await anext(self._events, None)
        return event

    async def close(self) -> None:
        """Let go of the connection. Twice does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._frames.close()
            # Runs the generators to their end; the event loop would have to end them in a task of nobody's.
            await anext(self._events, None)


_opened: ContextVar[list[Frames]] = ContextVar("_opened")


async def subscribe(client: Any, **arguments: Any) -> Events:
    """
    Call SubscribeToShard.

    Raises:
        Exception: what the SDK raises; no connection is left open, also where the caller is cancelled.
    """
    client.meta.events.register(_HOOK, _replace_body, unique_id=__name__)
    frames: list[Frames] = []
    token = _opened.set(frames)
    try:
        answer = await client.subscribe_to_shard(**arguments)
        return Events(frames[0], answer["EventStream"])
    except BaseException:  # Not handled, only tidied up after: the SDK leaves the connection open.
        for each in frames:
            each.close()
        raise
    finally:
        _opened.reset(token)


def _replace_body(response_dict: dict[str, Any], **_: Any) -> None:
    # A refusal has bytes for a body.
    if not isinstance(response_dict["body"], bytes):
        response_dict["body"] = Frames(response_dict["body"])
        _opened.get().append(response_dict["body"])
