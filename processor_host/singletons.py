"""
The singletons of a host: coroutines of which each runs on one host of the group alone, as the leader of its lock.

Knows no plan and no partition. Each has one task for as long as the host runs, whatever sessions come and go, so that
never two of one name run on one host, however long one takes to end.

- The end of a session ends the terms under it: the coroutine is cancelled, and contends again under the next session.
- A drain cancels what runs and has the locks released; nothing contends until the next session begins.
- One that raises, returns or releases its lease has ended its term: the lock is free for the other hosts, and this one
  contends again after a pause, which grows while such ends come soon after one another.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any, Final

import anyio

from partitions.clocks import Clock, sleep_until
from partitions.errors import LeaseLost, StoreError
from partitions.events import OnEvent, tell
from partitions.locks.checks import check_name
from partitions.locks.events import LockEnd
from partitions.locks.leaders import Contender, Leader
from partitions.locks.leases import LockLease
from partitions.retries import Waits
from processor_host.errors import SettingsError, only_error
from processor_host.events import SingletonEnded, SingletonFailed, SingletonStarted
from processor_host.user_code import UserFailed, call_user, text_of

__all__ = ["Singleton", "Singletons", "check_singletons"]

Singleton = Callable[..., Awaitable[object]]
"""An `async def` that takes nothing, its lease, or its lease and what the host's `lifespan` yielded."""

ARGUMENTS_MAX: Final = 2


class Singletons:
    """Runs the singletons of one host."""

    def __init__(
        self,
        given: Mapping[str, Singleton],
        *,
        contender: Contender,
        resources: Any,
        clock: Clock,
        random: Random,
        pauses: Waits,
        on_event: OnEvent | None,
    ) -> None:
        """
        Put them together; nothing runs before `run` and `begin`.

        Args:
            given: By name; checked by `check_singletons`.
            contender: Acquires locks under whatever session the host has at the moment.
            resources: What a singleton may get beside its lease.
            clock: The host's.
            random: Spreads the pauses.
            pauses: Those after a singleton that raised or returned.
            on_event: Gets what becomes of them.
        """
        self._given = dict(given)
        self._resources = resources
        self._clock = clock
        self._random = random
        self._pauses = pauses
        self._on_event = on_event
        self._leaders = {name: Leader(contender, name) for name in given}
        self._scopes: set[anyio.CancelScope] = set()
        self._may_run = False
        self._is_closed = False
        self._changed = anyio.Event()
        self._running: set[str] = set()

    @property
    def leaders(self) -> Mapping[str, Leader]:
        """By name, this host's contender for each, which knows who runs it."""
        return MappingProxyType(self._leaders)

    @property
    def running(self) -> tuple[str, ...]:
        """The singletons that run here, or whose lock is being released."""
        return tuple(sorted(self._running))

    async def run(self) -> None:
        """Run until `close`, and until what runs then has ended."""
        async with anyio.create_task_group() as tasks:
            for name, given in self._given.items():
                tasks.start_soon(self._live, name, given, name=f"singleton {name}")
            while not self._is_closed:
                await self._changed.wait()

    def begin(self) -> None:
        """Contend from here on: a session has begun."""
        self._may_run = True
        self._tell_change()

    def end(self) -> None:
        """Contend no more, and cancel what runs; `running` says when it has ended."""
        self._may_run = False
        for scope in tuple(self._scopes):
            scope.cancel()

    def close(self) -> None:
        """End for good."""
        self.end()
        self._is_closed = True
        self._tell_change()

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _live(self, name: str, given: Singleton) -> None:
        ends = 0
        while not self._is_closed:
            if not self._may_run:
                await self._changed.wait()
                continue
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    ends = await self._contend(name, given, ends)
                finally:
                    self._scopes.discard(scope)

    async def _contend(self, name: str, given: Singleton, ends: int) -> int:
        """
        Be the leader once, and pause where the term has ended of itself.

        Returns:
            How many terms in a row have ended so, each soon after it began.
        """
        began_s = self._clock.now_s()
        failed: UserFailed | None = None
        token = 0
        of: LockLease | None = None

        async def work(lease: LockLease) -> None:
            nonlocal began_s, token, of
            began_s, token, of = self._clock.now_s(), lease.token, lease
            self._running.add(name)
            tell(self._on_event, SingletonStarted(singleton=name, token=lease.token))
            await call_user(lease, "singleton", partial(_call, given, lease, self._resources))

        try:
            reason = "returned" if await self._leaders[name].run_once(work) else "lock lost"
        except LeaseLost:
            # Of another lease, but this term's is over too: what it raises because of that is no failure of its own.
            reason = "lock lost"
        except UserFailed as error:
            failed, reason = error, "failed"
        except StoreError as error:
            # Its lock was not to be had, or not to be looked at; the session has the patience for it.
            failed, reason = UserFailed("acquire", error), "failed"
        except anyio.get_cancelled_exc_class():
            self._ended(name, token, "stopped")
            raise
        if reason == "lock lost" and of is not None and of.end_reason is LockEnd.RELEASED:
            # It released its lease itself. Without the pause of a return, it would write to the store for ever.
            reason = "returned"
        self._ended(name, token, reason)
        if reason == "lock lost":
            return 0
        ends = 1 if self._clock.now_s() - began_s >= self._pauses.most_s else ends + 1
        pause_s = self._pauses.after(ends, self._random)
        if failed is not None:
            self._tell_failure(name, token, failed, attempt=ends, pause_s=pause_s)
        await sleep_until(self._clock, self._clock.now_s() + pause_s)
        return ends

    def _ended(self, name: str, token: int, reason: str) -> None:
        if name in self._running:
            self._running.discard(name)
            tell(self._on_event, SingletonEnded(singleton=name, token=token, reason=reason))

    def _tell_failure(self, name: str, token: int, failed: UserFailed, *, attempt: int, pause_s: float) -> None:
        tell(
            self._on_event,
            SingletonFailed(
                singleton=name,
                token=token,
                error=text_of(failed.error),
                traceback="".join(traceback.format_exception(failed.error)),
                attempt=attempt,
                pause_s=pause_s,
            ),
        )


def check_singletons(given: object) -> None:
    """
    See that each has the name of a lock and can be called.

    Raises:
        SettingsError: it is no mapping, or one has no name for a lock, is no coroutine function, or takes more than its
            lease and the resources.
    """
    if not isinstance(given, Mapping):
        raise SettingsError(f"singletons={given!r} is not a mapping; give a dict of names to async defs")
    for name, singleton in given.items():
        try:
            check_name(name)
        except (TypeError, ValueError) as error:
            raise SettingsError(f"singletons: {error}") from None
        if not callable(singleton) or not _is_async(singleton) or _positional(singleton) > ARGUMENTS_MAX:
            raise SettingsError(
                f"singletons: {name!r} is {singleton!r}; give an async def that takes nothing, its lease, or its lease "
                "and the resources of lifespan"
            )


async def _call(given: Singleton, lease: LockLease, resources: Any) -> None:
    try:
        await given(*(lease, resources)[: _positional(given)])
    except BaseExceptionGroup as group:
        # A task group of its own wraps what only tells that the lease has ended.
        if not lease.is_held() and isinstance(lost := only_error(group), LeaseLost):
            raise lost from group
        raise


def _is_async(given: Callable[..., object]) -> bool:
    """A part of one is one, and so is an object with one as its call."""
    while isinstance(given, partial):
        given = given.func
    return inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(type(given).__call__)


def _positional(given: Callable[..., object]) -> int:
    """How many arguments it must be given; those with a default are the user's own."""
    parameters = inspect.signature(given).parameters.values()
    return sum(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in parameters
    )
