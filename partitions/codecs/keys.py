"""
Where an item lies: its `pk` and `sk` (DESIGN section 3).

Knows no field. Everything of a group begins with its name and `#`, so many groups share a table. Leases are spread over
eight keys by their partition ids, because one key takes only 1,000 writes a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from partitions.codecs.values import Attribute, text_from, to_text

__all__ = [
    "PK",
    "SK",
    "Key",
    "group_key",
    "lease_key",
    "leases_pks",
    "lock_key",
    "locks_pk",
    "session_key",
    "sessions_pk",
]

PK: Final = "pk"
SK: Final = "sk"

LEASE_KEYS: Final = 8
"""How many keys the leases of a group are spread over. Fixed for ever: another number would lose every lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The key of one item."""

    pk: str
    sk: str

    @classmethod
    def of(cls, attributes: dict[str, Attribute]) -> Key:
        """Return the key that an item carries."""
        return cls(pk=text_from(attributes[PK]), sk=text_from(attributes[SK]))

    def attributes(self) -> dict[str, Attribute]:
        """Return it as DynamoDB writes it."""
        return {PK: to_text(self.pk), SK: to_text(self.sk)}


def sessions_pk(group: str) -> str:
    """Return the key under which all sessions of a group lie."""
    return f"{group}#hosts"


def leases_pks(group: str) -> tuple[str, ...]:
    """Return the keys under which the leases of a group lie."""
    return tuple(f"{group}#leases#{number}" for number in range(LEASE_KEYS))


def locks_pk(group: str) -> str:
    """Return the key under which all locks of a group lie: they are few."""
    return f"{group}#locks"


def session_key(group: str, session_id: str) -> Key:
    """Return the key of one session."""
    return Key(pk=sessions_pk(group), sk=session_id)


def lease_key(group: str, partition: str) -> Key:
    """Return the key of one lease."""
    return Key(pk=leases_pks(group)[crc32(partition.encode()) % LEASE_KEYS], sk=partition)


def lock_key(group: str, name: str) -> Key:
    """Return the key of one lock."""
    return Key(pk=locks_pk(group), sk=name)


def group_key(group: str) -> Key:
    """Return the key of the group's own item."""
    return Key(pk=f"{group}#group", sk="group")
