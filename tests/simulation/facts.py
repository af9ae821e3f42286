"""
Facts of a history, in the order in which checkers ask for them: terms, sessions, and when the protocol lets each go on.

It knows only what happened: the network's history and calls, the journal, the diary, freezes and clocks; never a host.
All times are the world's. What a host may believe is counted from the moments at which it sent what was answered, on
its own clock's rate, as the protocol says (DESIGN section 5, rules 1, 10 and 12).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from partitions.clocks import CLOCK_DRIFT
from partitions.events import EndReason, LeaseAcquired, LeaseEnded
from partitions.items import ask_key
from partitions.positions import EARLIEST
from partitions.transactions import Commit
from partitions.verbs import (
    Acquire,
    Applied,
    Ask,
    Attempt,
    Beat,
    Complete,
    Create,
    Fence,
    Leave,
    Refused,
    Register,
    Release,
    SaveCheckpoint,
)
from processor_host.events import RecordsGivenUp
from tests.simulation.handlers import LETTER
from tests.world.checks import position_order
from tests.world.network import Write
from tests.world.world import World

__all__ = ["EPSILON_S", "Facts", "Life", "Term"]

EPSILON_S = 1e-6
"""Clocks of different rates round differently."""


@dataclass(slots=True)
class Life:
    """One session, as the network saw it."""

    session_id: str
    place: str
    rate: float
    """Of its host's clock."""
    registered: Register
    first_sent_s: float
    """When its register was sent first: what it counts as its first beat."""
    answers: list[tuple[float, float, float]] = field(default_factory=list)
    """Of each beat that was applied and whose answer arrived: when it was sent, applied and answered."""
    gone_s: float = math.inf
    """When its item was deleted for the first time."""
    left_s: float = math.inf
    """When its own leave was sent first."""

    def validity_s(self, counted: float) -> float:
        """Return how much of the world's time the host counts as so much, less the drift."""
        return counted * (1 - CLOCK_DRIFT) / self.rate

    def oversleeps_s(self, counted: float) -> float:
        """Return by how much a host whose clock is fast may tell of an end too late: it waits on the world's time."""
        return max(0.0, self.rate - 1) * counted

    def valid_until_s(self, at_s: float) -> float:
        """Return until when the host may believe, at a time, that the session lives."""
        sent_s = max((sent for sent, _, answered in self.answers if answered <= at_s), default=self.first_sent_s)
        return sent_s + self.validity_s(self.registered.duration_s)

    def ask_deadline_s(self, asked_s: float) -> float:
        """Return by when a term must have ended for which an ask was applied at a time."""
        sent_s = max((sent for sent, applied, _ in self.answers if applied <= asked_s), default=self.first_sent_s)
        return sent_s + self.validity_s(self.registered.handoff_s)


@dataclass(slots=True)
class Term:
    """One term, from the acquire that the store applied."""

    acquire: Write
    life: Life
    began_s: float = math.inf
    """When its host told that it holds it."""
    ended_s: float = math.inf
    """When its host told that it has ended, or was killed."""
    reason: EndReason | None = None
    asked_s: float = math.inf
    """When an ask for it was applied."""

    @property
    def key(self) -> str:
        """Its ask key."""
        return ask_key(self.acquire.verb.partition, self.acquire.verb.seen_token + 1)


class Facts:
    """The history of one world, indexed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = world.network.history
        last_call_s = world.network.calls[-1][0] if world.network.calls else 0.0
        self.world_end_s = max(last_call_s, world.diary[-1][0] if world.diary else 0.0)
        """The last moment of which the history tells."""

    def applied(self, *kinds: type) -> Iterator[Write]:
        """Yield the writes of these kinds that took effect, in order."""
        return (w for w in self.history if isinstance(w.verb, kinds) and isinstance(w.result, Applied))

    @cached_property
    def lives(self) -> dict[str, Life]:
        """Every session that sent a register, by its id."""
        lives: dict[str, Life] = {}
        clocks = {place: clock for place, _, clock in self.world.lone} | self.world.clocks
        for at_s, call in self.world.network.calls:
            if isinstance(call.verb, Register) and call.verb.session_id not in lives:
                rate = clocks[call.place].rate if call.place in clocks else 1.0
                lives[call.verb.session_id] = Life(call.verb.session_id, call.place, rate, call.verb, at_s)
            elif isinstance(call.verb, Leave) and call.verb.session_id in lives:
                life = lives[call.verb.session_id]
                life.left_s = min(life.left_s, at_s)
        for write in self.applied(Beat):
            if write.answered_s < math.inf and (known := lives.get(write.verb.session_id)):
                known.answers.append((write.sent_s, write.at_s, write.answered_s))
        for write in self.applied(Fence, Leave):
            if known := lives.get(write.verb.session_id):
                known.gone_s = min(known.gone_s, write.at_s)
        return lives

    @cached_property
    def terms(self) -> dict[tuple[str, int], Term]:
        """Every term of a session that registered, by partition and token."""
        terms: dict[tuple[str, int], Term] = {}
        for write in self.applied(Acquire):
            if life := self.lives.get(write.verb.session_id):
                terms.setdefault((write.verb.partition, write.result.item.token), Term(write, life))
        by_key = {term.key: term for term in terms.values()}
        for write in self.applied(Ask):
            for key in write.verb.keys:
                if (asked := by_key.get(key)) and asked.life.session_id == write.verb.session_id:
                    asked.asked_s = min(asked.asked_s, write.at_s)
        for at_s, place, event in self.world.diary:
            if isinstance(event, LeaseAcquired | LeaseEnded):
                term = terms.get((event.partition, event.token))
                if term is None or term.life.place != place:
                    continue
                if isinstance(event, LeaseAcquired):
                    term.began_s = min(term.began_s, at_s)
                elif term.reason is None:
                    term.ended_s, term.reason = at_s, event.reason
        for term in terms.values():
            if term.reason is None:
                # Nothing goes on in a dead place.
                term.ended_s = self.world.kills.get(term.life.place, math.inf)
        return terms

    def is_operators(self, term: Term) -> bool:
        """Say whether a term is one of a command: its session has no capacity."""
        return term.life.registered.capacity == 0

    @cached_property
    def resets(self) -> list[Write]:
        """The releases by which operators have set a position, in order."""
        operators = {name for name, life in self.lives.items() if life.registered.capacity == 0}
        return [
            write
            for write in self.applied(Release)
            if write.verb.owner in operators and write.verb.position is not None
        ]

    @cached_property
    def acquired_s(self) -> dict[str, list[float]]:
        """When each term of a partition was acquired, in order of the tokens 1, 2, 3, …"""
        found: dict[str, list[float]] = defaultdict(list)
        for write in self.applied(Acquire):
            found[write.verb.partition].append(write.at_s)
        return found

    def taken_s(self, partition: str, token: int) -> float:
        """Return when the term after this one was acquired; infinity: never."""
        acquired_s = self.acquired_s[partition]
        return acquired_s[token] if token < len(acquired_s) else math.inf

    @cached_property
    def freed(self) -> dict[tuple[str, int], Write]:
        """The first write of its holder that was to free each term, applied or not, by partition and token."""
        found: dict[tuple[str, int], Write] = {}
        for write in self.history:
            if isinstance(write.verb, Release | Complete):
                found.setdefault((write.verb.partition, write.verb.token), write)
        return found

    @cached_property
    def completed_s(self) -> dict[str, float]:
        """When each partition was finished."""
        return {write.verb.partition: write.at_s for write in self.applied(Complete)}

    @cached_property
    def first(self) -> dict[str, int]:
        """The number of the record after which each partition begins for the group."""
        begins: dict[str, int] = {}
        for write in self.history:
            if isinstance(write.verb, Create) and isinstance(write.result, Applied):
                begins.setdefault(write.verb.partition, int(position_order(write.verb.position)))
            elif isinstance(write.verb, Complete) and isinstance(write.result, Applied):
                for child in write.verb.children:
                    begins.setdefault(child.partition, int(position_order(child.position)))
        return begins

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """The parents of each listed partition."""
        return {info.partition: info.parents for info in self.world.source.list_now()}

    @cached_property
    def ends_s(self) -> dict[str, dict[int, float]]:
        """By partition and number: when each record was handled for the first time, or given up."""
        ends: dict[str, dict[int, float]] = defaultdict(dict)
        for entry in self.world.journal:
            if entry.end_s is not None:
                _note_first(ends[entry.partition], int(entry.position), entry.end_s)
        for partition, number, at_s in self.given_up:
            _note_first(ends[partition], number, at_s)
        return ends

    @cached_property
    def given_up(self) -> list[tuple[str, int, float]]:
        """Partition and number of each record that got its letter, was skipped or is behind a reset, and when."""
        found = [
            (partition, int(position), at_s)
            for at_s, _, (what, partition, _token, *more) in self.world.notes
            if what == LETTER
            for position in more
        ]
        found += [
            (event.partition, number, at_s)
            for at_s, _, event in self.world.diary
            if isinstance(event, RecordsGivenUp) and event.policy == "skip"
            for number in range(int(event.first), int(event.last) + 1)
        ]
        for write in self.resets:
            # Whatever lies in front of it need not be handled any more.
            to = int(position_order(write.verb.position))
            found += [(write.verb.partition, number, write.sent_s) for number in range(1, to + 1)]
        for write in self.applied(Commit):
            positions = [operation.key.rpartition("/")[2] for operation in write.verb.operations]
            found += [(write.verb.save.partition, int(position), write.sent_s) for position in positions]
        return found

    @cached_property
    def keys(self) -> dict[str, list[str | None]]:
        """By partition: the key of each record, from the first on."""
        source = self.world.source
        return {
            info.partition: [record.key for record in source.fetch_now(info.partition, EARLIEST, 10**9, 10**12).records]
            for info in source.list_now()
        }

    @cached_property
    def done_s(self) -> dict[str, list[float]]:
        """By partition: when the records up to each number, 0 included, had all been finished for the first time."""
        ends = self.ends_s
        found: dict[str, list[float]] = {}
        for info in self.world.source.list_now():
            last = len(self.world.source.fetch_now(info.partition, EARLIEST, 10**9, 10**12).records)
            so_far = -math.inf
            found[info.partition] = so_fars = [so_far] * (self.first.get(info.partition, 0) + 1)
            for number in range(len(so_fars), last + 1):
                so_far = max(so_far, ends[info.partition].get(number, math.inf))
                so_fars.append(so_far)
        return found

    def done_to_s(self, partition: str, number: int) -> float:
        """Return when all records up to a number had been finished for the first time; infinity: never."""
        done_s = self.done_s[partition]
        return done_s[number] if number < len(done_s) else math.inf

    def is_excused(self, life: Life, at_s: float) -> bool:
        """Say whether the clock of a session's host had stood still by then: of it only the fencing is asked."""
        return any(
            place == life.place and life.first_sent_s <= since_s <= at_s for place, since_s in self.world.suspensions
        )

    def awake_s(self, place: str, at_s: float) -> float:
        """Return a time, or when its place woke where it was frozen then (infinity: never)."""
        for frozen_place, from_s, to_s in self.world.freezes:
            if frozen_place == place and from_s <= at_s + EPSILON_S and at_s < to_s:
                at_s = to_s
        return at_s

    def last_change_s(self, session_id: str, before_s: float) -> float:
        """Return when the beat of a session's item changed last, before a time; minus infinity: never."""
        changes = self._changes_s.get(session_id, [])
        index = bisect_right(changes, before_s)
        return changes[index - 1] if index else -math.inf

    @cached_property
    def _changes_s(self) -> dict[str, list[float]]:
        changes: dict[str, list[float]] = defaultdict(list)
        for write in self.applied(Beat, Register):
            changes[write.verb.session_id].append(write.at_s)
        return changes

    def checkpoints(self) -> Iterator[Write]:
        """Yield the writes that stored a position, in order."""
        for write in self.applied(Attempt, SaveCheckpoint, Release):
            if write.verb.position is not None:
                yield write
        for write in self.applied(Commit):
            yield replace(write, verb=write.verb.save)

    def refused(self, *kinds: type) -> Iterator[Write]:
        """Yield the writes of these kinds that were refused, in order."""
        return (w for w in self.history if isinstance(w.verb, kinds) and isinstance(w.result, Refused))


def _note_first(ends: dict[int, float], number: int, at_s: float) -> None:
    ends[number] = min(ends.get(number, math.inf), at_s)
