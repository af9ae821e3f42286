"""
What a host tells of its singletons. One frozen event each; passed on by `processor_host.events`.

Knows nothing of logs or metrics, which are made from these. `singleton` is its name, which is that of its lock.
"""

from __future__ import annotations

from dataclasses import dataclass

from partitions.events import Event

__all__ = ["SingletonEnded", "SingletonFailed", "SingletonStarted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SingletonStarted(Event):
    """A singleton runs on this host, and on no other one, under this fencing token."""

    singleton: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SingletonEnded(Event):
    """
    A singleton has ended on this host, and its lock was released or lost.

    `reason`: "stopped" (the host drains), "lock lost" (also with its session), "returned" or "failed".
    """

    singleton: str
    token: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SingletonFailed(Event):
    """A singleton raised, or its lock could not be acquired; this host contends for it again after `pause_s`."""

    singleton: str
    token: int
    """Of its last term here; 0 before the first."""
    error: str
    traceback: str
    attempt: int
    """Ends of it in a row that came soon after its start."""
    pause_s: float
