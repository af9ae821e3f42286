"""
One look at the play: the store's items as a stranger reads them, and what the processes have written so far.

Knows no terminal and decides nothing. The store is read as `processor-host status --watch` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partitions.clocks import BootClock
from partitions.errors import StoreUnavailable
from partitions.liveness import LiveView
from partitions.stores.base import Store
from processor_host.cli.status import read_status
from processor_host.demo.hosts import Child
from processor_host.demo.ledger import Ledger
from processor_host.errors import UserError
from processor_host.status import HostRow, Status

__all__ = ["HostLook", "Look", "PartitionLook", "Scene"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLook:
    """One host."""

    name: str
    pid: int
    state: str
    """"starting", "alive", "silent" (its beats have stopped), "draining", "killed" or "ended"."""
    owned: int
    beat_age_s: float | None
    """For how long its beat has not moved; None where it has no session."""
    rate: float
    """Records a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLook:
    """One partition."""

    partition: str
    state: str
    """As `processor_host.status.State`."""
    host: str | None
    """Its owner."""
    token: int
    lag_s: float | None
    rate: float
    is_handled: bool
    """Whether a record was handled under this very token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The play at one moment."""

    elapsed_s: float
    produced: int
    handled: int
    missing: int
    repeats: int
    hosts: tuple[HostLook, ...]
    partitions: tuple[PartitionLook, ...]

    @property
    def going_on(self) -> tuple[PartitionLook, ...]:
        """The partitions that were not read to their ends."""
        return tuple(each for each in self.partitions if each.state != "ended")

    def of(self, host: str) -> tuple[PartitionLook, ...]:
        """Return the partitions that a host owns."""
        return tuple(each for each in self.partitions if each.host == host)

    def is_settled(self, hosts: Sequence[str]) -> bool:
        """Say whether these hosts share all partitions evenly, and each is being handled by its owner."""
        counts = [len(self.of(host)) for host in hosts]
        return (
            bool(self.going_on)
            and all(each.state == "owned" and each.is_handled for each in self.going_on)
            and sum(counts) == len(self.going_on)
            and max(counts) - min(counts) <= 1
        )

    def has_gone_over(self, parents: Sequence[str], children: Sequence[str]) -> bool:
        """Say whether the parents were read to their ends, and each of their children is being handled."""
        states = {each.partition: each for each in self.partitions}
        return all(name in states and states[name].state == "ended" for name in parents) and all(
            name in states and states[name].is_handled for name in children
        )


class Scene:
    """
    Looks again and again.

    Attributes:
        hosts: The hosts that were started, in their order; the play adds to them.
        killed: The names of those that were killed.
    """

    def __init__(self, store: Store, group: str, ledger: Ledger, clock: BootClock, *, began_s: float) -> None:
        """Look at a group in an open store, in a play that began at `began_s` of the clock."""
        self.hosts: list[Child] = []
        self.killed: set[str] = set()
        self._store = store
        self._group = group
        self._ledger = ledger
        self._clock = clock
        self._began_s = began_s
        self._view: LiveView | None = LiveView.empty()
        self._status: Status | None = None

    async def look(self) -> Look:
        """
        Read everything anew.

        Raises:
            JournalError: a line cannot be read.
        """
        await self._read_store()
        self._ledger.read()
        now_s = self._clock.now_s()
        by_partition, by_pid = self._ledger.rates(now_s)
        return Look(
            elapsed_s=now_s - self._began_s,
            produced=self._ledger.produced,
            handled=self._ledger.handled,
            missing=self._ledger.missing,
            repeats=self._ledger.repeats,
            hosts=tuple(self._host(child, by_pid) for child in self.hosts),
            partitions=self._partitions(by_partition),
        )

    async def _read_store(self) -> None:
        try:
            self._status, self._view = await read_status(
                self._store, self._group, view=self._view, now_s=self._clock.now_s
            )
        except StoreUnavailable:
            # Busy for a moment: what was seen last still stands.
            return
        except UserError:
            # Before the first host has set the group up.
            self._status = None

    def _host(self, child: Child, rates: Mapping[int, float]) -> HostLook:
        rows = () if self._status is None else self._status.hosts
        row = next((row for row in rows if row.host_id == child.name), None)
        return HostLook(
            name=child.name,
            pid=child.pid,
            state="killed" if child.name in self.killed else _state(child, row),
            owned=0 if row is None else row.owned,
            beat_age_s=None if row is None else row.unchanged_s,
            rate=rates.get(child.pid, 0.0),
        )

    def _partitions(self, rates: Mapping[str, float]) -> tuple[PartitionLook, ...]:
        return tuple(
            PartitionLook(
                partition=row.partition,
                state=row.state,
                host=row.host,
                token=row.token,
                lag_s=self._ledger.lag_s(row.partition),
                rate=rates.get(row.partition, 0.0),
                is_handled=self._ledger.tokens[row.partition] == row.token,
            )
            for row in (() if self._status is None else self._status.partitions)
        )


def _state(child: Child, row: HostRow | None) -> str:
    if child.status is not None:
        return "ended"
    if row is None:
        return "draining" if child.is_told else "starting"
    if row.alive is False:
        return "silent"
    return "draining" if row.draining or child.is_told else "alive"
