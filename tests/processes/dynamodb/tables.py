"""
A group whose leases are in DynamoDB: hosts that reach the table through a proxy, and a reader that does not.

Knows the command line's URL of a table and a server's address; what must hold is the tests' business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import aioboto3  # type: ignore[import-untyped]  # It has no types.
import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from partitions.aws.places import AwsPlace
from partitions.items import SessionItem
from partitions.stores.dynamodb import DynamoDBStore
from tests.processes.harness import GROUP, Group, Host
from tests.processes.histories import Entry
from tests.processes.lease_file import Held, LeaseFile
from tests.processes.scaling import FACTOR
from tests.proxy import Proxy
from tests.servers import DUMMY_CREDENTIALS

__all__ = [
    "REGION",
    "LeaseTable",
    "TableGroup",
    "group_behind_proxy",
    "losses",
    "open_terms",
    "repeated",
    "sdk_session",
]

REGION = "eu-west-1"
LOOK_S = 0.05
POLL_S = 0.1
BALANCED_POLL_S = 0.25
"""Looks cost the server as much as hosts do."""

READ_TIMEOUT_S = 10.0
"""For the tests' own reads, which no lease hangs on."""

T = TypeVar("T")


@contextmanager
def group_behind_proxy(folder: Path, url: str) -> Iterator[TableGroup]:
    """A group whose table is on the server at `url`, behind a proxy; closed with all of its hosts at the end."""
    with start_blocking_portal() as portal, Proxy(url) as proxy:
        made = TableGroup(folder, portal, proxy)
        try:
            yield made
        finally:
            made.close()


def sdk_session() -> Any:
    """Return a session of the SDK for the tests' own calls, with credentials that no server checks."""
    return aioboto3.Session(
        aws_access_key_id=DUMMY_CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=DUMMY_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=REGION,
    )


def repeated(whole: float, part: float) -> float:
    """Return how much of something that only repeats is done: all of it, or in CI a part, a fifth or more."""
    if part < whole / 5:
        raise ValueError(f"{part} of {whole} repeats are less than a fifth; do more")
    return whole if FACTOR == 1.0 else part


def losses(host: Host) -> list[dict[str, Any]]:
    """Return the lines of a host's log that tell of a session or a term that ended against its will."""
    return [
        line
        for event in ("session.ended", "lease.ended", "checkpoint.refused")
        for line in host.named(event)
        if line.get("lost", True) and line["reason" if "reason" in line else "event"] != "released"
    ]


def open_terms(group: Group, partition: str) -> list[Entry]:
    """Return the opening of each processor of a partition that has not been closed and whose process is there."""
    living = {host.pid for host in group.living()}
    opened: dict[int, Entry] = {}
    for each in group.journals.read():
        if each.partition == partition and each.act == "opened":
            opened[each.pid] = each
        elif each.partition == partition and each.act == "closed":
            opened.pop(each.pid, None)
    return [each for pid, each in opened.items() if pid in living]


class LeaseTable(LeaseFile):
    """The items of one group in a table, as an observer sees them."""

    _store: Any

    def __init__(self, table: str, server_url: str, group: str, portal: BlockingPortal) -> None:
        self._store = DynamoDBStore(
            table,
            place=AwsPlace(region=REGION, endpoint_url=server_url),
            call_timeout_s=READ_TIMEOUT_S,
            session=sdk_session(),
            is_protected=False,
        )
        self._group = group
        self._portal = portal
        self._is_open = False

    async def _read(self, store: Any) -> tuple[dict[str, Held], dict[str, SessionItem]]:
        # Looks without a pause would take most of what the server can do.
        await anyio.sleep(LOOK_S)
        return await super()._read(store)

    def create(self) -> None:
        """Make the table, as whoever runs no host does."""
        self._portal.call(self._store.create)


class TableGroup(Group):
    """
    The hosts of one group on a table of their own.

    Attributes:
        proxy: What stands between them and the table.
        table: The table's name.
    """

    leases: LeaseTable
    balanced_poll_s = BALANCED_POLL_S

    def __init__(
        self, folder: Path, portal: BlockingPortal, proxy: Proxy, *, table: str = "", group: str = GROUP
    ) -> None:
        super().__init__(folder, portal)
        self.proxy = proxy
        self.table = table or f"leases-{uuid4().hex[:12]}"
        self.group = group
        self.leases = LeaseTable(self.table, proxy.upstream_url, group, portal)
        if not table:
            self.leases.create()

    @property
    def store_url(self) -> str:
        """The table, as a host names it."""
        return f"dynamodb://{self.table}?region={REGION}&endpoint_url={self.proxy.url}"

    @property
    def flags(self) -> tuple[str, ...]:
        """See `Group.flags`."""
        return "--group", self.group, "--store", self.store_url

    @property
    def env(self) -> Mapping[str, str]:
        """See `Group.env`."""
        return DUMMY_CREDENTIALS

    def wait_until(self, what: str, condition: Callable[[], T], within_s: float, every_s: float = POLL_S) -> T:
        """See `Group.wait_until`."""
        return super().wait_until(what, condition, within_s, every_s)
