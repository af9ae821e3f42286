"""Groups of real hosts on SQLite whose ports are known beforehand, so that Prometheus may be started beside them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from anyio.from_thread import BlockingPortal

from partitions.sources.local import Entry, LocalStream
from partitions.stores.sqlite import SqliteStore
from partitions.verbs import Raise
from tests.processes.harness import Group, command_line, environment, keys_of
from tests.processes.lease_file import LeaseFile

__all__ = ["PortedGroup"]

COMMAND_S = 60.0
CALL_S = 2.0


class PortedGroup(Group):
    """
    A group with a name of its own, whose hosts serve their metrics on ports that are given.

    Attributes:
        name: Of the group.
        ports: Host id → port.
    """

    # Many processes start at once.
    ready_s = 60.0
    balanced_s = 60.0

    def __init__(self, folder: Path, portal: BlockingPortal, *, name: str, ports: Mapping[str, int]) -> None:
        folder.mkdir()
        super().__init__(folder, portal)
        self.name = name
        self.ports = ports
        self._portal = portal
        self.leases = LeaseFile(folder / "leases.db", name, portal)

    @property
    def flags(self) -> tuple[str, ...]:
        """See `Group.flags`."""
        return "--group", self.name

    def ported(self, host: str) -> tuple[str, ...]:
        """Return the flags that name a host's port."""
        return "--metrics-port", str(self.ports[host])

    def put_words(self, words: Mapping[str, str]) -> None:
        """Append to each of these partitions one record that consists of a word."""
        with LocalStream.open(self.folder / "s.db") as stream:
            keys = keys_of(stream)
            stream.import_entries(Entry(data=word.encode(), key=keys[name]) for name, word in words.items())

    def raise_tokens(self) -> None:
        """Raise every fencing token under the hosts that run, as whoever repairs a store behind their backs."""
        self._portal.call(self._raise_tokens)

    async def _raise_tokens(self) -> None:
        store = SqliteStore(self.folder / "leases.db", call_timeout_s=CALL_S)
        await store.open()
        try:
            for lease in await store.read_leases(self.name):
                verb = Raise(partition=lease.partition, seen_token=lease.token, token=lease.token + 1)
                await store.submit(self.name, verb)
        finally:
            await store.close()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line on this group, and return once it has ended well."""
        run = [*command_line(*arguments), "--group", self.name, "--store", "sqlite:leases.db"]
        return subprocess.run(
            run,
            cwd=self.folder,
            env=environment(self.folder),
            check=True,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
