"""
Every kind of store that the suite is run against. To prove another store, add it to `KINDS`.

Knows no scenario. A store on DynamoDB is one kind for each server that plays DynamoDB, since each is wrong about
something else; those that have to be installed first carry the marker `servers`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import aioboto3  # type: ignore[import-untyped]  # It has no types.
import pytest

from partitions.aws.places import AwsPlace
from partitions.stores.base import Store
from partitions.stores.dynamodb import DynamoDBStore
from partitions.stores.memory import MemoryStore
from partitions.stores.sqlite import SqliteStore

__all__ = ["KINDS", "SERVERS", "Kind", "dynamodb_at", "marks_of"]

PATIENCE_S = 20.0
"""The servers share their machine with the tests; nothing here is about time-outs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of store."""

    name: str
    make: Callable[[Path, str], Store]
    """Name a store, from a folder of its own and the address of the server."""
    url: str = ""
    """The address of the server, once it runs."""
    server: str | None = None
    """The fixture that answers with the address of the server; None where there is none."""
    is_extra: bool = False
    """Whether the server has to be installed first."""
    has_transactions: bool = True
    """False where only `Complete` with children cannot be shown, because the server has no TransactWriteItems."""
    keeps_order: bool = True
    """Whether verbs that are submitted together are applied in their order; the contract does not ask for it."""
    machine_runs: int = 30
    """Examples of the state machine: fewer where each call is a request."""

    async def absent(self, folder: Path) -> Store:
        """A store that nobody has made yet; of one folder, always the same."""
        store = self.make(folder, self.url)
        if isinstance(store, MemoryStore):
            # It is there as soon as it is made.
            await store.delete()
        return store


def _memory(_folder: Path, _url: str) -> Store:
    return MemoryStore()


def _sqlite(folder: Path, _url: str) -> Store:
    return SqliteStore(folder / "leases.db")


@cache
def _session() -> aioboto3.Session:
    """One for all stores, because each would read the model of the service again."""
    return aioboto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


def dynamodb_at(url: str, table: str) -> DynamoDBStore:
    """A store on the table of that name, on the server at that address."""
    place = AwsPlace(region="us-east-1", endpoint_url=url)
    return DynamoDBStore(table, place=place, session=_session(), call_timeout_s=PATIENCE_S, is_protected=False)


def _dynamodb(folder: Path, url: str) -> Store:
    return dynamodb_at(url, "t-" + hashlib.sha256(str(folder).encode()).hexdigest()[:20])


KINDS = (
    Kind(name="memory", make=_memory),
    Kind(name="sqlite", make=_sqlite),
    Kind(name="moto", make=_dynamodb, server="moto_url", keeps_order=False, machine_runs=3),
    Kind(
        name="ministack",
        make=_dynamodb,
        server="ministack_url",
        is_extra=True,
        keeps_order=False,
        machine_runs=6,
    ),
    Kind(
        name="dynalite",
        make=_dynamodb,
        server="dynalite_url",
        is_extra=True,
        has_transactions=False,
        keeps_order=False,
        machine_runs=6,
    ),
)

SERVERS = tuple(kind for kind in KINDS if kind.server is not None)
"""The kinds that are DynamoDB."""


def marks_of(kind: Kind) -> tuple[pytest.MarkDecorator, ...]:
    """The markers of every test of that kind."""
    return (pytest.mark.servers,) if kind.is_extra else ()
