"""
The sinks of dead letters that a host has open: each is opened once, before it is first used, and closed at the end.

Knows no pump. The sink of the host's own policy is opened before the first term, so that one that is not there fails
the start; one that only a processor's `on_failure` names is opened when a letter is first to be written to it.
"""

from __future__ import annotations

import anyio

from processor_host.letters.base import LetterSink

__all__ = ["Sinks"]

CLOSE_S = 5.0
"""How long one sink may take to let go, at the end of a host."""


class Sinks:
    """The open sinks of one host, told apart by identity."""

    def __init__(self) -> None:
        self._open: dict[int, LetterSink] = {}
        self._one_at_a_time = anyio.Lock()

    async def opened(self, sink: LetterSink) -> LetterSink:
        """
        Return the sink, open.

        Raises:
            Exception: whatever its `open` raises; it is asked again the next time.
        """
        if id(sink) not in self._open:
            async with self._one_at_a_time:
                if id(sink) not in self._open:
                    try:
                        await sink.open()
                    except BaseException:  # Also where the caller was cancelled: what it has connected to is let go.
                        await _close(sink)
                        raise
                    self._open[id(sink)] = sink
        return sink

    async def close(self) -> None:
        """Close what was opened; one that fails to does not keep the others."""
        while self._open:
            _, sink = self._open.popitem()
            await _close(sink)


async def _close(sink: LetterSink) -> None:
    with anyio.move_on_after(CLOSE_S, shield=True):
        try:
            await sink.close()
        except Exception:  # Containment: its letters are written, and nothing else is left to be done with it.
            return
