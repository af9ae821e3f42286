"""
Whole items and the attributes in which DynamoDB keeps them.

Knows no verb. Each kind of item is a list of fields, a field is an attribute of its own name, and a field that is None
is no attribute at all; to add a field, add a line. Attributes that are in no list are `extra`, as long as their values
are single ones. Others, such as a set that a later version adds, are not shown and not touched: every update names the
attributes that it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from partitions.codecs.keys import PK, SK, Key, group_key, lease_key, lock_key, session_key
from partitions.codecs.values import (
    Attribute,
    flag_from,
    is_scalar,
    number_from,
    scalar_from,
    text_from,
    to_flag,
    to_number,
    to_scalar,
    to_text,
    whole_from,
)
from partitions.errors import StoreMisconfigured
from partitions.items import GroupItem, Known, LeaseItem, LockItem, Prepared, Scalar, SessionItem

__all__ = [
    "GROUP",
    "LEASE",
    "LOCK",
    "SESSION",
    "Attributes",
    "Codec",
    "asks_to",
    "extra_to",
    "known_to",
    "prepared_to",
    "texts_to",
]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

Attributes = dict[str, Attribute]
"""A whole item, its key included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """How the values of one field are written and read."""

    write: Callable[[Any], Attribute]
    read: Callable[[Attribute], Any]
    unwritten: Any = None
    """The value that is written as no attribute, as it is read from none."""


def texts_to(texts: tuple[str, ...]) -> Attribute:
    """Return a list of texts, in their order."""
    return {"L": [to_text(text) for text in texts]}


def _texts_from(attribute: Attribute) -> tuple[str, ...]:
    return tuple(text_from(each) for each in attribute["L"])


def asks_to(asks: Mapping[str, str]) -> Attribute:
    """Return the asks as a map, which updates reach into by their keys."""
    return {"M": {key: to_text(asker) for key, asker in asks.items()}}


def _asks_from(attribute: Attribute) -> Mapping[str, str]:
    return MappingProxyType({key: text_from(asker) for key, asker in attribute["M"].items()})


def known_to(known: Known) -> Attribute:
    """Return the count and the checksum as a map."""
    return {"M": {"count": to_number(known.count), "checksum": to_number(known.checksum)}}


def prepared_to(prepared: Prepared) -> Attribute:
    """Return the state and its position as a map."""
    return {"M": {"state": to_text(prepared.state), "position": to_text(prepared.position)}}


def _prepared_from(attribute: Attribute) -> Prepared:
    pair = attribute["M"]
    return Prepared(state=text_from(pair["state"]), position=text_from(pair["position"]))


def _known_from(attribute: Attribute) -> Known:
    pair = attribute["M"]
    return Known(count=whole_from(pair["count"]), checksum=whole_from(pair["checksum"]))


_TEXT: Final = Field(write=to_text, read=text_from)
_FLAG: Final = Field(write=to_flag, read=flag_from)
_WHOLE: Final = Field(write=to_number, read=whole_from)
_NUMBER: Final = Field(write=to_number, read=number_from)
# Nothing of a lease that nobody died of, and of a host that is well: a lease is read by every host.
_COUNT: Final = Field(write=to_number, read=whole_from, unwritten=0)
_TEXTS: Final = Field(write=texts_to, read=_texts_from)

_LEASE_FIELDS: Final = {
    "owner": _TEXT,
    "token": _WHOLE,
    "position": _TEXT,
    "seq": _WHOLE,
    "parents": _TEXTS,
    "finished": _FLAG,
    "paused": _FLAG,
    "weight": _NUMBER,
    "last_host": _TEXT,
    "attempts": _COUNT,
    "suspects": _COUNT,
    "prepared": Field(write=prepared_to, read=_prepared_from),
}
_SESSION_FIELDS: Final = {
    "host_id": _TEXT,
    "beat": _WHOLE,
    "duration_s": _NUMBER,
    "handoff_s": _NUMBER,
    "owned": _WHOLE,
    "load": _NUMBER,
    "capacity": _NUMBER,
    "max_leases": _WHOLE,
    "draining": _FLAG,
    "drain_asked": _FLAG,
    "known": Field(write=known_to, read=_known_from),
    "sick": Field(write=to_flag, read=flag_from, unwritten=False),
    "asks": Field(write=asks_to, read=_asks_from),
}
_LOCK_FIELDS: Final = {"owner": _TEXT, "token": _WHOLE, "expires": _FLAG, "holder": _TEXT}
_GROUP_FIELDS: Final = {
    "schema_version": _WHOLE,
    "source": _TEXT,
    "start": _TEXT,
    "plan_mode": _TEXT,
    "load_threshold": _NUMBER,
    "moves_max": _WHOLE,
    "weighed_by": _TEXT,
    "restore_count": _WHOLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec(Generic[T]):
    """One kind of item: both ways between the item and its attributes."""

    make: Callable[..., T]
    fields: Mapping[str, Field]
    key_of: Callable[[str, T], Key]
    """Its key in the group of this name."""
    key_field: str | None
    """The field that is the `sk`; None where there is one item alone."""

    def to_attributes(self, group: str, item: T) -> Attributes:
        """
        Return the attributes of an item of that group.

        Raises:
            ValueError: a number that does not fit, or an `extra` under the name of a field.
        """
        known = {name: getattr(item, name) for name in self.fields}
        written = {
            name: field.write(known[name])
            for name, field in self.fields.items()
            if known[name] not in (None, field.unwritten)
        }
        return self.key_of(group, item).attributes() | written | extra_to(item.extra, self.fields)

    def to_item(self, attributes: Attributes) -> T:
        """
        Return the item.

        Raises:
            StoreMisconfigured: a field is missing or of another type; something else has written the item.
        """
        known: dict[str, Any] = {} if self.key_field is None else {self.key_field: text_from(attributes[SK])}
        extra: dict[str, Scalar] = {}
        try:
            for name, attribute in attributes.items():
                if (field := self.fields.get(name)) is not None:
                    known[name] = field.read(attribute)
                elif name not in (PK, SK) and is_scalar(attribute):
                    extra[name] = scalar_from(attribute)
            return self.make(**known, extra=MappingProxyType(extra))
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            key = Key.of(attributes)
            raise StoreMisconfigured(
                f"the item with pk={key.pk!r} and sk={key.sk!r} is no {self.make.__name__} ({error!r}); "
                "something else has written it: repair or delete it"
            ) from error


def extra_to(extra: Mapping[str, Scalar], fields: Mapping[str, Field]) -> Attributes:
    """
    Return the attributes of fields for people.

    Raises:
        ValueError: one has the name of a field, or a number that does not fit.
    """
    if taken := sorted(name for name in extra if name in fields or name in (PK, SK)):
        raise ValueError(f"extra has {taken}, which are names of known fields; choose others")
    return {name: to_scalar(value) for name, value in extra.items()}


LEASE: Final = Codec(
    make=LeaseItem,
    fields=_LEASE_FIELDS,
    key_of=lambda group, lease: lease_key(group, lease.partition),
    key_field="partition",
)
SESSION: Final = Codec(
    make=SessionItem,
    fields=_SESSION_FIELDS,
    key_of=lambda group, session: session_key(group, session.session_id),
    key_field="session_id",
)
LOCK: Final = Codec(
    make=LockItem,
    fields=_LOCK_FIELDS,
    key_of=lambda group, lock: lock_key(group, lock.name),
    key_field="name",
)
GROUP: Final = Codec(make=GroupItem, fields=_GROUP_FIELDS, key_of=lambda group, _: group_key(group), key_field=None)
