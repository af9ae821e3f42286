"""
The folder of one play: where each process finds and leaves its files, and the verdict on what lies in it at the end.

Knows no process. A folder that was kept (`--keep`) can be judged again at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from processor_host.demo.lines import Birth, Kill, Line, Produced, read_all
from processor_host.demo.verdict import Verdict, judge

__all__ = ["Folder"]


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of a play."""

    path: Path

    @property
    def stream(self) -> Path:
        """The local stream."""
        return self.path / "stream.db"

    @property
    def leases(self) -> Path:
        """The lease file."""
        return self.path / "leases.db"

    @property
    def journals(self) -> Path:
        """The folder of the hosts' journals, one file for each process."""
        return self.path / "journals"

    @property
    def logs(self) -> Path:
        """The folder of what the processes print."""
        return self.path / "logs"

    @property
    def produced(self) -> Path:
        """The producer's list."""
        return self.path / "produced.jsonl"

    @property
    def kills(self) -> Path:
        """Whom the demo killed, and when."""
        return self.path / "kills.jsonl"

    @property
    def births(self) -> Path:
        """Which partitions are born of which."""
        return self.path / "births.jsonl"

    def prepare(self) -> None:
        """Make what its writers expect to be there, so that whoever writes nothing has an empty file."""
        self.journals.mkdir()
        self.logs.mkdir()
        self.produced.touch()
        self.kills.touch()
        self.births.touch()

    def judge(self) -> Verdict:
        """
        Judge what the processes have written, when all of them are gone.

        Raises:
            JournalError: a line cannot be read.
            ValueError: a journal contradicts itself.
            OSError: a file cannot be read.
        """
        return judge(
            [read_all(path, Line) for path in sorted(self.journals.glob("*.jsonl"))],
            read_all(self.produced, Produced),
            read_all(self.kills, Kill),
            read_all(self.births, Birth),
        )
