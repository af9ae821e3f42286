"""
The event loop on virtual time.

It knows nothing of hosts, stores or networks.

Theory of operation. While a callback is ready, time stands still; when none is, time jumps to the next timer. Timers of
one instant fire in the order in which they were set. The loop asks `Places` for each callback, once there is a reason
to, whether its machine may run it.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from .faults import Deadlock, Livelock, RealTimeExceeded, VirtualTimeError, chain_of, label
from .numbered import VirtualTask, anyio_on_virtual_time, refuse_io, refuse_threads
from .places import GRAVEYARD, PLACE, AnyHandle, Places, ReadyHandle, Timer, place_of

__all__ = ["START_S", "VirtualTimeLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_S = 1000.0
"""`loop.time()` of a new loop. Not 0, so that a time that was never set is not taken for an early one."""

CLEAN_UP_REAL_S = 5.0  # Granted to clean-up after a run has exceeded its real time.
CANCELLED_TIMERS_MIN = 100  # As in asyncio: with fewer, sweeping the heap costs more than it saves.
TASKS_SWEPT_MIN = 64


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """
    A loop that jumps to the next timer when nothing is ready. Threads, sockets and processes are refused.

    It goes wherever a loop factory is taken: `asyncio.Runner(loop_factory=VirtualTimeLoop)`, anyio's
    `("asyncio", {"loop_factory": VirtualTimeLoop})`. `run_virtual` is the short way.

    Args:
        real_time_limit_s: Real seconds, from now, after which a run ends with `RealTimeExceeded`; None: no limit.
        steps_per_instant_max: Callbacks at one virtual instant before `Livelock`.
        trace: Keep a `digest` of what ran, when and where; costs a third of the speed.

    Raises:
        Deadlock, Livelock, RealTimeExceeded: From whatever runs the loop, `run_until_complete` for instance.
    """

    _ready: deque[AnyHandle]
    _closed: bool
    _stopping: bool
    _timer_cancelled_count: int
    _asyncgens: weakref.WeakSet[AsyncGenerator[Any, Any]]
    _add_reader: Callable[..., object]
    _add_writer: Callable[..., object]

    def __init__(
        self, *, real_time_limit_s: float | None = 60.0, steps_per_instant_max: int = 200_000, trace: bool = False
    ) -> None:
        super().__init__()
        self.steps = 0
        """Callbacks that have run."""
        self.places = Places()
        """For those who build on this loop; `freeze`, `thaw` and `kill` are below."""
        self._now_s = START_S
        self._numbers = 0
        self._timers: list[tuple[float, int, Timer]] = []
        # Strong references: a task that nothing else knows must not end at a moment of the garbage collector's.
        self._tasks: list[VirtualTask[Any]] = []
        self._tasks_sweep_at = TASKS_SWEPT_MIN
        self._generators: dict[str, weakref.WeakSet[AsyncGenerator[Any, Any]]] = {}
        self._errors: list[BaseException] = []
        self._steps_at_jump = 0
        self._steps_per_instant_max = steps_per_instant_max
        self._real_time_limit_s = math.inf if real_time_limit_s is None else real_time_limit_s
        self._real_deadline_s = time.monotonic() + self._real_time_limit_s
        self._thread = threading.get_ident()
        self._trace = hashlib.sha256() if trace else None
        self._inspects = trace
        self._add_reader = self._add_writer = refuse_io
        self.set_exception_handler(lambda _, context: self.keep_error(context))

    # What happened.

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    @property
    def digest(self) -> str:
        """SHA-256 over time, place and name of every callback that has run; equal for equal runs."""
        if self._trace is None:
            raise ValueError("this loop keeps no digest; make it with trace=True")
        return self._trace.hexdigest()

    @property
    def world_errors(self) -> tuple[BaseException, ...]:
        """Errors that nobody has received so far, of tasks and of callbacks. Reading does not clear them."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and task._log_traceback and (error := task.exception()):
                self._errors.append(error)
        return tuple(self._errors)

    def keep_error(self, context: dict[str, Any]) -> None:
        """Add to `world_errors` what asyncio's exception handler is called with."""
        self._errors.append(context.get("exception") or VirtualTimeError(context["message"]))

    def pending_tasks(self) -> list[VirtualTask[Any]]:
        """Tasks that have not ended, in the order they were started; those of dead places are none any more."""
        return [task for task in self._tasks if not task.done()]

    def whereabouts(self) -> tuple[str, ...]:
        """For each pending task its name and the chain of coroutines down to the await where it is."""
        return tuple(f"{task.get_name()} ({chain_of(task)})" for task in self.pending_tasks())

    def next_number(self) -> int:
        """A number that nothing else in this loop has; every loop counts from 1."""
        self._numbers = number = self._numbers + 1
        return number

    # Places.

    def freeze(self, place: str) -> None:
        """
        Stop a machine as SIGSTOP does: from the next callback on, its code waits for `thaw`; timers that strike, too.

        Raises:
            ValueError: Nothing ever ran in `place`, it is dead, frozen already, or the place of the running code.
        """
        self.places.freeze(place)
        self._inspects = True

    def thaw(self, place: str) -> None:
        """
        Let a machine go on as SIGCONT does: what was set aside runs in its order, before anything newer of that place.

        Raises:
            ValueError: `place` is not frozen.
        """
        aside = self.places.thaw(place)
        newer = [handle for handle in self._ready if place_of(handle) == place]
        others = [handle for handle in self._ready if place_of(handle) != place]
        # Never shorter than before: the loop goes through this queue by count.
        self._ready.clear()
        self._ready.extend(others + aside + newer)
        self._inspects = self._trace is not None or not self.places.all_run

    def kill(self, place: str) -> None:
        """
        End a machine as SIGKILL does, running or frozen: none of its code runs again, no `finally` block either.

        Its tasks never end, so whoever awaits one must do so by `result_of`. Its name is not used again. What it left
        stays in memory until the process ends.

        Raises:
            ValueError: Nothing ever ran in `place`, it is dead, or the place of the running code.
        """
        self.places.kill(place)
        self._inspects = True
        for task in [task for task in self._tasks if task.context.get(PLACE) == place]:
            # Else `asyncio.Runner`, when it closes, cancels the task and waits for it.
            asyncio.tasks._unregister_task(task)
            self._tasks.remove(task)
            GRAVEYARD.append(task)
        for generator in self._generators.pop(place, ()):
            # Else `shutdown_asyncgens` closes it.
            self._asyncgens.discard(generator)
            GRAVEYARD.append(generator)
        for _, _, timer in self._timers:
            if place_of(timer) == place:
                GRAVEYARD.append((timer._callback, timer._args))
                timer.cancel()

    # asyncio's interface.

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As in asyncio."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = ReadyHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`, for signal handlers and finalizers; other threads are refused."""
        if threading.get_ident() != self._thread:
            refuse_threads()
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As in asyncio, but timers of one instant fire in the order they were set, and one at infinity never."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if math.isnan(when):
            raise ValueError("a timer is set for nan; expected a time on this loop's clock")
        timer = Timer(when, callback, args, self, context)
        timer._scheduled = True
        heapq.heappush(self._timers, (when, self.next_number(), timer))
        return timer

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> VirtualTask[T]:
        """As in asyncio; ValueError where the context's place is dead."""
        context = copy_context() if context is None else context
        try:
            self.places.check_not_dead(context.get(PLACE))
        except ValueError:
            coro.close()
            raise
        task = VirtualTask[T](coro, loop=self, name=name, context=context)
        if len(self._tasks) >= self._tasks_sweep_at:
            # One with an error that nobody received stays, for `world_errors`.
            self._tasks = [task for task in self._tasks if not task.done() or task._log_traceback]
            self._tasks_sweep_at = 2 * len(self._tasks) + TASKS_SWEPT_MIN
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> NoReturn:
        """Refused: a thread takes real time, in which virtual time runs away."""
        refuse_threads()

    def run_forever(self) -> None:
        """As in asyncio; meanwhile anyio's cancel scopes are numbered and its threads refused."""
        with anyio_on_virtual_time():
            super().run_forever()

    def close(self) -> None:
        """
        As in asyncio.

        Raises:
            BaseExceptionGroup: There were errors that nobody received; the loop is closed all the same.
        """
        was_closed = self.is_closed()
        super().close()
        if not was_closed:
            errors = self.world_errors
            self._timers.clear()
            self._tasks.clear()
            self._errors.clear()
            if errors:
                raise BaseExceptionGroup("errors in the virtual world that nobody received", errors)

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:
            self._jump()
        while timers and timers[0][0] <= self._now_s:
            ready.append(self._pop_timer())
        # As in asyncio, only what is ready by now: what this makes ready comes after timers that are due by then.
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled or (self._inspects and not self._may_run(handle)):
                continue
            self.steps += 1
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                # Containment boundary, as in asyncio: a callback that fails does not take the loop with it.
                message = f"exception in callback {label(handle)}"
                self.call_exception_handler({"message": message, "exception": error, "handle": handle})
        if (steps := self.steps - self._steps_at_jump) > self._steps_per_instant_max:
            self._steps_at_jump = self.steps
            names = dict.fromkeys(label(handle) for handle in ready if not handle._cancelled)
            raise Livelock(at_s=self._now_s, steps=steps, tasks=tuple(names))

    def _may_run(self, handle: AnyHandle) -> bool:
        may_run = self.places.may_run(handle)
        if may_run and self._trace is not None:
            self._trace.update(f"{self._now_s!r} {place_of(handle)} {label(handle)}\n".encode())
        return may_run

    def _jump(self) -> None:
        timers = self._timers
        if time.monotonic() > self._real_deadline_s:
            self._real_deadline_s = time.monotonic() + CLEAN_UP_REAL_S
            raise RealTimeExceeded(at_s=self._now_s, limit_s=self._real_time_limit_s, tasks=self.whereabouts())
        if self._timer_cancelled_count > max(CANCELLED_TIMERS_MIN, len(timers) // 2):
            # Time-outs that did not strike fill the heap otherwise.
            timers[:] = [entry for entry in timers if not entry[2]._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        # Before the head is looked at: time would stop at moments at which nothing is due.
        while timers and timers[0][2]._cancelled:
            self._pop_timer()
        if not timers or timers[0][0] == math.inf:
            raise Deadlock(at_s=self._now_s, tasks=self.whereabouts(), frozen=self.places.frozen)
        if timers[0][0] > self._now_s:
            self._now_s = timers[0][0]
            self._steps_at_jump = self.steps

    def _pop_timer(self) -> Timer:
        timer = heapq.heappop(self._timers)[2]
        timer._scheduled = False
        self._timer_cancelled_count -= timer._cancelled
        return timer

    def _asyncgen_firstiter_hook(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._asyncgens.add(generator)
        if (place := PLACE.get()) is not None:
            self._generators.setdefault(place, weakref.WeakSet()).add(generator)
