"""What the tests with real processes have: a group whose hosts are gone when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from tests.processes.harness import Group

__all__ = ["group"]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """A group without a stream and without hosts."""
    with start_blocking_portal() as portal:
        made = Group(tmp_path, portal)
        try:
            yield made
        finally:
            made.close()
