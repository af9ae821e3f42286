"""The stores as fixtures: `store` is a new, open one of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from partitions.stores.base import Store
from tests.servers.fixtures import aws_dummies, dynalite_url, ministack_url, moto_url
from tests.stores.kinds import KINDS, Kind, marks_of

__all__ = ["aws_dummies", "dynalite_url", "kind", "ministack_url", "moto_url", "store"]


@pytest.fixture(params=[pytest.param(kind, id=kind.name, marks=marks_of(kind)) for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """One kind of store, its server started."""
    found: Kind = request.param
    if found.server is None:
        return found
    url: str = request.getfixturevalue(found.server)
    return replace(found, url=url)


@pytest.fixture
async def store(kind: Kind, tmp_path: Path) -> AsyncIterator[Store]:
    """A new store, made and opened."""
    made = await kind.absent(tmp_path)
    await made.create()
    await made.open()
    yield made
    await made.close()
