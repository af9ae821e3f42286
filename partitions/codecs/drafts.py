"""
One conditional write under construction: texts on one side, the placeholders that they use on the other.

Knows no verb. What is named or valued twice gets one placeholder, and nothing stands in the request that no text uses,
since the API refuses such a request.
"""

from __future__ import annotations

from types import MappingProxyType

from partitions.codecs.keys import PK, Key
from partitions.codecs.values import Attribute, to_number, to_text
from partitions.codecs.writes import Operation, Write

__all__ = ["Draft"]


class Draft:
    """The parts of one write on the item of one key."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._names: dict[str, str] = {}
        self._values: dict[str, Attribute] = {}
        self._conditions: list[str] = []
        self._sets: list[str] = []
        self._removes: list[str] = []

    def name(self, attribute: str, alias: str | None = None) -> str:
        """Return the placeholder of an attribute's name, `#<alias>` or else `#<attribute>`."""
        placeholder = f"#{alias or attribute}"
        self._names[placeholder] = attribute
        return placeholder

    def value(self, name: str, attribute: Attribute) -> str:
        """Return the placeholder of a value, `:<name>`."""
        placeholder = f":{name}"
        self._values[placeholder] = attribute
        return placeholder

    def needs(self, condition: str) -> None:
        """Add a condition."""
        self._conditions.append(condition)

    def equals(self, attribute: str, value: Attribute) -> None:
        """Need an attribute to be there and to have this value."""
        self.needs(f"{self.name(attribute)} = {self.value(f'seen_{attribute}', value)}")

    def is_there(self) -> None:
        """Need the item to be there."""
        self.needs(f"attribute_exists({self.name(PK)})")

    def is_absent(self) -> None:
        """Need the item not to be there."""
        self.needs(f"attribute_not_exists({self.name(PK)})")

    def is_owner(self, owner: str, token: int) -> None:
        """Need the lease to be held by this owner under this token."""
        self.equals("owner", to_text(owner))
        self.equals("token", to_number(token))

    def sets(self, attribute: str, value: Attribute) -> None:
        """Set an attribute."""
        self._sets.append(f"{self.name(attribute)} = {self.value(attribute, value)}")

    def fills_in(self, attribute: str, value: Attribute) -> None:
        """Set an attribute where the item lacks it."""
        name = self.name(attribute)
        self._sets.append(f"{name} = if_not_exists({name}, {self.value(attribute, value)})")

    def raises(self, attribute: str) -> None:
        """Add one to an attribute that is there."""
        name = self.name(attribute)
        self._sets.append(f"{name} = {name} + {self.value('one', to_number(1))}")

    def counts(self, attribute: str) -> None:
        """Add one to an attribute, which is 0 where it is not there."""
        name = self.name(attribute)
        zero, one = self.value("zero", to_number(0)), self.value("one", to_number(1))
        self._sets.append(f"{name} = if_not_exists({name}, {zero}) + {one}")

    def sets_path(self, path: str, value: str) -> None:
        """Set what a path of placeholders leads to, to the value of a placeholder."""
        self._sets.append(f"{path} = {value}")

    def removes(self, path: str) -> None:
        """Remove what a placeholder or a path of them leads to."""
        self._removes.append(path)

    def done(self, operation: Operation, item: dict[str, Attribute] | None = None) -> Write:
        """Return the write; `item` is given exactly for a put."""
        return Write(
            operation=operation,
            key=self._key,
            conditions=tuple(self._conditions),
            sets=tuple(self._sets),
            removes=tuple(self._removes),
            names=MappingProxyType(self._names),
            values=MappingProxyType(self._values),
            item=item,
        )
