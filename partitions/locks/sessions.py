"""
A session for locks outside a host: one life after the other, for as long as the body of an `async with` runs.

Uses a store and locks; knows no plan. Its capacity is 0, so no plan gives it a partition where hosts of the same group
share them. Losing a life is final (DESIGN rule 4): all locks that end with a session have ended, and the next life has
a new id, as a host's has.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from random import Random
from types import MappingProxyType, TracebackType
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from partitions.beats import Pace
from partitions.clocks import BootClock, Clock
from partitions.errors import StoreError, StoreMisconfigured, StoreUnavailable
from partitions.events import OnEvent
from partitions.items import Scalar
from partitions.locks.checks import CALLS, check_id, check_store, check_times
from partitions.locks.contending import POLL_S, Locks
from partitions.retries import Waits
from partitions.sessions import Session as Life
from partitions.stores.base import Store

__all__ = ["DURATION_S", "Session"]

DURATION_S: Final = 30.0
"""A lock is taken over about so long after its holder died; a shorter one needs more beats."""

BEATS: Final = 3
"""Beats in a duration."""

PAUSE_MAX_S: Final = 30.0
"""Where the doubling of the pauses ends between two tries at a store that begins no session."""

_NOT_ID: Final = re.compile(r"[^A-Za-z0-9_.-]+")


class Session(Locks):
    """
    Locks of a group in a store, outside a host.

        async with Session(store, group="reports", duration_s=30) as session:
            async with await session.acquire("nightly") as lease:
                ...

    The store is open, and stays so: many sessions may use it. All locks end with the body, but those that do not
    expire.
    """

    def __init__(
        self,
        store: Store,
        *,
        group: str,
        duration_s: float = DURATION_S,
        host_id: str | None = None,
        poll_s: float = POLL_S,
        call_timeout_s: float | None = None,
        extra: Mapping[str, Scalar] = MappingProxyType({}),
        clock: Clock | None = None,
        random: Random | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        """
        Name a session; nothing is sent before `async with`.

        Args:
            store: An open store.
            group: The group: locks of the same name in it are the same lock. An id, as for hosts.
            duration_s: How long the session lives after a beat, 0.3 or more: about so long after a crash others have
                its locks. Three beats are sent in each. Whoever waits goes by the duration of the one that holds.
            host_id: A name that survives a restart, of which a lock that does not expire is. If None, the machine's
                (what it may not hold becomes a hyphen), and locks that do not expire are refused. Two processes may
                share one: they hold no lock together, and each may release what the other left behind.
            poll_s: How long one that waits for a lock waits between two looks, on average. The same for all contenders.
            call_timeout_s: How long one call of the store may take; a sixth of the duration if None, which is the most.
            extra: Fields for people, in the items of the session and of its locks.
            clock: One that counts suspend if None.
            random: Makes the session ids and spreads the waits; one of its own if None.
            on_event: Gets every event, as a frozen object.

        Raises:
            TypeError: something of another type, as the URL of a store.
            ValueError: a duration, a time-out or a name that cannot work.
        """
        check_store(store)
        check_id("group", group)
        if host_id is not None:
            check_id("host_id", host_id)
        check_times(duration_s=duration_s, poll_s=poll_s, call_timeout_s=call_timeout_s)
        self._random = random or Random()
        self._about = {"pid": os.getpid(), "host_name": socket.gethostname(), **extra}
        super().__init__(
            store=store,
            group=group,
            host_id=_machine() if host_id is None else host_id,
            is_named=host_id is not None,
            clock=clock or BootClock(),
            random=self._random,
            pace=Pace(
                duration_s=duration_s,
                # Nobody asks for what no plan has given; an item needs one that is not shorter than the duration.
                handoff_s=duration_s,
                beat_interval_s=duration_s / BEATS,
                call_timeout_s=duration_s / CALLS if call_timeout_s is None else call_timeout_s,
            ),
            poll_s=poll_s,
            extra=self._about,
            on_event=on_event,
        )
        self._unusable = "was not entered; use 'async with Session(…) as session:'"
        self._tasks: TaskGroup | None = None
        self._is_leaving = False
        self._leaving: Life | None = None
        """The life that the end of the body leaves."""
        self._pauses = Waits(first_s=poll_s, most_s=PAUSE_MAX_S)

    async def __aenter__(self) -> Session:
        """
        Begin the first life.

        Raises:
            StoreUnavailable: the store has not answered for a whole duration.
            StoreMisconfigured: it is not there, or denies its use.
            RuntimeError: it was entered before.
        """
        if self._tasks is not None:
            raise RuntimeError("a session is entered once; make another one")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            await self._tasks.start(self._live, name=f"session of {self.host_id}")
        except BaseException as error:  # Whatever it was, the group is left before it goes on.
            await self._end(type(error), error, error.__traceback__)
            raise
        self._unusable = None
        self._tasks.start_soon(self.watch, name=f"locks of {self.host_id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """End every lock here, then leave, so that others need not wait for the session's end."""
        self._is_leaving = True
        self._leaving = life = self._life
        self.close()
        if life is not None:
            await life.leave()
        return await self._end(kind, error, traceback)

    async def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None  # Set by __aenter__.
        self._tasks.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            # A group wraps errors; whoever writes `except` around a session knows nothing of its tasks.
            only: BaseException = group
            while isinstance(only, BaseExceptionGroup) and len(only.exceptions) == 1:
                only = only.exceptions[0]
            if only is error:
                return False
            raise only from group

    async def _live(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Live one life after the other; the first must begin, the others are tried until they do."""
        failures = 0
        has_begun = False
        while True:
            life = self._new_life()
            wrong: StoreError | None = None
            try:
                if await life.register():
                    failures = 0
                    self.begin(life)
                    if not has_begun:
                        has_begun = True
                        task_status.started()
                    await life.run()
                else:
                    wrong = StoreUnavailable(f"group {self._group!r}: no session could be registered in time")
            except StoreMisconfigured as error:
                life.end(f"it could not be registered: {error}")
                wrong = error
            finally:
                # Its terms have ended, and others need not wait for its end; a register that was not answered, also
                # where it was cancelled, may have been applied.
                if life is not self._leaving:
                    await life.leave()
            if self._is_leaving:
                return
            if wrong is not None:
                if not has_begun:
                    raise wrong
                failures += 1
                await anyio.sleep(self._pauses.after(failures, self._random))

    def _new_life(self) -> Life:
        return Life(
            store=self._store,
            group=self._group,
            host_id=self._host_id,
            session_id=f"{self._host_id}:{self._random.getrandbits(64):016x}",
            clock=self._clock,
            random=self._random,
            pace=self._pace,
            capacity=0.0,
            extra=self._about,
            on_event=self._on_event,
        )


def _machine() -> str:
    """Return the machine's name as an id."""
    return _NOT_ID.sub("-", socket.gethostname()).strip("-.")[:100] or "host"
