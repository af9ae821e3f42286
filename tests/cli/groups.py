"""Groups of one test for the operator's commands: on a lease file and on a table, with whatever items it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import anyio
from click.testing import CliRunner, Result

from partitions.items import LeaseItem, SessionItem
from partitions.sources.local import Entry, LocalStream
from partitions.stores.base import Store
from partitions.verbs import Applied, Beat, Create, SetUp, Verb
from processor_host.cli import main
from processor_host.urls import open_store
from tests.builders import a_group, a_lease, a_register, an_acquire

__all__ = ["GROUP", "Group", "answer"]

GROUP = "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group with the partitions of a local stream, whose leases are in the store that `url` names."""

    url: str
    folder: Path
    name: str = GROUP

    @property
    def source(self) -> str:
        """The URL of its stream."""
        return f"local://{self.folder / 's.db'}"

    def run(self, command: str, *options: str, typed: str | None = None) -> Result:
        """Run one of the commands on the group."""
        named = ["--group", self.name, "--store", self.url]
        return CliRunner().invoke(main, [*command.split(), *options, *named], input=typed)

    def command(self, command: str, *options: str, typed: str | None = None) -> Result:
        """Run one that takes no store but as its argument."""
        return CliRunner().invoke(main, [*command.split(), *options, "--group", self.name], input=typed)

    @contextmanager
    def beating(self, beat: Beat) -> Iterator[None]:
        """Send a beat again and again beside the body, from a thread, as a host that lives."""
        is_over = Event()

        async def send(store: Store) -> None:
            await store.open()
            while not is_over.is_set():
                await store.submit(GROUP, beat)
                await anyio.sleep(0.02)

        thread = Thread(target=self._with, args=(send,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def open_only(self) -> None:
        """Make the store without any item."""

        async def create(store: Store) -> None:
            await store.create()

        self._with(create)

    def told(self, command: str, *options: str) -> Any:
        """Run a command that succeeds, and return what it tells as JSON."""
        result = self.run(command, *options, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def make(self, partitions: int = 2, records: int = 20) -> None:
        """Make the stream with so many records over its partitions, the store, and a lease of each partition."""
        with LocalStream.create(self.folder / "s.db", partitions=partitions) as stream:
            description = stream.describe()
            stream.append([Entry(data=b"{}", key=str(key)) for key in range(records)])
        names = [each.partition for each in description.partitions]

        async def fill(store: Store) -> None:
            await store.create()
            await store.open()
            await store.submit(GROUP, SetUp(item=a_group(source=description.identity)))
            for name in names:
                await store.submit(GROUP, Create(partition=name, position="@earliest"))

        self._with(fill)

    def do(self, *verbs: Verb[Any]) -> list[Any]:
        """Write what the test needs to have been written; return the items."""

        async def write(store: Store) -> list[Any]:
            await store.open()
            results = [await store.submit(GROUP, verb) for verb in verbs]
            assert all(isinstance(result, Applied) for result in results), results
            return [result.item for result in results if isinstance(result, Applied)]

        return list(self._with(write))

    def owned_by(self, session_id: str, partition: str, **session: Any) -> None:
        """Let a session that nobody runs own a partition."""
        self.do(a_register(session_id, **session), an_acquire(a_lease(partition), session_id))

    def leases(self) -> dict[str, LeaseItem]:
        """Return the leases as they are stored."""

        async def read(store: Store) -> Sequence[LeaseItem]:
            await store.open()
            return await store.read_leases(GROUP)

        return {lease.partition: lease for lease in self._with(read)}

    def sessions(self) -> dict[str, SessionItem]:
        """Return the sessions as they are stored."""

        async def read(store: Store) -> Sequence[SessionItem]:
            await store.open()
            return await store.read_sessions(GROUP, consistent=True)

        return {session.session_id: session for session in self._with(read)}

    def _with(self, do: Any) -> Any:
        async def run() -> Any:
            store = open_store(self.url, call_timeout_s=5.0)
            try:
                return await do(store)
            finally:
                await store.close()

        return anyio.run(run)


def answer(result: Result) -> tuple[int, list[str], list[str]]:
    """Return the status, the lines on stdout and those on stderr."""
    return result.exit_code, result.stdout.splitlines(), result.stderr.splitlines()
