"""The stores as fixtures: `store` is a new, open one of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from partitions.stores.base import Store
from tests.stores.kinds import KINDS, Kind

__all__ = ["kind", "store"]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """One kind of store."""
    found: Kind = request.param
    return found


@pytest.fixture
async def store(kind: Kind, tmp_path: Path) -> AsyncIterator[Store]:
    """A new store, made and opened."""
    made = await kind.absent(tmp_path)
    await made.create()
    await made.open()
    yield made
    await made.close()
