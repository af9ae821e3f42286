"""
Calls under a time-out, and the waits between tries.
"""

from __future__ import annotations

import asyncio
from random import Random

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.retries import Waits, call
from tests.stage import VIRTUAL_TIME
from tests.world.diary import passes

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


class Always(Random):
    """A source of chance without any."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self._value = value

    def random(self) -> float:
        return self._value


@pytest.mark.parametrize(("chance", "expected"), [(0.0, [0.5, 1.0, 2.0, 2.5, 2.5]), (1.0, [1.0, 2.0, 4.0, 5.0, 5.0])])
def test_waits_double_up_to_the_most_and_lie_in_their_upper_half(chance: float, expected: list[float]) -> None:
    """Hosts that failed together must not come back together, and none of them at once."""
    waits = Waits(first_s=1.0, most_s=5.0)

    assert [waits.after(attempt, Always(chance)) for attempt in range(1, 6)] == expected


@given(st.integers(1, 10**9), st.floats(0.001, 10), st.floats(0.001, 1000), st.randoms(use_true_random=False))
def test_waits_are_bounded_however_long_an_outage_lasts(
    attempt: int, first_s: float, most_s: float, random: Random
) -> None:
    """An outage of days must neither overflow nor stop the tries."""
    wait_s = Waits(first_s=first_s, most_s=most_s).after(attempt, random)

    assert min(first_s, most_s) / 2 <= wait_s <= most_s


async def test_call_returns_the_answer() -> None:
    """In time is in time."""

    async def send() -> str:
        await passes(0.9)
        return "answer"

    assert await call(send, 1.0) == "answer"


@pytest.mark.parametrize("timeout_s", [1.0, 0.0, -1.0])
async def test_call_raises_store_unavailable_after_its_timeout(timeout_s: float) -> None:
    """No answer means that nobody knows; the caller must not wait longer than it holds what it writes for."""
    began_s = anyio.current_time()

    with pytest.raises(StoreUnavailable, match="no answer within"):
        await call(anyio.sleep_forever, timeout_s)

    assert anyio.current_time() - began_s == pytest.approx(max(0.0, timeout_s))


@pytest.mark.parametrize("error", [StoreMisconfigured("no table"), StoreUnavailable("throttled"), ValueError("bug")])
async def test_call_passes_on_what_the_store_raises(error: Exception) -> None:
    """Only silence is translated."""

    async def send() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await call(send, 1.0)

    assert caught.value is error


async def test_call_takes_a_cancellation_inside_the_store_for_no_answer() -> None:
    """Passed on it would end a session, and with it every lease of the host, without a word."""

    async def send() -> None:
        shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        shared.cancel()
        await shared

    with pytest.raises(StoreUnavailable, match="waited for was cancelled"):
        await call(send, 1.0)


async def test_call_passes_on_a_native_cancellation_of_its_caller() -> None:
    """A program may cancel the task in which it runs a host."""
    task = asyncio.get_running_loop().create_task(call(anyio.sleep_forever, 1.0))
    await passes(0.1)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()


async def test_call_takes_the_cancellation_of_its_caller_for_no_timeout() -> None:
    """A host that stops is no outage of the store."""
    with anyio.move_on_after(0.5) as scope:
        await call(anyio.sleep_forever, 1.0)

    assert scope.cancelled_caught
