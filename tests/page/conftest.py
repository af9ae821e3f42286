"""What the tests of the page have: a group of real hosts that are gone when the test is over."""

from __future__ import annotations

from tests.processes.conftest import group

__all__ = ["group"]
