"""
The verdict as a person reads it: the figures, what they must be, and whether the demo has passed.

Knows no file and no process.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from rich.text import Text

from processor_host.demo.play import Outcome
from processor_host.demo.verdict import Verdict
from processor_host.plurals import count_of

__all__ = ["report_of"]


def report_of(outcome: Outcome) -> Text:
    """Return the figures of a play and how it ended, a line each; a line may be longer than a terminal is wide."""
    rows = list(_rows(outcome.verdict))
    wide = max(len(name) for name, _, _, _ in rows)
    long = max(len(figure) for _, figure, _, _ in rows)
    text = Text("\nVerdict\n", style="bold")
    for name, figure, note, style in rows:
        text.append(Text(f"{name:<{wide}}  {figure:>{long}}  {note}".rstrip() + "\n", style=f"not bold {style}"))
    for failure in outcome.failures():
        text.append(Text(f"FAILED: {failure}\n", style="bold red"))
    if not outcome.failures():
        text.append(Text("PASSED\n", style="bold green"))
    text.rstrip()
    return text


def _rows(verdict: Verdict) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name of each figure, the figure, what is to be said of it, and its style."""
    yield "records produced", str(verdict.produced), "", ""
    yield "records handled", str(verdict.handled), "", ""
    yield "repeats", str(verdict.repeats), "allowed after the kill, back to the last checkpoint", ""
    yield _must("records lost", verdict.lost)
    yield _must("positions that nobody produced", verdict.unknown)
    yield _must("owner overlaps", verdict.overlaps)
    yield _must("checkpoints that went backwards", verdict.steps_back)
    if verdict.births:
        tested = f"must be 0; {verdict.keys_over_births} keys went on in one of {verdict.births} new partitions"
        yield _must("records before an earlier one of their key", verdict.out_of_order, tested)
        yield _must("partitions handled before their parents were done", verdict.early)
    yield "from the kill to the next owner's first record", *_recovery(verdict), ""
    gap = f"{max(verdict.gaps_s):.2f} s" if verdict.gaps_s else "-"
    yield "hand-off gap", gap, f"the longest of {len(verdict.gaps_s)} orderly moves", ""


def _must(name: str, faults: tuple[str, ...], note: str = "must be 0") -> tuple[str, str, str, str]:
    return name, str(len(faults)), note, "red" if faults else "green"


def _recovery(verdict: Verdict) -> tuple[str, str]:
    """Return the worst time, and the median with how many partitions it is of."""
    seconds = verdict.recovery_s
    never = [each.partition for each in verdict.recoveries if each.seconds is None]
    note = f"; never: {', '.join(never)}" if never else ""
    if not seconds:
        return "-", f"of {count_of(len(verdict.recoveries), 'partition')}{note}"
    return (
        f"{max(seconds):.2f} s",
        f"the worst of {count_of(len(seconds), 'partition')}; median {median(seconds):.2f} s{note}",
    )
