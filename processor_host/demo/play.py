"""
The play: what the demo does, act after act, and how long it waits for each.

Every wait has an end; one that is not met is told as a problem and leads straight to the stop, so that the verdict is
given in any case. Whether the records are right is not decided here but by `processor_host.demo.verdict`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from partitions.clocks import BootClock
from processor_host.demo.folder import Folder
from processor_host.demo.grounds import Ground, Resharding
from processor_host.demo.hosts import Children
from processor_host.demo.journal import JOURNALS
from processor_host.demo.ledger import Ledger
from processor_host.demo.lines import Birth, LineWriter
from processor_host.demo.orphans import PARENT
from processor_host.demo.scene import Look, Scene
from processor_host.demo.show import Show
from processor_host.demo.verdict import Verdict
from processor_host.settings_text import ENVIRONMENT_PREFIX

__all__ = ["Outcome", "Play", "Script"]

GROUP: Final = "demo"
LEASE_DURATION_S: Final = 3.0
CHECKPOINT_INTERVAL_S: Final = 2.0
"""The host's own; the processor asks for one more often, and says so in its journal."""

LOOK_S: Final = 0.25
SETTLE_S: Final = 30.0
"""For processes to start and share the partitions, on a machine that is busy with other things."""
RESHARD_S: Final = 20.0
"""To read what is left of the parents, and to begin with their children."""
RECOVER_S: Final = 4 * LEASE_DURATION_S
"""One duration until the dead host is fenced; the rest is room for a slow machine."""
STOP_S: Final = 10.0
CATCH_UP_S: Final = 20.0
QUIET_S: Final = 2 * LEASE_DURATION_S
"""Records that are still missing when nothing was handled for so long will not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What is played."""

    partitions: int
    hosts: int
    """Hosts at the start; one of them is killed, and another one started."""
    seconds: float
    """How long the acts that only show something take together; the waits come on top."""
    rate: float
    """Records a second and partition of the start."""
    processor: str
    """`module:class` of the processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended."""

    verdict: Verdict
    problems: tuple[str, ...]
    """What did not go as the script says; empty where all did."""

    def failures(self) -> tuple[str, ...]:
        """Return everything for which the demo has failed."""
        return (*self.verdict.failures(), *self.problems)


class _Missed(Exception):
    """The script cannot go on; carries why. Never leaves this module."""


class Play:
    """One play in one folder, on one ground."""

    def __init__(self, script: Script, folder: Folder, ground: Ground, show: Show) -> None:
        """Put it together; nothing is started yet."""
        self._script = script
        self._folder = folder
        self._ground = ground
        self._show = show
        self._clock = BootClock()
        self._ledger = Ledger(folder.journals, folder.produced)
        self._problems: list[str] = []
        self._began_s = self._clock.now_s()

    async def run(self) -> Outcome:
        """
        Play, and judge.

        Raises:
            JournalError: a line that a process wrote cannot be read.
            PartitionsError: the stream or the store cannot be made, read or changed.
        """
        self._folder.prepare()
        store = await self._ground.make(self._script.partitions)
        await store.open()
        try:
            self._scene = Scene(store, GROUP, self._ledger, self._clock, began_s=self._began_s)
            with Children(self._folder.logs, self._environ()) as self._children:
                try:
                    await self._acts()
                except _Missed as missed:
                    self._problem(str(missed))
                await self._end()
        finally:
            with anyio.CancelScope(shield=True):
                await store.close()
        return Outcome(verdict=self._folder.judge(), problems=tuple(self._problems))

    # --- The acts ---------------------------------------------------------------------------------------------------

    async def _acts(self) -> None:
        script, resharding = self._script, self._ground.resharding
        pause_s = script.seconds / (4 if resharding is None else 6)
        names = [f"host-{number}" for number in range(1, script.hosts + 1)]
        newcomer = f"host-{script.hosts + 1}"
        self._tell(f"{script.partitions} partitions, {script.rate:g} records/s each; {script.hosts} hosts start")
        self._start_producer()
        for name in names:
            self._start_host(name)
        await self._until(lambda look: look.is_settled(names), SETTLE_S, f"{', '.join(names)} share the partitions")
        await self._go_on(pause_s)

        if resharding is not None:
            await self._split(resharding, names)
            await self._go_on(pause_s)

        victim, *others = names
        lost = {each.partition: each.token for each in (await self._look()).of(victim)}
        self._kill(victim, lost)
        await self._until(
            lambda look: all(self._ledger.tokens[partition] > token for partition, token in lost.items()),
            RECOVER_S,
            f"what {victim} had is handled by others",
        )
        await self._go_on(pause_s)

        self._start_host(newcomer)
        await self._until(lambda look: look.is_settled([*others, newcomer]), SETTLE_S, f"{newcomer} has its share")
        await self._go_on(pause_s)

        if resharding is not None:
            await self._merge(resharding, [*others, newcomer])
            await self._go_on(pause_s)

        # While records still come, so that the time without a handled one shows.
        leaver, *rest = [*others, newcomer]
        await self._stop(leaver)
        await self._until(lambda look: look.is_settled(rest), SETTLE_S, f"{', '.join(rest)} have all partitions")
        await self._go_on(pause_s)

    async def _split(self, resharding: Resharding, hosts: Sequence[str]) -> None:
        """Split a partition while its records flow."""
        parent = (await self._look()).going_on[0]
        children = await resharding.split(parent.partition)
        await self._born((parent.partition,), children, f"split {parent.partition}, which {parent.host} has", hosts)

    async def _merge(self, resharding: Resharding, hosts: Sequence[str]) -> None:
        """Merge two partitions, of two hosts where there are such: neither knows alone when the child may begin."""
        hosts_of = {each.partition: each.host for each in (await self._look()).going_on}
        pairs = await resharding.neighbours()
        parents = next((pair for pair in pairs if len({hosts_of[each] for each in pair}) == 2), pairs[0])
        children = await resharding.merge(*parents)
        owners = " and ".join(dict.fromkeys(str(hosts_of[each]) for each in parents))
        await self._born(parents, children, f"merged {' and '.join(parents)}, which {owners} have", hosts)

    async def _born(self, parents: Sequence[str], children: Sequence[str], text: str, hosts: Sequence[str]) -> None:
        """Note which partitions are born of which, and wait until the hosts have gone over to them."""
        writer = LineWriter(self._folder.births)
        writer.write(*(Birth(partition=child, parent=parent) for child in children for parent in parents))
        writer.close()
        self._tell(f"{text}; born: {', '.join(children)}")
        await self._until(
            lambda look: look.has_gone_over(parents, children) and look.is_settled(hosts),
            RESHARD_S,
            f"{', '.join(parents)} read to the end, {', '.join(children)} handled",
        )

    async def _end(self) -> None:
        """Stop what runs: the producer first, and the hosts once everything is handled, or nothing moves any more."""
        await self._stop("producer")
        began_s = self._clock.now_s()
        while (look := await self._look(check=False)).missing:
            now_s = self._clock.now_s()
            if now_s > min(began_s + CATCH_UP_S, max(began_s, self._ledger.last_s or 0.0) + QUIET_S):
                self._tell(f"{look.missing} records are missing, and are not waited for any longer")
                break
            await anyio.sleep(LOOK_S)
        await self._stop(*(child.name for child in self._scene.hosts if child.status is None))
        for child in self._children:
            if child.name not in self._scene.killed and (child.status or not child.is_told):
                self._problem(f"{child.name} ended with status {child.status}; it wrote: {child.tail() or 'nothing'}")

    def _start_producer(self) -> None:
        command = self._ground.producer(self._script.rate * self._script.partitions)
        self._tell(f"started the producer (pid {self._children.start('producer', command).pid})")

    def _start_host(self, name: str) -> None:
        command = [sys.executable, "-m", "processor_host", "run", self._script.processor, "--group", GROUP]
        command += ["--source", self._ground.source_url, "--store", self._ground.store_url]
        command += ["--host-id", name, "--lease-duration-s", str(LEASE_DURATION_S)]
        command += ["--checkpoint-interval-s", str(CHECKPOINT_INTERVAL_S)]
        child = self._children.start(name, command)
        self._scene.hosts.append(child)
        self._tell(f"started {name} (pid {child.pid})")

    def _kill(self, name: str, lost: dict[str, int]) -> None:
        child = self._children[name]
        self._scene.killed.add(name)
        kill = child.kill(self._clock)
        child.reap()
        writer = LineWriter(self._folder.kills)
        writer.write(kill)
        writer.close()
        self._tell(f"killed {name} (pid {child.pid}) with SIGKILL; it had {', '.join(lost)}")

    async def _stop(self, *names: str) -> None:
        """Send SIGTERM and wait for the ends."""
        if not names:
            return
        children = [self._children[name] for name in names]
        began_s = self._clock.now_s()
        for child in children:
            if child.status is None:
                child.stop()
        self._tell(f"sent SIGTERM to {', '.join(names)}")
        while running := [child for child in children if child.status is None]:
            if self._clock.now_s() > began_s + STOP_S:
                self._problem(f"{', '.join(child.name for child in running)} did not end within {STOP_S:g} s")
                break
            await self._look(check=False)
            await anyio.sleep(LOOK_S)
        self._tell(f"ended after {self._clock.now_s() - began_s:.1f} s: {', '.join(names)}")

    # --- Waiting ----------------------------------------------------------------------------------------------------

    async def _go_on(self, seconds: float) -> None:
        until_s = self._clock.now_s() + seconds
        while self._clock.now_s() < until_s:
            await self._look()
            await anyio.sleep(LOOK_S)

    async def _until(self, is_so: Callable[[Look], bool], at_most_s: float, text: str) -> None:
        """Look until something is so, and tell that it is."""
        began_s = self._clock.now_s()
        while not is_so(await self._look()):
            if self._clock.now_s() > began_s + at_most_s:
                raise _Missed(f"not within {at_most_s:g} s: {text}")
            await anyio.sleep(LOOK_S)
        self._tell(f"{text}, after {self._clock.now_s() - began_s:.1f} s")

    async def _look(self, *, check: bool = True) -> Look:
        look = await self._scene.look()
        self._show.look(look)
        if check and (child := self._children.fallen()):
            raise _Missed(f"{child.name} ended by itself")
        return look

    # --- Beside it --------------------------------------------------------------------------------------------------

    def _environ(self) -> dict[str, str]:
        """Settings of the host that the user has in the environment are of no concern to the demo, as a port is."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
        return environ | {JOURNALS: str(self._folder.journals), PARENT: str(os.getpid())}

    def _tell(self, text: str) -> None:
        self._show.act(self._clock.now_s() - self._began_s, text)

    def _problem(self, text: str) -> None:
        self._problems.append(text)
        self._tell(text)
