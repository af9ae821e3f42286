"""
Stuck partitions: those of one host that make no progress for `stall_limit_s` while records wait.

Knows no pump and no page; it is given the host's events, and a way to pause a partition. What counts as progress is
`processor_host.progress`'s to say.

Theory of operation:
- An episode begins once records have waited for the limit, and ends with the next move. It is told twice: as it begins
  and as the partition goes on. One that ends with its lease is told no more; the next owner counts anew.
- Time in which the host itself stood still does not count, as where something blocked its event loop: it shows as a
  look that comes late. Everything on the host waited then, and what goes on is not stuck.
- Where `pause_stuck` is set, the partition is paused in the store, so that every host leaves it alone (DESIGN rule 15),
  and its owner drains it. That takes a partition out of work until a person resumes it. So it must be stuck by itself:
  where nothing else on this host moves either, the host or what its processors call is to blame, and the partition
  is only named. Looked at again each time: the evidence may come later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import anyio

from partitions.clocks import Clock
from partitions.events import Event, LeaseEnded, OnEvent, tell
from processor_host.events import PartitionMoved, PartitionStuck
from processor_host.progress import STALL_LIMIT_S, Progress, is_alone, next_progress, stalled_s

__all__ = ["PauseStuck", "Stuck"]

LOOKS: Final = 12
"""How often it looks in the time of the limit: a partition is named a twelfth of the limit late at most."""
LOOK_MAX_S: Final = 5.0
"""The longest time between two looks, however long the limit is."""

PauseStuck = Callable[[str, int, str], Coroutine[Any, Any, None]]
"""Pauses a partition under a fencing token in the store, with a reason for people; nothing once that term is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Episode:
    token: int
    since_s: float
    """Since when its records wait, on the host's clock."""


class Stuck:
    """
    Keeps the progress of each partition of one host, and tells of those that are stuck.

    Args:
        host_id: This host, for the reason of a pause.
        clock: The host's clock.
        on_event: Is told of `PartitionStuck` and `PartitionMoved`.
        limit_s: From when on a partition counts as stuck.
        pauses: Whether those that are stuck by themselves are paused.
    """

    def __init__(
        self,
        *,
        host_id: str,
        clock: Clock,
        on_event: OnEvent | None = None,
        limit_s: float = STALL_LIMIT_S,
        pauses: bool = False,
    ) -> None:
        self.limit_s = limit_s
        self._host_id = host_id
        self._clock = clock
        self._on_event = on_event
        self._pauses = pauses
        self._pause: PauseStuck | None = None
        self._progress: dict[str, Progress] = {}
        self._episodes: dict[str, _Episode] = {}
        self._paused: dict[str, int] = {}
        """Partition → token of the term in which it was paused, or is about to be."""
        # Events of the session may come from its thread.
        self._lock = threading.Lock()

    def follow(self, pause: PauseStuck) -> None:
        """Pause partitions by this from now on."""
        self._pause = pause

    def on_event(self, event: Event) -> None:
        """Note what a host tells; what means nothing here is ignored."""
        partition = getattr(event, "partition", None)
        if not isinstance(partition, str):
            return
        with self._lock:
            after = next_progress(self._progress.get(partition), event, self._clock.now_s())
            if after is not None:
                self._progress[partition] = after
            elif isinstance(event, LeaseEnded) and self._progress.pop(partition, None) is not None:
                self._episodes.pop(partition, None)
                self._paused.pop(partition, None)

    def progress(self) -> Mapping[str, Progress]:
        """Return what is known of each partition that this host holds, as of this moment."""
        with self._lock:
            return MappingProxyType(dict(self._progress))

    def named(self) -> list[Mapping[str, Any]]:
        """Return the partitions that are stuck, the longest first, for a person."""
        now_s = self._clock.now_s()
        found = [
            (stuck_s, partition, progress)
            for partition, progress in self.progress().items()
            if (stuck_s := stalled_s(progress, now_s, self.limit_s)) is not None
        ]
        return [
            {
                "partition": partition,
                "stalled_s": round(stuck_s, 1),
                "lag_s": progress.lag_s,
                "stage": progress.stage,
                "failed_in": progress.failed_in,
            }
            for stuck_s, partition, progress in sorted(found, key=lambda each: (-each[0], each[1]))
        ]

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        every_s = min(self.limit_s / LOOKS, LOOK_MAX_S)
        async with anyio.create_task_group() as tasks:
            while True:
                before_s = self._clock.now_s()
                await anyio.sleep(every_s)
                late_s = self._clock.now_s() - before_s - every_s
                if late_s > every_s:
                    self._leave_out(late_s)
                for event in self._look():
                    tell(self._on_event, event)
                for pause, name in self._to_pause():
                    tasks.start_soon(pause, name=name)

    def _leave_out(self, stood_s: float) -> None:
        """Let everything that waits have waited for so much less."""
        now_s = self._clock.now_s()
        with self._lock:
            for partition, progress in self._progress.items():
                if progress.waits_since_s is None:
                    continue
                # What an event of this very moment has let wait, before this look, does not wait in the future.
                since_s = min(now_s, progress.waits_since_s + stood_s)
                episode = self._episodes.get(partition)
                if episode is not None and episode.since_s == progress.waits_since_s:
                    self._episodes[partition] = replace(episode, since_s=since_s)
                self._progress[partition] = replace(progress, waits_since_s=since_s)

    def _look(self) -> list[Event]:
        """Note which episodes have begun and ended since the last look, and return what is to be told of them."""
        events: list[Event] = []
        now_s = self._clock.now_s()
        with self._lock:
            for partition, progress in self._progress.items():
                before = self._episodes.get(partition)
                if before is not None and before.since_s == progress.waits_since_s:
                    continue
                if before is not None:
                    del self._episodes[partition]
                    moved_s = now_s if progress.moved_s is None else progress.moved_s
                    stuck_s = max(0.0, moved_s - before.since_s)
                    events.append(PartitionMoved(partition=partition, token=progress.token, stuck_s=stuck_s))
                waited_s = stalled_s(progress, now_s, self.limit_s)
                if waited_s is not None and progress.waits_since_s is not None:
                    self._episodes[partition] = _Episode(token=progress.token, since_s=progress.waits_since_s)
                    events.append(
                        PartitionStuck(
                            partition=partition,
                            token=progress.token,
                            stuck_s=waited_s,
                            stage=progress.stage,
                            is_failing=progress.failed_in is not None,
                            lag_s=progress.lag_s,
                        )
                    )
        return events

    def _to_pause(self) -> list[tuple[Callable[[], Coroutine[Any, Any, None]], str]]:
        """Return how to pause each partition that is to be, and the name of the task; each comes once in its term."""
        found: list[tuple[Callable[[], Coroutine[Any, Any, None]], str]] = []
        if self._pause is None or not self._pauses:
            return found
        now_s = self._clock.now_s()
        with self._lock:
            for partition, episode in self._episodes.items():
                if self._paused.get(partition) == episode.token or not is_alone(partition, self._progress):
                    continue
                self._paused[partition] = episode.token
                progress = self._progress[partition]
                how = "failing in" if progress.failed_in is not None else "waiting in"
                reason = (
                    f"stuck: nothing was done for {now_s - episode.since_s:.0f} s while records wait, {how} "
                    f"{progress.stage} on host {self._host_id} (stall_limit_s={self.limit_s:g})"
                )
                pause = partial(self._pause, partition, episode.token, reason)
                found.append((pause, f"pause {partition}@{episode.token}"))
        return found
