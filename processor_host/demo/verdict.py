"""
The verdict: what became of every record, from the journals of the hosts and the producer's list alone.

Pure; reads no file, no clock and no store, so that nothing that the hosts only believe enters it. What it looks for:

- **Lost**: the producer lists the record, and no journal has its end.
- **Overlap**: within one partition the handling of a record began after one under a higher token had begun, or while
  one of another term went on, or two processes used the same token. A handling without an end was cut short by the
  death of its process; it went on for at least as long as that process wrote lines.
- **Step back**: within one partition, in the order of tokens, a term began before a position where an earlier term had
  begun, or that the store had already accepted as a checkpoint; or a checkpoint came before an earlier one of its term.
- **Order**: where partitions are born of others, a record came before one of its key, or a child before its parent; see
  `processor_host.demo.orders`.
- **Unknown**: a position that the producer does not list, which makes every other count doubtful.

Positions are opaque, so their order is that of the producer's list, which has one writer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

from partitions.positions import EARLIEST
from processor_host.demo.handlings import Handling, handlings_of, text_of
from processor_host.demo.lines import Act, Birth, Kill, Line, Produced
from processor_host.demo.orders import early_children, keys_over_births, out_of_order
from processor_host.processor import CloseReason

__all__ = ["Recovery", "Verdict", "judge"]

EXAMPLES_MAX: Final = 10

ORDERLY: Final = frozenset({CloseReason.HANDED_OFF.name, CloseReason.HOST_STOPPING.name})
"""How a term closes whose partition moves as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A partition that a killed host had."""

    partition: str
    seconds: float | None
    """From the kill to the end of the first record that the next owner handled; None where none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found; of each fault one text."""

    produced: int
    handled: int
    """Of the records that were produced, each counted once."""
    repeats: int
    """Further handlings of those; allowed after a kill, back to the last checkpoint."""
    unfinished: int
    """Handlings that began and have no end."""
    lost: tuple[str, ...]
    unknown: tuple[str, ...]
    overlaps: tuple[str, ...]
    steps_back: tuple[str, ...]
    recoveries: tuple[Recovery, ...]
    gaps_s: tuple[float, ...]
    """For each orderly move of a partition: the time between the last record of the one and the first of the other."""
    out_of_order: tuple[str, ...] = ()
    early: tuple[str, ...] = ()
    births: int = 0
    """Partitions that are born of others."""
    keys_over_births: int = 0
    """How many keys have records in a partition and in one born of it: those whose order was put to the test."""

    @property
    def recovery_s(self) -> tuple[float, ...]:
        """The seconds of the partitions that were handled again."""
        return tuple(each.seconds for each in self.recoveries if each.seconds is not None)

    def failures(self) -> tuple[str, ...]:
        """Return what must not be, one text each; empty where all is well."""
        musts = {
            "records lost": self.lost,
            "positions that nobody produced": self.unknown,
            "owner overlaps": self.overlaps,
            "checkpoints that went backwards": self.steps_back,
            "records before an earlier one of their key": self.out_of_order,
            "partitions handled before their parents were done": self.early,
        }
        found = [f"{what}: {len(faults)}; the first: {faults[0]}" for what, faults in musts.items() if faults]
        # Nothing can be lost of nothing, and no order be broken by a single record: that is no proof.
        if self.births and not self.keys_over_births:
            found.insert(0, "no key has records in a partition and in one that is born of it")
        if not self.produced:
            found.insert(0, "no record was produced")
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        return {
            "records_produced": self.produced,
            "records_handled": self.handled,
            "repeats": self.repeats,
            "records_unfinished": self.unfinished,
            "records_lost": len(self.lost),
            "records_unknown": len(self.unknown),
            "owner_overlaps": len(self.overlaps),
            "checkpoints_backwards": len(self.steps_back),
            "records_out_of_order": len(self.out_of_order),
            "children_early": len(self.early),
            "births": self.births,
            "keys_over_births": self.keys_over_births,
            "recovery_s": {each.partition: each.seconds for each in self.recoveries},
            "recovery_worst_s": max(self.recovery_s, default=None),
            "recovery_median_s": median(self.recovery_s) if self.recovery_s else None,
            "orderly_moves": len(self.gaps_s),
            "handoff_gap_s": max(self.gaps_s, default=None),
            "examples": {
                name: list(getattr(self, name)[:EXAMPLES_MAX])
                for name in ("lost", "unknown", "overlaps", "steps_back", "out_of_order", "early")
            },
        }


def judge(
    journals: Iterable[Sequence[Line]],
    produced: Iterable[Produced],
    kills: Iterable[Kill] = (),
    births: Iterable[Birth] = (),
) -> Verdict:
    """
    Judge a whole play.

    Args:
        journals: The lines of each process, in the order in which it wrote them.
        produced: The producer's list.
        kills: Which processes were killed, and when.
        births: Which partitions are born of which.

    Raises:
        ValueError: a journal contradicts itself, as with an end without a start.
    """
    journals = [tuple(lines) for lines in journals]
    produced, births = tuple(produced), tuple(births)
    order = _order_of(produced)
    handlings = sorted(
        (each for lines in journals for each in handlings_of(lines)), key=lambda each: (each.start_s, each.token)
    )
    ends = [each.place for each in handlings if each.is_ended and each.place in order]
    handled = frozenset(ends)
    by_partition: dict[str, list[Handling]] = defaultdict(list)
    for each in handlings:
        by_partition[each.partition].append(each)
    return Verdict(
        produced=len(order),
        handled=len(handled),
        repeats=len(ends) - len(handled),
        unfinished=sum(not each.is_ended for each in handlings),
        lost=tuple(text_of(*place) for place in order if place not in handled),
        unknown=tuple(
            dict.fromkeys(
                text_of(line.partition, line.position)
                for lines in journals
                for line in lines
                if line.position != EARLIEST and (line.partition, line.position) not in order
            )
        ),
        overlaps=tuple(text for partition in by_partition.values() for text in _overlaps_of(partition)),
        steps_back=tuple(_steps_back_of(journals, order)),
        recoveries=tuple(each for kill in kills for each in _recoveries_of(journals, by_partition, kill)),
        gaps_s=tuple(_gaps_of(journals, by_partition)),
        out_of_order=tuple(out_of_order(handlings, produced)),
        early=tuple(early_children(by_partition, births)),
        births=len({birth.partition for birth in births}),
        keys_over_births=len(keys_over_births(handled, produced, births)),
    )


# --- What must not be -------------------------------------------------------------------------------------------------


def _order_of(produced: Iterable[Produced]) -> Mapping[tuple[str, str], int]:
    """Number the records of each partition, from 1."""
    counts: dict[str, int] = defaultdict(int)
    order: dict[tuple[str, str], int] = {}
    for each in produced:
        if (each.partition, each.position) in order:
            raise ValueError(f"the producer lists {text_of(each.partition, each.position)} twice")
        counts[each.partition] += 1
        order[each.partition, each.position] = counts[each.partition]
    return order


def _overlaps_of(handlings: Sequence[Handling]) -> Iterator[str]:
    """Find the handlings of one partition, sorted by their starts, that should not have begun when they did."""
    latest: dict[tuple[int, int], Handling] = {}
    for each in handlings:
        for (token, pid), other in latest.items():
            if (token, pid) == (each.token, each.pid):
                continue
            if token >= each.token or other.end_s > each.start_s:
                yield (
                    f"{text_of(each.partition, each.position)} under token {each.token} in process {each.pid} "
                    f"after or during {other.position!r} under token {token} in process {pid}"
                )
                break
        before = latest.get((each.token, each.pid))
        if before is None or each.end_s > before.end_s:
            latest[each.token, each.pid] = each


def _steps_back_of(journals: Sequence[Sequence[Line]], order: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Find what begins, or is stored, before what was already known to be done."""
    ranks = {**order, **{(partition, EARLIEST): 0 for partition, _ in order}}
    claims = sorted(
        (
            line
            for lines in journals
            for line in lines
            if line.act in (Act.OPENED, Act.CHECKPOINT) and (line.partition, line.position) in ranks
        ),
        key=lambda line: (line.partition, line.token, line.at_s),
    )
    # Each with the one before: what follows a step back, and goes on from there, is not another one.
    for before, line in pairwise(claims):
        is_lower = ranks[line.partition, line.position] < ranks[before.partition, before.position]
        if is_lower and line.partition == before.partition:
            yield (
                f"{text_of(line.partition, line.position)} {line.act} under token {line.token} "
                f"after {before.position!r} {before.act} under token {before.token}"
            )


# --- How long it took -------------------------------------------------------------------------------------------------


def _recoveries_of(
    journals: Sequence[Sequence[Line]], handlings: Mapping[str, Sequence[Handling]], kill: Kill
) -> Iterator[Recovery]:
    """Find the terms that were open in a process when it was killed, and who went on."""
    opened: dict[str, Line] = {}
    newest: dict[str, int] = defaultdict(int)
    for lines in journals:
        for line in lines:
            if line.at_s < kill.at_s:
                newest[line.partition] = max(newest[line.partition], line.token)
            if line.pid == kill.pid and line.act is Act.OPENED:
                opened[line.partition] = line
            elif line.pid == kill.pid and line.act is Act.CLOSED:
                opened.pop(line.partition, None)
    for partition, line in opened.items():
        if line.token == newest[partition]:
            ends = [one.end_s for one in handlings.get(partition, ()) if one.token > line.token and one.is_ended]
            yield Recovery(partition=partition, seconds=min(ends) - kill.at_s if ends else None)


def _gaps_of(journals: Sequence[Sequence[Line]], handlings: Mapping[str, Sequence[Handling]]) -> Iterator[float]:
    """Find what lies between the records of two terms where every term from the one to the other closed in order."""
    reasons: dict[tuple[str, int], str] = {}
    for lines in journals:
        for line in lines:
            reasons[line.partition, line.token] = line.reason
    for partition, ones in handlings.items():
        ends: dict[int, list[float]] = defaultdict(list)
        for one in ones:
            if one.is_ended:
                ends[one.token].append(one.end_s)
        for before, after in pairwise(sorted(ends)):
            between = [token for name, token in reasons if name == partition and before <= token < after]
            if all(reasons[partition, token] in ORDERLY for token in between):
                yield min(ends[after]) - max(ends[before])
