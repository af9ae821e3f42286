"""
What a group at rest asks of its store, and what that costs: the formulae of the design, with everything to be put in.

Pure. H hosts with a lease duration of D seconds write 3·H beats and read the sessions 3·H times per D, however many
partitions there are. Every host reads all leases, in eight requests, and the sessions once more, consistently, once per
audit interval. Each partition with records is checkpointed once per checkpoint interval. Not counted: what happens when
hosts come and go, listings and reads of the stream, storage, backups.

Units are DynamoDB's: a write of up to 1 KiB is one, a strongly consistent read of up to 4 KiB is one, an eventually
consistent one half; a Query counts the sum of its items, rounded up. Source: Amazon DynamoDB developer guide, "Capacity
unit consumption for read operations".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

__all__ = ["LEASE_BYTES", "READ_PRICE", "SESSION_BYTES", "WRITE_PRICE", "Costs", "GroupSize", "Requests", "costs_of"]

SESSION_BYTES: Final = 290
LEASE_BYTES: Final = 210
"""Computed from items with names of usual lengths; docs/dynamodb.md says the same."""

WRITE_PRICE: Final = 0.625
READ_PRICE: Final = 0.125
"""
US dollars for a million units: DynamoDB on demand, standard tables, us-east-1, since November 2024. They are defaults
and nothing more; the price list of the own region counts.
"""

LEASE_KEYS: Final = 8
BEATS_PER_DURATION: Final = 3
WRITE_UNIT_BYTES: Final = 1024
READ_UNIT_BYTES: Final = 4096
SECONDS_PER_MONTH: Final = 365 * 86400 / 12


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """How large a group is."""

    hosts: int
    partitions: int
    duration_s: float
    busy: int
    """Partitions that have records all the time."""
    checkpoint_interval_s: float
    audit_interval_s: float
    session_bytes: int = SESSION_BYTES
    lease_bytes: int = LEASE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """One kind of request."""

    what: str
    per_s: float
    """Requests a second, of all hosts together."""
    write_units_per_s: float = 0.0
    read_units_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a group asks of its store."""

    requests: tuple[Requests, ...]
    write_price: float
    read_price: float
    """For a million units, as given."""

    @property
    def per_s(self) -> float:
        """All requests a second."""
        return sum(each.per_s for each in self.requests)

    def monthly(self, each: Requests) -> float:
        """Return what one kind costs a month of 365/12 days, in the currency of the prices."""
        dear = each.write_units_per_s * self.write_price + each.read_units_per_s * self.read_price
        return dear * SECONDS_PER_MONTH / 1e6

    @property
    def total(self) -> float:
        """What all of it costs a month."""
        return sum(self.monthly(each) for each in self.requests)


def costs_of(size: GroupSize, *, write_price: float = WRITE_PRICE, read_price: float = READ_PRICE) -> Costs:
    """Return the requests of a group and their price, each kind by itself."""
    beats_per_s = BEATS_PER_DURATION * size.hosts / size.duration_s
    sessions_bytes = size.hosts * size.session_bytes
    audits_per_s = size.hosts / size.audit_interval_s
    checkpoints_per_s = size.busy / size.checkpoint_interval_s
    leases_units = LEASE_KEYS * _read_units(size.partitions / LEASE_KEYS * size.lease_bytes)
    requests = (
        Requests(
            what="beats",
            per_s=beats_per_s,
            write_units_per_s=beats_per_s * math.ceil(size.session_bytes / WRITE_UNIT_BYTES),
        ),
        Requests(
            what="looks at the sessions",
            per_s=beats_per_s,
            read_units_per_s=beats_per_s * _read_units(sessions_bytes) / 2,
        ),
        Requests(
            what="audits",
            per_s=audits_per_s * (LEASE_KEYS + 1),
            read_units_per_s=audits_per_s * (leases_units + _read_units(sessions_bytes)),
        ),
        Requests(
            what="checkpoints",
            per_s=checkpoints_per_s,
            write_units_per_s=checkpoints_per_s * math.ceil(size.lease_bytes / WRITE_UNIT_BYTES),
        ),
    )
    return Costs(requests=requests, write_price=write_price, read_price=read_price)


def _read_units(size_bytes: float) -> int:
    """Strongly consistent; a request that finds nothing costs one, too."""
    return max(1, math.ceil(size_bytes / READ_UNIT_BYTES))
