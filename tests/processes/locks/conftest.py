"""What the tests of locks among real processes have: the servers that serve them."""

from __future__ import annotations

from tests.servers.fixtures import ministack_url
from tests.servers.postgres import postgres_conninfo

__all__ = ["ministack_url", "postgres_conninfo"]
