"""
The settings of a host: one frozen value, checked as a whole before anything starts.

Knows no command line and no environment (`processor_host.settings_text` reads those). Timings that are not given follow
from the lease duration, so that most users set that one alone.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, get_type_hints

from processor_host.errors import SettingsError
from processor_host.settings_checks import id_problem, problems_of, timings_of

__all__ = ["HostSettings", "Timings", "check_id", "default_host_id", "settings_or_default"]

MIB: Final = 1024 * 1024

_NOT_ID: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """The timings of the lease protocol as they are in force, seconds."""

    lease_duration_s: float
    beat_interval_s: float
    balance_interval_s: float
    call_timeout_s: float
    handoff_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """
    What may be set about a host. Each field is also a flag of `processor-host run` and an environment variable.

    Raises:
        SettingsError: at construction; the text has one line for each problem, all at once.
    """

    lease_duration_s: float = 10.0
    """
    How long this host keeps its leases after its last beat, seconds. A host that dies is replaced after about this
    time, and a store that is away for longer costs every lease. 10 survives a fail-over of most databases. At least
    0.3: a beat must come back within a sixth of it.
    """
    beat_interval_s: float | None = None
    """
    Time between two beats, seconds; a third of the lease duration if not given. At most that third, so that a beat that
    fails can be tried again before the leases end.
    """
    balance_interval_s: float | None = None
    """
    Time between two looks at the group while all of its hosts beat, seconds; a third of the lease duration if not
    given. At most the lease duration: what a dead host held stays unprocessed until somebody looks.
    """
    call_timeout_s: float | None = None
    """
    How long one call of the store may take, seconds; a sixth of the lease duration if not given. At most that sixth, so
    that a beat that hangs leaves time for another.
    """
    handoff_s: float | None = None
    """
    How long this host may take to finish with a partition that another host asks for, seconds; three lease durations if
    not given. At least the lease duration. Must be longer than handling one batch takes: what still runs after it is
    cancelled, and its records are handled again elsewhere.
    """
    checkpoint_interval_s: float = 5.0
    """
    Time between two checkpoints of a partition, seconds. After a crash up to this much work is done again; 5 keeps that
    below the time that the fail-over takes anyway, at one write per partition and interval.
    """
    drain_timeout_s: float = 20.0
    """
    How long a host that stops waits for others to ask for its partitions before it just releases them, seconds. At
    least the call time-out. Half a lease duration later batches that still run are cancelled, and then come the last
    writes: with 20 and the default lease duration all of it fits into the 30 that container platforms wait before they
    kill. Let yours wait longer than this and the lease duration together.
    """
    audit_interval_s: float = 60.0
    """
    Time between two full reads of the leases of a group in which nothing happens, seconds. They mend what no other sign
    shows, and cost one read of every lease; 60 makes them a small part of what the beats cost.
    """
    discovery_interval_s: float = 30.0
    """
    Time between two listings of the stream's partitions, seconds. A new partition is found within this time; listings
    are often limited by the service, which is why it is not shorter.
    """
    start: str | Mapping[str, str] = "earliest"
    """
    Where a new group starts: earliest, latest, or an ISO 8601 time such as 2026-01-31T06:00:00Z; for single partitions
    PARTITION=POSITION, the last record that counts as done. Only the first host of a new group uses it; it is resolved
    once and stored, so that all hosts start at the same records. A position only counts where this host makes the lease
    of its partition. Several are separated by commas, as in latest,p0=41; in code a mapping will do.
    """
    until: str | Mapping[str, str] | None = None
    """
    Where this host ends: latest-at-start, an ISO 8601 time, or PARTITION=POSITION for each partition (this record
    included, nothing of any other partition); without it, never. Once every partition is there, or held by another
    host, this one stops in order, exits with 0 and prints what it handled. In code a mapping will do.
    """
    adopt_stream: bool = False
    """
    Whether a group whose leases are of another stream, or of one that was since made anew under the same name, goes on
    with this one. The stored positions stay, so only a stream with the same records will do, as after a restore.
    """
    checkpoint: str = "automatic"
    """
    What counts as done: automatic (whatever `process` or `handle` returned from), manual (only what the processor
    checkpoints itself by `batch.checkpoint` or `batch.transaction`) or every-record (each record is handed on alone and
    stored before the next one begins; a crash repeats one record, and each costs a write).
    """
    concurrency: int = 1
    """
    Records of one partition handled side by side, at most; those of one key stay in their order. More than 1 needs a
    processor of single records. 1, because most handlers are written for one record after the other.
    """
    threads_max: int = 32
    """
    Worker threads for processors whose methods are plain `def`, at most, for all partitions of this host together. What
    finds none waits; async processors use none.
    """
    batch_wait_s: float = 0.0
    """
    How long a batch that is not full waits for more records, seconds. 0 hands on what there is; more makes fewer and
    fuller batches, and every record up to that much later.
    """
    batch_records_max: int = 500
    """
    Records given to one call of `process`, at most. Bounds what is handled again after a crash and how long a hand-off
    waits for the running batch.
    """
    batch_bytes_max: int = MIB
    """
    Payload given to one call of `process`, bytes, at most; a single larger record still comes alone. 1 MiB is the most
    that one record of the common services holds.
    """
    prefetch_records_max: int = 1000
    """
    Records of one partition read ahead while a batch is handled, at most. At least one batch; the default of two keeps
    the processor busy during a read.
    """
    prefetch_bytes_max: int = 2 * MIB
    """Payload of one partition read ahead, bytes, at most. At least one batch."""
    buffer_bytes_max: int = 256 * MIB
    """
    Payload read ahead for all partitions of this host together, bytes, beyond which no new read begins; each partition
    may still bring one read more. At least what one partition may read ahead; lower it where memory is short.
    """
    read_wait_s: float = 20.0
    """
    How long one read waits for records where there are none, seconds. Longer means fewer requests on idle partitions; a
    hand-off or a stop never waits for it.
    """
    restart_pause_s: float = 1.0
    """
    Pause before a processor, or a singleton, that failed starts again, seconds; doubled with each further failure.
    Long enough that a broken one does not fill the log.
    """
    restart_pause_max_s: float = 10.0
    """
    Where the doubling of the restart pause ends, seconds. At least the restart pause; once the cause is mended the
    partition goes on within this time. No lease is kept for longer than this without a processor, or a try at one.
    """
    sick_after_s: float = 60.0
    """
    How long everything must fail on this host, while another is well, before it gives all of its partitions to the
    others, seconds; then it keeps away for as long, and for longer each time, up to 15 times that. 60 is longer than a
    database takes to restart. If all hosts fail, each keeps what it has.
    """
    stall_limit_s: float = 60.0
    """
    How long records of a partition may wait without any being done before it is named as stuck in the log, the metrics,
    the health check and on the status page, seconds. 60 is twice what a hand-off leaves a batch, so that one that is
    merely slow is seldom named; it costs nothing but that line. Longer than the longest batch, if that is known, and at
    least the batch wait.
    """
    pause_stuck: bool = False
    """
    Whether a stuck partition is paused in the store, for all hosts, until somebody resumes it; its records then wait
    for a person. Only one that is stuck by itself: not where reading fails, nor while others of this host wait too and
    none moves. Off, because what hangs or fails may mend itself; with it, set stall_limit_s above the longest batch.
    """
    loop_stall_limit_s: float = 30.0
    """
    How long one call may block the event loop before this host stops beating, so that the others take over, seconds.
    Until then its leases are kept by beats from a thread of their own. 30 is longer than most calls that were not meant
    to block, and short enough that a host which hangs for good is found out.
    """
    acquires_at_once: int = 32
    """
    Leases acquired at the same time, at most. Bounds the load on the store when a host starts; more is faster there.
    """
    host_id: str | None = None
    """
    The name of this host within its group; host name and process id if not given. 1 to 128 letters, digits, dots,
    underscores and hyphens. With one that survives a restart, a restarted host is given those of its own partitions
    first that nobody has taken meanwhile; rejoin_grace_s lets the others wait for it.
    """
    capacity: float = 1.0
    """The share of the work that this host takes, in proportion to the capacity of the others."""
    balance: str = "count"
    """
    What a new group shares out in proportion to capacity: count (partitions) or load (what they weigh, so that a busy
    one counts for more). The first host of a group decides; it is stored, and the others go by it.
    """
    weigh_by: str = "bytes"
    """
    What partitions weigh where the load is shared: bytes (of payload) or seconds (of handling), both per second and
    averaged over minutes. Stored with a new group. bytes, because they are the same on a slow host and on a fast one.
    """
    steal_delay_s: float = 0.0
    """
    How long this host waits after any host has joined before it asks others for partitions only to even out the shares,
    seconds. Those of hosts that stop or died move at once. 0 waits for nothing; a minute or so, longer than it takes
    to stop an old host after its replacement has started, halves the moves of a rolling deployment, or better.
    """
    rejoin_grace_s: float = 0.0
    """
    How long this host leaves the partitions of a host that is gone to that host, should it come back under its host id,
    seconds. They are processed by nobody meanwhile. 0 waits for nobody; for hosts with a stable host id and caches on
    disk, as long as a restart takes.
    """
    max_leases: int | None = None
    """Leases that this host holds, at most; no bound if not given. What no host may hold stays unprocessed."""
    metrics_port: int | None = None
    """
    Port of the HTTP server with the status page at /, and /metrics, /healthz and /readyz; no server if not given. 0
    lets the system pick a port, and the log names it.
    """
    metrics_host: str = "127.0.0.1"
    """
    Address on which that server listens. Only this machine by default, because nothing there asks who is calling;
    0.0.0.0 for every address.
    """

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if problems := problems_of(values, get_type_hints(HostSettings)):
            raise SettingsError("\n".join(problems))

    def timings(self) -> Timings:
        """Return the timings in force: what was given, and what follows from the lease duration where nothing was."""
        given = {field.name: getattr(self, field.name) for field in fields(Timings)}
        values = timings_of(self.lease_duration_s)
        values |= {name: float(value) for name, value in given.items() if value is not None}
        return Timings(**values)


def settings_or_default(given: object) -> HostSettings:
    """
    Return the settings that were given, or the defaults where none were.

    Raises:
        SettingsError: it is something else, such as a mapping of names to values.
    """
    if given is None:
        return HostSettings()
    if not isinstance(given, HostSettings):
        raise SettingsError(f"settings={given!r} is no HostSettings; give settings=HostSettings(lease_duration_s=3)")
    return given


def check_id(kind: str, value: str) -> None:
    """
    Check the name of a group or a host, which becomes part of keys, of labels and of log lines.

    Args:
        kind: What is named, for the message: "group" or "host_id".
        value: The name.

    Raises:
        SettingsError: it is not 1 to 128 of `A-Z a-z 0-9 . _ -`.
    """
    if problem := id_problem(kind, value):
        raise SettingsError(problem)


def default_host_id(name: str | None = None, pid: int | None = None) -> str:
    """
    Return the id of a host that was given none: its host name and process id.

    Args:
        name: The machine's name, else what the system says. What an id may not hold becomes a hyphen; a name that is
            empty, as in some containers, becomes "host".
        pid: The process id, else that of this process.
    """
    name = socket.gethostname() if name is None else name
    name = _NOT_ID.sub("-", name).strip("-.")[:100] or "host"
    return f"{name}-{os.getpid() if pid is None else pid}"
