"""The sinks of a host: opened once, and let go whatever becomes of it."""

from __future__ import annotations

import pytest

from processor_host.letters.base import Letter
from processor_host.sinks import Sinks

__all__: list[str] = []


class Refusing:
    """A sink that is not there."""

    url = "memory:"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_there = False

    async def open(self) -> None:
        self.calls.append("open")
        if not self.is_there:
            raise ConnectionError("not there")

    async def write(self, letter: Letter) -> None:
        raise AssertionError("nothing is written here")

    async def close(self) -> None:
        self.calls.append("close")
        raise ConnectionError("not there either")


async def test_sink_that_cannot_be_opened_is_closed_at_once_and_asked_again_the_next_time() -> None:
    """It may have connected before it found that it cannot work, and nobody else would let go of that."""
    sink, sinks = Refusing(), Sinks()
    for _ in range(2):
        with pytest.raises(ConnectionError, match=r"^not there$"):
            await sinks.opened(sink)
    sink.is_there = True
    await sinks.opened(sink)
    await sinks.opened(sink)
    await sinks.close()
    await sinks.close()

    assert sink.calls == ["open", "close", "open", "close", "open", "close"]
