"""What the proxy has seen: counts, calls and consumed capacity, written on its thread and read on any."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from tests.proxy.calls import Call

__all__ = ["Capacity", "Notes"]

# The oldest are dropped beyond; counts and sums go on.
CALLS_MAX = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Sums of what the server reported as consumed, in DynamoDB's units."""

    read_units: float = 0.0
    write_units: float = 0.0


class Notes:
    """All calls since the start or the last `forget`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrived: Counter[str] = Counter()
        self._calls: deque[Call] = deque(maxlen=CALLS_MAX)
        self._capacity = Capacity()
        self._broken: list[Exception] = []

    def note_arrival(self, call: Call) -> None:
        with self._changed:
            self._arrived[call.operation] += 1
            self._changed.notify_all()

    def note_end(self, call: Call) -> None:
        with self._changed:
            self._calls.append(call)
            self._capacity = Capacity(
                read_units=self._capacity.read_units + call.read_units,
                write_units=self._capacity.write_units + call.write_units,
            )
            self._changed.notify_all()

    def note_broken(self, error: Exception) -> None:
        with self._changed:
            self._broken.append(error)
            self._changed.notify_all()

    @property
    def broken(self) -> tuple[Exception, ...]:
        """What a test's own predicate raised."""
        with self._changed:
            return tuple(self._broken)

    @property
    def calls(self) -> tuple[Call, ...]:
        with self._changed:
            return tuple(self._calls)

    @property
    def counts(self) -> Counter[str]:
        with self._changed:
            return Counter(self._arrived)

    @property
    def capacity(self) -> Capacity:
        with self._changed:
            return self._capacity

    def forget(self) -> None:
        with self._changed:
            self._arrived.clear()
            self._calls.clear()
            self._capacity = Capacity()

    def wait_until(self, holds: Callable[[], bool], within_s: float) -> bool:
        with self._changed:
            # Asked again at each arrival and each end; the lock is one that its holder may take again.
            return self._changed.wait_for(lambda: bool(self._broken) or holds(), within_s)
