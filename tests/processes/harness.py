"""
Hosts as real processes: started by the command line in a folder of their own, watched, and ended without exception.

Knows the command line, the log lines and the files of a group; what must hold is the tests' business. Every wait polls
and has a deadline, and says at its end what the hosts logged last.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, TypeVar

from anyio.from_thread import BlockingPortal

from partitions.sources.local import Entry, LocalStream, hash_of
from tests.processes import journal
from tests.processes.histories import Interval, Journals, intervals
from tests.processes.lease_file import LeaseFile, now_s

__all__ = ["GROUP", "JOURNAL", "Group", "Host", "at_s", "command_line", "environment"]

ROOT = Path(__file__).parents[2]
JOURNAL = "tests.processes.journal:Journal"
GROUP = "g"
POLL_S = 0.02
START_S_MAX = 40.0
"""Until hosts run and share all; no case is about it, and loading Python and the SDK takes a busy machine seconds."""
END_S = 10.0
"""How long a killed process may take to be gone."""

T = TypeVar("T")


def command_line(*arguments: str) -> list[str]:
    """Return the command `processor-host …` of this environment."""
    return [sys.executable, "-m", "processor_host", *arguments]


class Host:
    """
    One process of a group.

    Attributes:
        name: Its host id; empty where it was not given one.
        pid: The process that runs the host.
        started_s: When it was started.
        died_s: When it was seen to be gone; None while it is there.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self.started_s = now_s()
        self.died_s: float | None = None
        self._process = process
        self._log = log
        self._lines: list[dict[str, Any]] = []
        self._read_to = 0

    def __repr__(self) -> str:
        return f"<Host {self.name or self.pid}>"

    def lines(self) -> list[dict[str, Any]]:
        """Return what it has logged; a line that is no JSON is a fault."""
        with self._log.open("rb") as log:
            log.seek(self._read_to)
            text = log.read()
        # What has no end yet is still being written. Read once each: some tests look at thousands every few moments.
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to += len(whole)
        self._lines += (self._line(line) for line in whole.splitlines())
        return self._lines

    def named(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of one event."""
        return [line for line in self.lines() if line["event"] == event]

    def text(self) -> str:
        """Return all that it has written to its standard error."""
        return self._log.read_text()

    def send(self, number: int) -> float:
        """Send a signal and return when."""
        os.kill(self.pid, number)
        return now_s()

    def kill(self) -> float:
        """SIGKILL; return when, once the process is gone."""
        killed_s = now_s()
        self.send(signal.SIGKILL)
        self.wait(END_S)
        return killed_s

    def terminate(self) -> float:
        """SIGTERM; return when."""
        return self.send(signal.SIGTERM)

    def wait(self, within_s: float) -> int:
        """Return its status once it has ended, negative for a signal."""
        try:
            status = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self!r} has not ended within {within_s} s; its log:\n{self.tail()}") from None
        if self.died_s is None:
            self.died_s = now_s()
        return status

    def is_running(self) -> bool:
        """Say whether the process is there."""
        return self._process.poll() is None

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.is_running():
            # Also where the host is a grandchild: whoever waits for it ends with it.
            os.kill(self.pid, signal.SIGKILL)
            self._process.wait(END_S)

    def _line(self, text: bytes) -> dict[str, Any]:
        try:
            line: dict[str, Any] = json.loads(text)
        except ValueError:
            raise AssertionError(f"{self!r} wrote what is no log line: {text.decode()}") from None
        return line

    def tail(self) -> str:
        """Return the last lines of its log."""
        return "".join(self.text().splitlines(keepends=True)[-12:])


class Group:
    """
    The hosts of one group, with its stream, its lease file and its journals in one folder.

    Attributes:
        hosts: Every host that was started, in order.
        leases: The lease file.
        journals: What the processors did.
        ready_s: How long `wait_ready` waits where it is not told, seconds.
        balanced_s: The same of `wait_balanced`.
        balanced_poll_s: How often that looks.
    """

    balanced_poll_s: float = 0.1
    ready_s: float = START_S_MAX
    balanced_s: float = START_S_MAX

    def __init__(self, folder: Path, portal: BlockingPortal) -> None:
        self.folder = folder
        self.hosts: list[Host] = []
        self.leases = LeaseFile(folder / "leases.db", GROUP, portal)
        self.journals = Journals(folder)
        self.records: dict[str, int] = {}
        """Partition → how many records `put` has appended."""

    def close(self) -> None:
        """End every host, whatever happened."""
        for host in self.hosts:
            host.end()
        self.leases.close()

    # --- The stream -------------------------------------------------------------------------------------------------

    def create(self, partitions: int) -> list[str]:
        """Create the stream and return the names of its partitions."""
        with LocalStream.create(self.folder / "s.db", partitions=partitions) as stream:
            names = [each.partition for each in stream.describe().partitions]
        self.records = dict.fromkeys(names, 0)
        return names

    def put(self, count: int, partitions: Sequence[str] = ()) -> None:
        """Append so many records to each of these partitions, or to all, in one transaction."""
        with LocalStream.open(self.folder / "s.db") as stream:
            keys = keys_of(stream)
            names = partitions or tuple(keys)
            stream.import_entries(Entry(data=b"record", key=keys[name]) for _ in range(count) for name in names)
        for name in names:
            self.records[name] += count

    # --- Hosts ------------------------------------------------------------------------------------------------------

    @property
    def store_url(self) -> str:
        """The leases, as a command names them that runs elsewhere."""
        return f"sqlite://{self.folder / 'leases.db'}"

    @property
    def source_url(self) -> str:
        """The stream, in the same way."""
        return f"local://{self.folder / 's.db'}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of `run` that each of its hosts gets, before its own: later ones count."""
        return ()

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables that each of its hosts gets."""
        return {}

    def start(
        self,
        name: str,
        *flags: str,
        lease_duration_s: float = 3.0,
        processor: str = JOURNAL,
        log_level: str = "info",
        env: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        command: Sequence[str] = (),
        record_s: float = 0.0,
    ) -> Host:
        """
        Start a host.

        Args:
            name: Its host id; empty for the default.
            flags: Of `run`, as they would be typed.
            lease_duration_s: A flag that every test must set.
            processor: What it runs.
            log_level: The lowest level that is logged.
            env: Environment variables beside those of this process.
            before: A program that runs the command.
            command: What to start instead of `python -m processor_host`.
            record_s: How long the journal's processor takes for a record.
        """
        run = [*(command or command_line()), "run", processor, "--group", GROUP]
        run += ["--source", "local:s.db", "--store", "sqlite:leases.db", "--log-format", "json"]
        run += ["--log-level", log_level, "--lease-duration-s", repr(lease_duration_s)]
        run += [*(["--host-id", name] if name else []), *self.flags, *flags]
        log = self.folder / f"host-{len(self.hosts)}-{name}.log"
        with log.open("wb") as stderr:
            given = {journal.RECORD_S: repr(record_s), **self.env, **(env or {})}
            process = start([*before, *run], self.folder, stderr, given)
        host = Host(name, process, log)
        self.hosts.append(host)
        return host

    def living(self) -> list[Host]:
        """Return the hosts whose process is there."""
        return [host for host in self.hosts if host.is_running()]

    def died_s(self) -> dict[int, float]:
        """Return when each process was seen to be gone."""
        return {host.pid: host.died_s for host in self.hosts if host.died_s is not None}

    def intervals(self) -> list[Interval]:
        """Return every record in the hand of a processor."""
        return intervals(self.journals.read(), self.died_s())

    # --- Waiting ----------------------------------------------------------------------------------------------------

    def wait_until(self, what: str, condition: Callable[[], T], within_s: float, every_s: float = POLL_S) -> T:
        """Poll until `condition` is true and return what it returned; fail after `within_s`."""
        until_s = time.monotonic() + within_s
        while True:
            if result := condition():
                return result
            if time.monotonic() >= until_s:
                logs = "\n".join(f"--- {host!r}\n{host.tail()}" for host in self.hosts)
                raise AssertionError(f"not within {within_s} s: {what}\n{logs}")
            time.sleep(every_s)

    def wait_ready(self, host: Host, within_s: float | None = None) -> None:
        """Wait until a host has registered and finished its first round."""
        limit_s = self.ready_s if within_s is None else within_s
        self.wait_until(f"{host!r} is ready", lambda: self._is_up(host) and host.named("host.ready"), limit_s)

    def wait_balanced(self, hosts: Sequence[Host], within_s: float | None = None) -> dict[str, int]:
        """Wait until exactly these hosts share all partitions evenly, and return their shares."""
        for host in hosts:
            self.wait_ready(host)
        names = {host.name for host in hosts}

        def shares() -> dict[str, int] | None:
            found = self.leases.shares()
            is_even = bool(found) and max(found.values()) - min(found.values()) <= 1
            # Also the session of a dead host counts until it is fenced.
            is_all = found.keys() == names and sum(found.values()) == len(self.records)
            return found if is_even and is_all else None

        limit_s = self.balanced_s if within_s is None else within_s
        what = f"{sorted(names)} share all partitions evenly"
        return self.wait_until(what, shares, limit_s, self.balanced_poll_s) or {}

    def _is_up(self, host: Host) -> bool:
        if not host.is_running():
            raise AssertionError(f"{host!r} has ended with status {host.wait(0)}; its log:\n{host.tail()}")
        return True


def at_s(line: Mapping[str, Any]) -> float:
    """Return when a line was logged, on the clock of the journals."""
    return datetime.fromisoformat(line["timestamp"]).timestamp() - (time.time() - now_s())


def start(command: list[str], folder: Path, stderr: IO[bytes], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that dies with this one, also where this one is killed itself."""
    dies_too = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    return subprocess.Popen(
        [*dies_too, *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**environment(folder), **env},
    )


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a child: this one's, without settings of a host that some developer has set."""
    # The tree of these tests first, so that a copy of it tests itself.
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PROCESSOR_HOST_")}
    return {**inherited, "PYTHONPATH": path, journal.FOLDER: str(folder)}


def keys_of(stream: LocalStream) -> dict[str, str]:
    """Return for each open partition a key that goes to it."""
    open_ones = [each for each in stream.describe().partitions if not each.closed]
    keys: dict[str, str] = {}
    number = 0
    while len(keys) < len(open_ones):
        key = f"k{number}"
        number += 1
        for each in open_ones:
            if each.hash_low <= hash_of(key) < each.hash_high:
                keys.setdefault(each.partition, key)
    return {each.partition: keys[each.partition] for each in open_ones}
