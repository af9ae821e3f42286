"""One lease that somebody has spoilt by hand: the rest of its group is still taken over when its host dies."""

from __future__ import annotations

import sqlite3

import pytest

from tests.processes.harness import Group

__all__: list[str] = []

pytestmark = pytest.mark.processes


def test_partitions_of_a_dead_host_are_taken_beside_a_lease_that_cannot_be_read(group: Group) -> None:
    """If one bad item ended every round, nothing of a dead host would ever be taken again."""
    partitions = group.create(4)
    first = group.start("a", lease_duration_s=2.0)
    group.wait_until("a has all", lambda: len(group.journals.read()) == 4, 15)
    spoilt, *others = partitions
    with sqlite3.connect(group.folder / "leases.db") as connection:
        connection.execute("UPDATE leases SET seq = 'spoilt' WHERE partition = ?", (spoilt,))
    connection.close()
    first.kill()
    group.start("b", "--audit-interval-s", "3", lease_duration_s=2.0)
    group.put(20)

    def handled() -> set[str]:
        return {each.partition for each in group.journals.ended()}

    group.wait_until("the others are handled", lambda: handled() >= set(others), 10)
    assert handled() == set(others)

    # Repaired, it goes on.
    with sqlite3.connect(group.folder / "leases.db") as connection:
        connection.execute("UPDATE leases SET seq = 0, owner = NULL WHERE partition = ?", (spoilt,))
    connection.close()
    group.wait_until("the spoilt one is handled", lambda: spoilt in handled(), 15)
