"""
The conformance suite: what every store must do, as functions that any test can run (`ABOUT`, by name).

To prove another store, add it to `tests.stores.kinds`; the scenarios stay as they are.
"""

from __future__ import annotations

from tests.stores.scenarios import counts, ends, groups, leases, locks, races, reads, sessions
from tests.stores.scenarios.saying import ABOUT, About, Scenario

__all__ = ["ABOUT", "About", "Scenario", "counts", "ends", "groups", "leases", "locks", "races", "reads", "sessions"]
