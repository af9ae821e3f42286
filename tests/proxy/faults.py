"""
Which calls are disturbed, and how: faults as data, and the rules in force, which a test changes while calls go on.

It neither waits nor sends; the proxy does what `Rules.decide` says.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.proxy.calls import Call

__all__ = ["Effect", "Fault", "Rules"]


class Effect(Enum):
    """What happens to a call. Each but DELAY settles its fate; a delay comes on top of what follows."""

    DELAY = "delay"
    """Forwarded after `delay_s`, also if the client has given up by then: a write that is applied late."""
    ANSWER_LATE = "answer late"
    """Forwarded at once, answered after `delay_s`: applied while the client waits."""
    FAIL_BEFORE = "500 before"
    """Not forwarded, answered with status 500."""
    FAIL_AFTER = "500 after"
    """Forwarded, and its answer replaced by status 500: applied, and the client cannot know."""
    DROP_BEFORE = "drop before"
    """Not forwarded; the connection is reset."""
    DROP_AFTER = "drop after"
    """Forwarded, then the connection is reset."""
    REPEAT = "repeat"
    """Forwarded and answered, and forwarded once more after `delay_s`: a duplicate that arrives late."""
    THROTTLE = "throttle"
    """Not forwarded; answered as by a service that is over its limit."""
    DENY = "deny"
    """Not forwarded; answered as to somebody without permission."""
    EXPIRE = "expire"
    """Not forwarded; answered as to expired credentials."""
    REFUSE = "refuse"
    """Not forwarded; answered with the error `code`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fault:
    """One disturbance of the calls that match: all, unless said otherwise."""

    effect: Effect
    operation: str | Collection[str] | None = None
    """The operation or operations; None for every one."""
    when: Callable[[Call], bool] | None = None
    """A predicate over the call; it runs on the proxy's thread, and must neither wait nor call the proxy."""
    probability: float = 1.0
    """Of each matching call, by the random numbers of the rules' seed."""
    every: int = 1
    """Only each n-th of the matching calls, the n-th first."""
    times: int | None = None
    """At most so often; None without bound."""
    delay_s: float = 0.0
    """How long, for DELAY, ANSWER_LATE and REPEAT."""
    code: str = ""
    """The error's name for REFUSE, or another one than usual for THROTTLE, DENY and EXPIRE."""
    status: int = 400
    """The status of a REFUSE."""

    def __post_init__(self) -> None:
        if self.effect is Effect.REFUSE and not self.code:
            raise ValueError("a fault with effect REFUSE has code='', expected the name of an error")
        if self.every < 1:
            raise ValueError(f"a fault has every={self.every}, expected 1 or more")

    def matches(self, call: Call) -> bool:
        """Whether the call is one that it is about."""
        operations = {self.operation} if isinstance(self.operation, str) else self.operation
        named = operations is None or call.operation in operations
        return named and (self.when is None or self.when(call))


class Rules:
    """The faults in force, in order. Every method may be called from any thread, at any time."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._seen: dict[Fault, int] = {}
        self._hits: dict[Fault, int] = {}

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force, after those that are; it is returned for `remove` and `hits`."""
        with self._lock:
            self._seen[fault] = 0
            self._hits[fault] = 0
        return fault

    def remove(self, fault: Fault) -> None:
        """Take it out of force; its hits stay readable. One that is not in force is no error."""
        with self._lock:
            self._seen.pop(fault, None)

    def clear(self) -> None:
        """Take all out of force."""
        with self._lock:
            self._seen.clear()

    @contextmanager
    def applied(self, *faults: Fault) -> Iterator[None]:
        """In force for the length of the block."""
        for fault in faults:
            self.add(fault)
        try:
            yield
        finally:
            for fault in faults:
                self.remove(fault)

    def hits(self, fault: Fault) -> int:
        """How many calls it has disturbed since it was added last."""
        with self._lock:
            return self._hits.get(fault, 0)

    def decide(self, call: Call) -> tuple[Fault, ...]:
        """The faults that hit this call: any number of delays, and behind them at most one other."""
        hit: list[Fault] = []
        with self._lock:
            for fault in list(self._seen):
                if self._is_hit(fault, call):
                    self._hits[fault] += 1
                    hit.append(fault)
                    if fault.effect is not Effect.DELAY:
                        break
        return tuple(hit)

    def _is_hit(self, fault: Fault, call: Call) -> bool:
        if not fault.matches(call):
            return False
        self._seen[fault] += 1
        if self._seen[fault] % fault.every or (fault.times is not None and self._hits[fault] >= fault.times):
            return False
        return fault.probability >= 1.0 or self._random.random() < fault.probability
