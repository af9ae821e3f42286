"""
A sick host: everything that it is handed fails, while others may well be able to handle it.

The pure rule; knows no session and no clock. A host whose database is away must not sit on its partitions, and a fleet
whose database is away must not pass them round.

Theory of operation:
- A partition fails from its first failure on until something of it is done; one that was handed nothing says nothing.
- The host is sick since the moment from which everything that says something fails, and is told to the others once
  that has lasted for `sick_after_s`.
- It drains once it has been seen as sick for `TOLD_BEATS` beats and some other host is well: alive, not draining, not
  sick and able to take leases. So hosts that fall sick together see one another first, and then nobody drains.
- What was failing stays known over the drain, so a host that comes back and fails again pauses longer (the caller's).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

__all__ = ["TOLD_BEATS", "Health", "Other", "should_drain"]

TOLD_BEATS: Final = 2
"""Answered beats that showed this host as sick: every other one has then had a beat period to say the same."""

_NOTHING: Final[Mapping[str, float | None]] = MappingProxyType({})


# A factory, because Python 3.11 takes every default that cannot be hashed for a mutable one.
def _nothing() -> Mapping[str, float | None]:
    return _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the partitions of one host say."""

    failing_since_s: Mapping[str, float | None] = field(default_factory=_nothing)
    """
    Partition → since when it fails, on this host's clock; None for one that is well. One that says nothing is left out.
    """

    def failed(self, partition: str, now_s: float) -> Health:
        """Return this after a failure of a partition."""
        since_s = self.failing_since_s.get(partition)
        return self._with(partition, now_s if since_s is None else since_s)

    def succeeded(self, partition: str) -> Health:
        """Return this after something of a partition was done."""
        if partition in self.failing_since_s and self.failing_since_s[partition] is None:
            return self
        return self._with(partition, None)

    def gone(self, partition: str) -> Health:
        """Return this without a partition that left the host, or that was stopped for good."""
        left = {name: since_s for name, since_s in self.failing_since_s.items() if name != partition}
        return replace(self, failing_since_s=MappingProxyType(left))

    def sick_since_s(self) -> float | None:
        """Return since when everything fails; None where something is well, or nothing says anything."""
        latest_s: float | None = None
        for since_s in self.failing_since_s.values():
            if since_s is None:
                return None
            latest_s = since_s if latest_s is None else max(latest_s, since_s)
        return latest_s

    def is_sick(self, now_s: float, sick_after_s: float) -> bool:
        """Say whether everything has failed for `sick_after_s`."""
        since_s = self.sick_since_s()
        return since_s is not None and now_s - since_s >= sick_after_s

    def _with(self, partition: str, since_s: float | None) -> Health:
        return replace(self, failing_since_s=MappingProxyType({**self.failing_since_s, partition: since_s}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Another host of the group, as its session shows it."""

    is_alive: bool
    is_draining: bool
    is_sick: bool
    can_take: bool
    """Whether a plan may give it leases: its capacity is more than 0, and it is not full."""


def should_drain(*, told_beats: int, others: Iterable[Other]) -> bool:
    """
    Decide whether a host gives everything away because it is sick.

    Args:
        told_beats: How many beats in a row that showed it as sick were answered; 0 where it is well.
        others: The other hosts of its group.
    """
    return told_beats >= TOLD_BEATS and any(
        other.is_alive and other.can_take and not other.is_draining and not other.is_sick for other in others
    )
