"""
A contest: six processes count under one lock while some of them are killed and frozen, and what they noted of it.

Knows the journals of `contender`, and no store. A seed decides whom a fault hits, and when; each wait has a deadline.

A process may be frozen in the middle of a write to a file, which it then keeps locked: nobody can write to that until
it goes on. So every freeze is bounded, and one that kept everybody from going on is tried again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from tests.processes.locks import contender
from tests.processes.locks.contender import ORDER, contend

__all__ = ["Contest", "Entry", "Outcome"]

PROCESSES = 6
POLL_S = 0.05
GO_ON = 20
"""How far the others count while one that need not hold the lock is frozen."""
FREEZE_DURATIONS = 3
"""The longest freeze, in durations of a session: after one it is fenced, by whoever notices."""
FREEZES_MAX = 10
"""Tries to freeze who holds the lock so that another one takes it over."""

# They are forked from a process that has loaded everything they need, and does nothing else.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([contender.__name__])

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a journal."""

    pid: int
    act: str
    """"began" and "wrote", "refused", or the order that was obeyed."""
    token: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the processes noted."""

    entries: tuple[Entry, ...]
    took_s: float
    killed: int
    frozen: int
    overtaken: frozenset[int]
    """Tokens whose holder was frozen until another one had the lock and had written."""

    def of(self, act: str) -> list[Entry]:
        """Return the entries of one act, by their tokens."""
        return sorted((each for each in self.entries if each.act == act), key=lambda each: (each.token, each.value))

    @property
    def hand_overs(self) -> int:
        """Return how often another process than the one before had the next term."""
        terms = self.of("began")
        return sum(before.pid != after.pid for before, after in pairwise(terms))


class Journals:
    """
    What all processes have noted so far; each look reads what is new.

    Attributes:
        entries: In no order.
        value: The highest number that was written.
    """

    def __init__(self, folder: Path) -> None:
        self.entries: list[Entry] = []
        self.value = 0
        self._folder = folder
        self._read: dict[Path, int] = {}

    def look(self) -> None:
        """Read what is new; what follows the last line break is still being written."""
        for path in self._folder.glob("journal-*"):
            pid = int(path.name.partition("-")[2])
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                lines = file.read().rpartition(b"\n")[0]
            if lines:
                self._read[path] = self._read.get(path, 0) + len(lines) + 1
                self.entries += [_entry(pid, line) for line in lines.decode().split("\n")]
        self.value = max((each.value for each in self.entries if each.act == "wrote"), default=0)

    def tokens(self, act: str) -> set[int]:
        """Return the tokens under which something was noted."""
        return {each.token for each in self.entries if each.act == act}

    def is_overtaken(self, token: int) -> bool:
        """Say whether a later holder has written."""
        return max(self.tokens("wrote"), default=0) > token

    def has_refused(self, token: int) -> bool:
        """Say whether a write under this token was refused."""
        return token in self.tokens("refused")


class Contest:
    """
    The processes of one contest.

    Args:
        folder: Where their journals are.
        given: What each of them is told, as `contender` takes it.
        env: Environment variables of each.
        seed: Decides the faults.
        within_s: How long it may take as a whole.
    """

    def __init__(
        self, folder: Path, given: Mapping[str, Any], env: Mapping[str, str], *, seed: int, within_s: float
    ) -> None:
        self._folder = folder
        self._given = {**given, "folder": str(folder)}
        self._env = env
        self._random = Random(seed)
        self._goal = int(given["goal"])
        self._within_s = within_s
        self._until_s = 0.0
        self._journals = Journals(folder)
        self._running: list[ForkServerProcess] = []
        self._started = 0
        self._killed = 0
        self._frozen = 0
        self._overtaken: set[int] = set()

    def run(self, faults: int) -> Outcome:
        """Run to the goal; who holds the lock is killed so many times and frozen so many times, and others are too."""
        began_s = time.monotonic()
        self._until_s = began_s + self._within_s
        orders = ["kill", "freeze"] * faults
        self._random.shuffle(orders)
        marks = sorted(self._random.sample(range(self._goal // 20, self._goal * 19 // 20), len(orders)))
        try:
            for _ in range(PROCESSES):
                self._start()
            self._wait("all take part", lambda: len({each.pid for each in self._journals.entries}) == PROCESSES)
            for mark, order in zip(marks, orders, strict=True):
                self._wait(f"they come to {mark}", partial(self._has_reached, mark))
                self._hit_any()
                self._hit_holder(order)
            self._wait("all end", lambda: not any(each.is_alive() for each in self._running))
        finally:
            for process in self._running:
                # Also one that is frozen; one that has ended stays so.
                process.kill()
                process.join()
        assert {each.exitcode for each in self._running} == {0}, self._logs()
        return Outcome(
            entries=tuple(self._journals.entries),
            took_s=time.monotonic() - began_s,
            killed=self._killed,
            frozen=self._frozen,
            overtaken=frozenset(self._overtaken),
        )

    def _start(self) -> None:
        given = {**self._given, "host_id": f"c{self._started}", "seed": self._random.getrandbits(32)}
        process = FORKS.Process(target=contend, args=(given, self._env, self._folder / f"log-{self._started}"))
        process.start()
        self._running.append(process)
        self._started += 1

    def _hit_any(self) -> None:
        """Kill one, or freeze it for a moment, whoever it may be; mostly it waits for the lock."""
        process = self._random.choice(self._running)
        if self._random.random() < 0.5:
            process.kill()
            self._replace(process)
            return
        send(process, signal.SIGSTOP)
        self._thaw_once(process, partial(self._has_reached, min(self._goal, self._journals.value + GO_ON)))

    def _hit_holder(self, order: str) -> None:
        """Have whoever holds the lock kill or freeze itself between two writes."""
        for _ in range(FREEZES_MAX):
            process, token = self._obeyed(order)
            if order == "kill":
                self._replace(process)
                return
            if self._thaw_once(process, partial(self._journals.is_overtaken, token)):
                self._overtaken.add(token)
                self._wait("its late write is refused", partial(self._journals.has_refused, token))
                return
        raise AssertionError(f"{FREEZES_MAX} holders were frozen, and none was overtaken\n{self._logs()}")

    def _obeyed(self, order: str) -> tuple[ForkServerProcess, int]:
        """Give an order to whoever holds the lock, and return who has obeyed, and its token."""
        before = self._journals.tokens(order)
        new = self._folder / f"{ORDER}.new"
        new.write_text(order)
        new.rename(self._folder / ORDER)
        [token] = self._wait(f"the holder obeys: {order}", lambda: self._journals.tokens(order) - before)
        [pid] = {each.pid for each in self._journals.entries if each.token == token and each.act == order}
        return next(each for each in self._running if each.pid == pid), token

    def _thaw_once(self, process: ForkServerProcess, condition: Callable[[], bool]) -> bool:
        """Let a frozen process go on once something holds, or after the longest freeze; say whether it holds."""
        self._frozen += 1
        until_s = time.monotonic() + FREEZE_DURATIONS * float(self._given["duration_s"])
        self._wait("the freeze is over", lambda: condition() or time.monotonic() > until_s)
        send(process, signal.SIGCONT)
        return condition()

    def _replace(self, process: ForkServerProcess) -> None:
        """Start another one in place of one that was killed."""
        self._killed += 1
        process.join()
        self._running.remove(process)
        self._start()

    def _has_reached(self, mark: int) -> bool:
        return self._journals.value >= mark

    def _wait(self, what: str, condition: Callable[[], T]) -> T:
        while True:
            self._journals.look()
            if found := condition():
                return found
            if time.monotonic() > self._until_s:
                where = f"{what}; they are at {self._journals.value}"
                raise AssertionError(f"not within {self._within_s} s: {where}\n{self._logs()}")
            time.sleep(POLL_S)

    def _logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in self._folder.glob("log-*"))


def _entry(pid: int, line: str) -> Entry:
    act, token, value = line.split()
    return Entry(pid=pid, act=act, token=int(token), value=int(value))


def send(process: ForkServerProcess, number: int) -> None:
    """Send a signal to a process that has not been waited for."""
    assert process.pid is not None  # It was started.
    os.kill(process.pid, number)
