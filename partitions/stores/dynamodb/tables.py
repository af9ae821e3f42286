"""
The table of leases: what is asked of DynamoDB to make one, and what a description of one says about it.

Pure: knows the shapes of CreateTable and DescribeTable and no client. `problems_of` is what a host cannot run on;
`findings_of` is everything that `processor-host table check` tells, also what only differs from a table made here.

- The keys are fixed: `pk` and `sk`, both strings (DESIGN section 3). Nothing else of a table can break a host but a
  status in which it takes no requests and replicas in other regions.
- Replicas: a conditional write is decided in one region and reaches the others later, so that two hosts in two regions
  may both win one lease, under one token. Fencing is not safe there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = [
    "KEYS",
    "Finding",
    "Verdict",
    "create_request",
    "findings_of",
    "keys_of",
    "problems_of",
    "replica_regions_of",
]

KEYS: Final = ("pk", "sk")
"""The hash key and the range key; both are strings."""

USABLE: Final = ("ACTIVE", "UPDATING", "ARCHIVING")
"""A table in one of these states takes requests; one that is being archived answers them until it is."""

_UNUSABLE: Final = {
    "DELETING": "somebody deletes it: wait until it is gone, then make it with 'processor-host table create'",
    "ARCHIVED": "restore it from the backup that was made of it, or name another table",
    "INACCESSIBLE_ENCRYPTION_CREDENTIALS": "give the table access to its KMS key again",
}
"""What to do about a state that does not pass by itself."""

PAY_PER_REQUEST: Final = "PAY_PER_REQUEST"


class Verdict(StrEnum):
    """What a finding means for a host."""

    OK = "ok"
    DIFFERS = "differs"
    """A host runs on it; a table that is made here would be otherwise."""
    WRONG = "wrong"
    """A host refuses it."""
    UNKNOWN = "unknown"
    """The server does not say, or knows no such property."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One property of a table: what was found, what was expected, and what that means."""

    property: str
    found: str
    expected: str
    verdict: Verdict
    remedy: str = ""
    """What to do, where the verdict is not OK."""


def create_request(table: str, *, is_protected: bool = True, tags: Mapping[str, str] | None = None) -> dict[str, Any]:
    """
    Return the arguments of CreateTable.

    On-demand billing: a group at rest writes a few times per lease duration, and a start or a failure of many hosts is
    a burst that no provisioned capacity foresees.

    Args:
        table: The table's name.
        is_protected: Whether DeleteTable is refused until the protection is taken off.
        tags: Key → value.
    """
    request: dict[str, Any] = {
        "TableName": table,
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for key in KEYS],
        "KeySchema": [
            {"AttributeName": key, "KeyType": kind} for key, kind in zip(KEYS, ("HASH", "RANGE"), strict=True)
        ],
        "BillingMode": PAY_PER_REQUEST,
        "DeletionProtectionEnabled": is_protected,
    }
    if tags:
        # Left out where there are none: tags need a permission of their own.
        request["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
    return request


def keys_of(description: Mapping[str, Any]) -> tuple[str, ...]:
    """
    Return the names of a table's keys, the hash key first.

    A key that is no string has its type behind it, as in `pk:N`, so that such a table never passes for one of ours.
    """
    types = {each["AttributeName"]: each["AttributeType"] for each in description.get("AttributeDefinitions", ())}
    schema = sorted(description.get("KeySchema", ()), key=lambda each: str(each["KeyType"]))
    names = (str(each["AttributeName"]) for each in schema)
    return tuple(name if types.get(name, "S") == "S" else f"{name}:{types[name]}" for name in names)


def replica_regions_of(description: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the other regions that a global table has replicas in, sorted; its own is not among them."""
    arn = str(description.get("TableArn", "")).split(":")
    own = arn[3] if len(arn) > 3 else ""
    return tuple(sorted({str(each["RegionName"]) for each in description.get("Replicas") or ()} - {own}))


def problems_of(description: Mapping[str, Any], *, allow_replicas: bool = False) -> tuple[Finding, ...]:
    """Return why a host cannot run on the table; empty where it can."""
    essential = (_keys(description), _replicas(description, allow_replicas), _status(description))
    return tuple(each for each in essential if each.verdict is Verdict.WRONG)


def findings_of(
    description: Mapping[str, Any],
    *,
    has_backups: bool | None,
    wants_backups: bool = True,
    wants_protection: bool = True,
    allow_replicas: bool = False,
) -> tuple[Finding, ...]:
    """
    Return everything that is told of a table.

    Args:
        description: The `Table` of a DescribeTable answer.
        has_backups: Whether point-in-time recovery is on; None where the server does not know it.
        wants_backups: Whether it should be.
        wants_protection: Whether deletion protection should be on.
        allow_replicas: Whether the user has said that replicas in other regions are no matter.
    """
    protection = description.get("DeletionProtectionEnabled")
    return (
        _status(description),
        _keys(description),
        _replicas(description, allow_replicas),
        _billing(description),
        _switch("point-in-time recovery", has_backups, wants_backups),
        _switch("deletion protection", None if protection is None else bool(protection), wants_protection),
    )


def _status(description: Mapping[str, Any]) -> Finding:
    status = str(description.get("TableStatus", "unknown"))
    return Finding(
        property="status",
        found=status,
        expected=" or ".join(USABLE[:2]),
        verdict=Verdict.OK if status in USABLE else Verdict.WRONG,
        remedy="" if status in USABLE else _UNUSABLE.get(status, "wait until it is ACTIVE"),
    )


def _keys(description: Mapping[str, Any]) -> Finding:
    keys = keys_of(description)
    return Finding(
        property="key schema",
        found=_tuple(keys),
        expected=_tuple(KEYS),
        verdict=Verdict.OK if keys == KEYS else Verdict.WRONG,
        remedy="" if keys == KEYS else "name another table, and make it with 'processor-host table create'",
    )


def _replicas(description: Mapping[str, Any], allow_replicas: bool) -> Finding:
    regions = replica_regions_of(description)
    is_wrong = bool(regions) and not allow_replicas
    return Finding(
        property="replicas",
        found=", ".join(regions) or "none",
        expected="none in another region" if not allow_replicas else "any",
        verdict=Verdict.WRONG if is_wrong else Verdict.OK,
        remedy="use a table without replicas: two regions may both grant one lease" if is_wrong else "",
    )


def _billing(description: Mapping[str, Any]) -> Finding:
    # A table that always was provisioned has no summary.
    mode = str((description.get("BillingModeSummary") or {}).get("BillingMode", "PROVISIONED"))
    is_expected = mode == PAY_PER_REQUEST
    return Finding(
        property="billing",
        found=mode,
        expected=PAY_PER_REQUEST,
        verdict=Verdict.OK if is_expected else Verdict.DIFFERS,
        remedy="" if is_expected else "switch it to on-demand, or give it capacity for the start of all hosts at once",
    )


def _switch(name: str, found: bool | None, wanted: bool) -> Finding:
    expected = "on" if wanted else "off"
    if found is None:
        return Finding(property=name, found="not known to this server", expected=expected, verdict=Verdict.UNKNOWN)
    return Finding(
        property=name,
        found="on" if found else "off",
        expected=expected,
        # Nobody is worse off with more of it than asked for.
        verdict=Verdict.OK if found or not wanted else Verdict.DIFFERS,
        remedy="" if found or not wanted else f"turn {name} on",
    )


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(repr(name) for name in names)})"
