"""
The picture that the status page shows: a group at one moment, as one host knows it.

Pure: made from what that host has read and what its own events said. Reads no clock and no store.

As JSON (`Picture.as_json`; fields may be added, those here stay):

    group, source, host_id, session_id             this page's host; `session_id` is null between two sessions
    looked_before_s       how long ago the sessions were read; null before the first look
    counts                as `processor-host status --json` has them, and "stalled"
    hosts                 as there, and: here (it is this host), url (its own page, if it tells of one)
    partitions            as there, and: here (held by this host), stalled_s, failed_in; `reason` may be cut
    left_out              how many partitions are not listed; `counts` has all of them
    changes               the newest first: before_s (seconds ago), kind ("taken", "freed", "ended"), partition, token,
                          before, after (host ids), how

`lag_s`, `stalled_s` and `failed_in` are known of partitions that this host holds, and null for all others: lag is
measured by whoever reads, and is written nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final
from urllib.parse import urlsplit

from partitions.items import GroupItem, LeaseItem, SessionItem
from partitions.liveness import LiveView
from processor_host.page.changes import Change
from processor_host.progress import STALL_LIMIT_S, Progress, stalled_s
from processor_host.status import HostRow, PartitionRow, status_of

__all__ = ["PARTITIONS_MAX", "STATUS_URL", "Material", "Picture", "picture_of"]

PARTITIONS_MAX: Final = 1000
"""How many are listed. A browser draws so many; where there are more, those that somebody may look for come first."""

REASON_MAX: Final = 200
"""Characters of a reason that are shown."""

STATUS_URL: Final = "status_url"
"""The field for people in a session's item that names the status page of its host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What a picture is made of; nothing in it changes any more."""

    group: str
    source: str
    """The URL of the stream."""
    host_id: str
    session_id: str | None
    leases: tuple[LeaseItem, ...]
    sessions: tuple[SessionItem, ...]
    view: LiveView
    """What was seen of the beats."""
    progress: Mapping[str, Progress]
    """Of each partition that this host holds."""
    changes: tuple[Change, ...]
    has_looked: bool
    now_s: float
    stall_limit_s: float = STALL_LIMIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A group at one moment."""

    material: Material
    partitions: tuple[PartitionRow, ...]
    """All of them."""
    hosts: tuple[HostRow, ...]
    counts: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the picture as JSON can hold it; the shape is in the docstring of this module."""
        of = self.material
        leases = {lease.partition: lease for lease in of.leases}
        shown = _most_wanted(self.partitions, self.stalled_s)
        return {
            "group": of.group,
            "source": of.source,
            "host_id": of.host_id,
            "session_id": of.session_id,
            "looked_before_s": round(of.now_s - of.view.at_s, 3) if of.has_looked else None,
            "counts": dict(self.counts),
            "hosts": [self._host(row) for row in self.hosts],
            "partitions": [self._partition(row, leases[row.partition]) for row in shown],
            "left_out": len(self.partitions) - len(shown),
            "changes": [_change(change, of.now_s) for change in reversed(of.changes)],
        }

    def stalled_s(self, partition: str) -> float | None:
        """Return for how long records of a partition have waited without progress; None where it does not stall."""
        progress = self.material.progress.get(partition)
        return None if progress is None else stalled_s(progress, self.material.now_s, self.material.stall_limit_s)

    def _host(self, row: HostRow) -> dict[str, Any]:
        unchanged_s = None if row.unchanged_s is None else round(row.unchanged_s, 3)
        return {
            **_values(row),
            "unchanged_s": unchanged_s,
            "about": dict(row.about),
            "here": row.session_id == self.material.session_id,
            "url": _page_url(row.about.get(STATUS_URL)),
        }

    def _partition(self, row: PartitionRow, lease: LeaseItem) -> dict[str, Any]:
        progress = self.material.progress.get(row.partition)
        stalled = self.stalled_s(row.partition)
        return {
            **_values(row),
            "parents": list(row.parents),
            "here": progress is not None,
            "stalled_s": None if stalled is None else round(stalled, 1),
            "failed_in": None if progress is None else progress.failed_in,
            "reason": None if row.reason is None else row.reason[:REASON_MAX],
        }


def picture_of(material: Material) -> Picture:
    """Put the picture together."""
    item = GroupItem(source=material.source, start="")  # Of which the rows need nothing.
    lags_s = {partition: progress.lag_s for partition, progress in material.progress.items()}
    # The view's own moment is that of the look; a host may have fallen silent since.
    view = replace(material.view, at_s=max(material.view.at_s, material.now_s))
    status = status_of(material.group, item, material.leases, material.sessions, view=view, lags_s=lags_s)
    picture = Picture(material=material, partitions=status.partitions, hosts=status.hosts, counts=status.counts())
    stalled = sum(picture.stalled_s(partition) is not None for partition in material.progress)
    return replace(picture, counts={**picture.counts, "stalled": stalled})


def _most_wanted(rows: tuple[PartitionRow, ...], stalled: Any) -> tuple[PartitionRow, ...]:
    """Those to be listed, in their order: what stalls, moves or lies about before what is merely owned."""
    if len(rows) <= PARTITIONS_MAX:
        return rows
    ranks = {
        row.partition: (stalled(row.partition) is None, row.state in ("owned", "ended"), -(row.lag_s or 0.0), number)
        for number, row in enumerate(rows)
    }
    wanted = set(sorted(ranks, key=ranks.__getitem__)[:PARTITIONS_MAX])
    return tuple(row for row in rows if row.partition in wanted)


def _change(change: Change, now_s: float) -> dict[str, Any]:
    return {
        "before_s": round(max(0.0, now_s - change.at_s), 1),
        "kind": change.kind,
        "partition": change.partition,
        "token": change.token,
        "before": change.before,
        "after": change.after,
        "how": change.how,
    }


def _page_url(value: object) -> str | None:
    """The address as a link may have it: anybody who can write to the store can write `javascript:` there."""
    try:
        is_page = isinstance(value, str) and urlsplit(value).scheme in ("http", "https")
    except ValueError:
        return None
    return str(value) if is_page else None


def _values(row: PartitionRow | HostRow) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}
