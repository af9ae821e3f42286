"""
The storm: what happens to the calls of a run, drawn call by call, until it is over.

It knows no host; `troubles` tells it who is cut off and who waits for a call. Faults hit every verb of the store and
every call of the source: before it is applied, after it, and as a delay. Reads that may be stale answer with an older
state, and a read of all leases may be made of pages that were read one after the other; a consistent read never lies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Generic, TypeVar
from zlib import crc32

from partitions.errors import SourceUnavailable, StoreUnavailable
from partitions.items import LeaseItem, SessionItem
from partitions.verbs import Acquire, Applied, LeaseVerb, SessionVerb
from tests.simulation.parameters import Parameters
from tests.world.network import Call, Fault, Write
from tests.world.world import GROUP, World

__all__ = ["STRUCK", "WAYS", "Cut", "Storm"]

T = TypeVar("T")

WAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "before": ("fail_before", "lose_request", "raises"),
    "after": ("fail_after", "lose_answer"),
    "late": ("before_s", "after_s"),
}
"""How a call may be struck: before it is applied, after it, or as a delay; and by which fields of a `Fault`."""
STRUCK: Final = (
    "Acquire", "AcquireLock", "Ask", "Attempt", "Beat", "Commit", "Complete", "Create", "Drain", "Fence", "Leave",
    "Pause", "Register", "Release", "ReleaseLock", "Resume", "SaveCheckpoint", "SetUp", "look_at_sessions",
    "read_group", "read_leases", "read_lock", "read_session", "read_sessions", "read_some_leases", "read_some_locks",
    "source.first", "source.identity", "source.list", "source.read", "source.resolve",
)  # fmt: skip
"""
Everything that hosts and operators send to store and source in a storm; fresh seeds must strike each in each way.

Not there are `Delete`, which comes an hour after a partition has gone and has a schedule of its own, `Adopt`, which is
sent by hand, and reads of one item by verbs that were refused without it, which the memory store never does.
"""
SELDOM: Final = ("Commit", "Drain", "Pause", "Resume", "SetUp", "read_group", "source.identity", "source.resolve")
"""Calls of which a run has few, so that more of them are struck."""
SELDOM_LOSS: Final = 0.5
SELDOM_FAULTS: Final[tuple[Mapping[str, Any], ...]] = (
    {"fail_before": True},
    {"lose_request": True},
    {"fail_after": True},
    {"lose_answer": True},
    {"before_s": 0.5},
    {"after_s": 0.5},
)

PAGES: Final = 8
"""Keys over which the leases of a group are spread (DESIGN section 3); each is read by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Between one place and the others."""

    loses: str
    """"requests", "answers" of requests that are applied, or "beats": the requests of beats alone."""
    source_too: bool


class Storm:
    """
    Decides the fate of calls: the `weather` of the world's network.

    Attributes:
        is_on: Faults are drawn.
        cuts: By place.
        seen: How often something rare happened that leaves no trace in the history.
        struck: How often calls were struck, by operation and way, as in "Beat after".
        last_late_s: When the last late call arrives that was drawn so far.
        on_call: Called with each call as it is sent.
    """

    def __init__(self, world: World, parameters: Parameters) -> None:
        self.is_on = True
        self.cuts: dict[str, Cut] = {}
        self.seen: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.last_late_s = world.now_s
        self.on_call: Callable[[Call], None] = lambda _: None
        self._world = world
        self._random = Random(f"storm of {parameters.seed}")
        # Another one, so that a seed draws the rest as it would without.
        self._random_seldom = Random(f"seldom calls of {parameters.seed}")
        self._parameters = parameters
        self._leases = _Past[tuple[LeaseItem, ...]](world.now_s, ())
        self._sessions = _Past[tuple[SessionItem, ...]](world.now_s, ())
        self._holders: dict[str, tuple[str, int]] = {}
        """Place and token of the last acquire, by partition."""
        self._witness = world.network.on_write
        world.network.on_write = self._note
        world.network.weather = self.fate

    def end(self, *, lose_late: bool) -> None:
        """Draw no more faults; what is late gets lost from here on, or arrives by `last_late_s`."""
        self.is_on = False
        self.cuts.clear()
        self._world.network.loses_late = lose_late

    def fate(self, call: Call) -> Fault | None:
        """Draw what happens to a call; None for nothing."""
        self.on_call(call)
        if not self.is_on:
            return None
        what = self._drawn(call)
        if not what:
            return None
        for way, names in WAYS.items():
            if not what.keys().isdisjoint(names):
                self.struck[f"{call.operation} {way}"] += 1
        return Fault(matches=lambda _: True, **what)

    def _drawn(self, call: Call) -> dict[str, Any]:
        is_source = call.operation.startswith("source.")
        cut = self.cuts.get(call.place)
        if cut is not None and (cut.source_too or not is_source) and (cut.loses != "beats" or call.operation == "Beat"):
            return {"lose_answer" if cut.loses == "answers" else "lose_request": True}
        if self._is_hit(0.0 if is_source else self._parameters.throttled):
            return {"raises": StoreUnavailable(f"{call.operation}: slow down")}
        what: dict[str, Any] = {}
        self._lose(call, what, is_source)
        self._delay(call, what, is_source)
        if call.verb is not None and self._is_hit(self._parameters.late):
            what["repeat_after_s"] = self._random.uniform(0, 4 * self._parameters.duration_s)
        if call.operation == "look_at_sessions" and self._is_hit(self._parameters.stale):
            what["changes"] = self._stale
        if call.operation == "read_leases" and self._is_hit(self._parameters.paged):
            what["before_s"] = self._random.uniform(0, self._parameters.duration_s / 2)
            what["changes"] = self._paged(call, self._world.now_s)
        if call.operation in SELDOM and not what and self._random_seldom.random() < SELDOM_LOSS:
            what |= self._random_seldom.choice(SELDOM_FAULTS)
        if what:
            arrives_s = self._world.now_s + what.get("before_s", 0.0) + what.get("repeat_after_s", 0.0)
            self.last_late_s = max(self.last_late_s, arrives_s + self._world.latency_s)
        return what

    def _lose(self, call: Call, what: dict[str, Any], is_source: bool) -> None:
        drawn = self._parameters
        is_lost = self._is_hit(drawn.source_loss if is_source else drawn.loss)
        if is_lost or (call.operation in drawn.focus and self._is_hit(drawn.focus_loss)):
            what[self._random.choice(["fail_before", "fail_after", "lose_request", "lose_answer"])] = True
            if is_source and self._is_hit(0.1):
                what.clear()
                what["raises"] = SourceUnavailable(f"{call.operation}: slow down")

    def _delay(self, call: Call, what: dict[str, Any], is_source: bool) -> None:
        drawn = self._parameters
        is_slow = self._is_hit(drawn.source_slow if is_source else drawn.slow)
        if is_slow or (call.operation in drawn.focus and self._is_hit(drawn.focus_slow)):
            for way in self._random.choice([("before_s",), ("after_s",), ("before_s", "after_s")]):
                # Squared: most are a little late, some very.
                # In focus long enough to be given up at times, whatever the rest of the run is like.
                most_s = (
                    max(drawn.slow_max_s, drawn.duration_s / 2) if call.operation in drawn.focus else drawn.slow_max_s
                )
                what[way] = self._world.latency_s / 2 + most_s * self._random.random() ** 2

    def _is_hit(self, share: float) -> bool:
        return share > 0 and self._random.random() < share

    # --- Reads that see the past ------------------------------------------------------------------------------------

    def _stale(self, answer: tuple[SessionItem, ...]) -> tuple[SessionItem, ...]:
        age_s = self._parameters.duration_s * self._random.random() ** 2
        older = self._sessions.at(self._world.now_s - age_s)
        if older != answer:
            self.seen["look at the sessions that was stale"] += 1
        return older

    def _paged(self, call: Call, sent_s: float) -> Callable[[Any], Any]:
        def changes(answer: tuple[LeaseItem, ...]) -> tuple[LeaseItem, ...]:
            read_s = sorted(self._random.uniform(sent_s, self._world.now_s) for _ in range(PAGES))
            pages = [self._leases.at(at_s) for at_s in read_s]
            found = tuple(
                item for number, page in enumerate(pages) for item in page if _page_of(item.partition) == number
            )
            for item in found:
                place, token = self._holders.get(item.partition, ("", 0))
                if place == call.place and item.token < token:
                    self.seen["page older than one's own acquire"] += 1
            return found

        return changes

    def _note(self, write: Write) -> None:
        """Remember what the store holds since a write."""
        self._witness(write)
        if not isinstance(write.result, Applied):
            return
        item: Any = write.result.item
        if isinstance(write.verb, LeaseVerb):
            self._leases.add(write.at_s, self._world.store.leases_now(GROUP))
        elif isinstance(write.verb, SessionVerb):
            self._sessions.add(write.at_s, self._world.store.sessions_now(GROUP))
        if isinstance(write.verb, Acquire):
            self._holders[write.verb.partition] = (write.place, item.token)


class _Past(Generic[T]):
    """What a value was at any time."""

    def __init__(self, since_s: float, value: T) -> None:
        self._since_s = [since_s]
        self._values = [value]

    def add(self, at_s: float, value: T) -> None:
        """Note what it is from now on."""
        self._since_s.append(at_s)
        self._values.append(value)

    def at(self, at_s: float) -> T:
        """Return what it was."""
        return self._values[max(0, bisect_right(self._since_s, at_s) - 1)]


def _page_of(partition: str) -> int:
    return crc32(partition.encode()) % PAGES
