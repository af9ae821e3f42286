"""
What a journal says of single records: when the handling of each began and ended, and whether it was cut short.

Pure; judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from processor_host.demo.lines import Act, Line

__all__ = ["Handling", "handlings_of", "text_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """One handling of one record, whole or cut short."""

    partition: str
    token: int
    pid: int
    position: str
    start_s: float
    end_s: float
    """Of one that was cut short by the death of its process: the process' last line."""
    is_ended: bool

    @property
    def place(self) -> tuple[str, str]:
        """Partition and position."""
        return self.partition, self.position


def handlings_of(lines: Sequence[Line]) -> Iterator[Handling]:
    """
    Yield the handlings that a process has written down.

    Args:
        lines: Its journal, in the order in which it was written.

    Raises:
        ValueError: it contradicts itself.
    """
    running: dict[tuple[str, int], Line] = {}
    for line in lines:
        term = line.partition, line.token
        if line.act is Act.STARTED:
            if term in running:
                raise ValueError(f"process {line.pid} began {_named(line)} before {running[term].position!r} was over")
            running[term] = line
        elif line.act in (Act.ENDED, Act.CUT):
            began = running.pop(term, None)
            if began is None or began.position != line.position:
                raise ValueError(f"process {line.pid} ended {_named(line)}, which it had not begun")
            yield _of(began, line.at_s, is_ended=line.act is Act.ENDED)
    for began in running.values():
        yield _of(began, lines[-1].at_s, is_ended=False)


def _of(began: Line, end_s: float, *, is_ended: bool) -> Handling:
    return Handling(
        partition=began.partition,
        token=began.token,
        pid=began.pid,
        position=began.position,
        start_s=began.at_s,
        end_s=end_s,
        is_ended=is_ended,
    )


def text_of(partition: str, position: str) -> str:
    """Return how a record is named in a fault."""
    return f"{partition} at {position!r}"


def _named(line: Line) -> str:
    return f"{text_of(line.partition, line.position)} under token {line.token}"
