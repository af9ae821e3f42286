"""
Forged journals: what three hosts would have written who share one partition as they should, and ways to spoil it.

The clean story has six records and three terms. Process 10 handles three records, has a checkpoint at the second one
and is killed during the fourth. Process 20 goes on after the checkpoint, so that the third is handled again, and hands
off after the fifth. Process 30 handles the sixth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from partitions.positions import EARLIEST
from processor_host.demo.folder import Folder
from processor_host.demo.lines import Act, Kill, Line, LineWriter, Produced
from processor_host.demo.verdict import Recovery, Verdict

__all__ = ["CLEAN", "KILL", "Journals", "a_line", "handled", "played", "the_story"]

Journals = dict[int, list[Line]]
"""By process id."""

KILL = Kill(pid=10, at_s=4.5)

CLEAN = Verdict(
    produced=6,
    handled=6,
    repeats=1,
    unfinished=1,
    lost=(),
    unknown=(),
    overlaps=(),
    steps_back=(),
    recoveries=(Recovery(partition="p0", seconds=4.0),),
    gaps_s=(1.5,),
)
"""The verdict on the story as it is."""


def a_line(act: Act, position: str, at_s: float, /, **changes: Any) -> Line:
    """A line of the partition p0, under token 1 in process 10 if nothing else is said."""
    return Line(act=act, position=position, at_s=at_s, **{"partition": "p0", "token": 1, "pid": 10, **changes})


def handled(position: str, start_s: float, end_s: float, /, **changes: Any) -> list[Line]:
    """Both lines of a record that was handled."""
    return [a_line(Act.STARTED, position, start_s, **changes), a_line(Act.ENDED, position, end_s, **changes)]


def the_story() -> Journals:
    """The clean journals."""
    second = {"token": 2, "pid": 20}
    third = {"token": 3, "pid": 30}
    return {
        10: [
            a_line(Act.OPENED, EARLIEST, 0.0),
            *handled("1", 1.0, 1.5),
            *handled("2", 2.0, 2.5),
            a_line(Act.CHECKPOINT, "2", 2.75),
            *handled("3", 3.0, 3.5),
            a_line(Act.STARTED, "4", 4.0),
        ],
        20: [
            a_line(Act.OPENED, "2", 7.5, **second),
            *handled("3", 8.0, 8.5, **second),
            *handled("4", 9.0, 9.5, **second),
            *handled("5", 10.0, 10.5, **second),
            a_line(Act.CHECKPOINT, "5", 10.75, **second),
            a_line(Act.CLOSED, "5", 11.0, reason="HANDED_OFF", **second),
        ],
        30: [
            a_line(Act.OPENED, "5", 11.25, **third),
            *handled("6", 11.5, 12.0, **third),
            a_line(Act.CLOSED, "6", 13.0, reason="HOST_STOPPING", **third),
        ],
    }


def played(path: Path, journals: Mapping[int, Sequence[Line]], *, kills: Iterable[Kill] = (KILL,)) -> Folder:
    """Write a folder as a play leaves it behind, with six records produced."""
    folder = Folder(path)
    folder.prepare()
    produced = (Produced(partition="p0", position=str(number), at_s=number / 10) for number in range(1, 7))
    files: dict[Path, Iterable[Any]] = {folder.produced: produced, folder.kills: kills}
    files |= {folder.journals / f"host-{pid}.jsonl": lines for pid, lines in journals.items()}
    for file, rows in files.items():
        writer = LineWriter(file)
        writer.write(*rows)
        writer.close()
    return folder
