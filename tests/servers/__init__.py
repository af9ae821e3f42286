"""
Servers that speak AWS's protocols, as real processes on loopback, for the tests that need one.

`started` and `running` give a server for the length of a block, `tests.servers.fixtures` gives fixtures, and
`python -m tests.servers NAME` serves a person. No single one is right about everything: moto (behind one lock)
and ministack have transactions, dynalite is strict about expressions and right about capacity, kinesis-local is
right about resharding, kinesalite is fast at it.
"""

from __future__ import annotations

from tests.servers.kinds import KINDS, ServerNotInstalled
from tests.servers.processes import DUMMY_CREDENTIALS, Server, ServerFailed, running, started

__all__ = ["DUMMY_CREDENTIALS", "KINDS", "Server", "ServerFailed", "ServerNotInstalled", "running", "started"]
