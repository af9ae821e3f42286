"""
The table of leases as DynamoDB describes it: what a host cannot run on, and what is told of one.
"""

from __future__ import annotations

from typing import Any

import pytest

from partitions.stores.dynamodb.tables import (
    Finding,
    Verdict,
    create_request,
    findings_of,
    keys_of,
    problems_of,
    replica_regions_of,
)

__all__: list[str] = []


def described(**changes: Any) -> dict[str, Any]:
    """A table as `table create` makes it, with changes."""
    request = create_request("leases")
    return {
        "TableArn": "arn:aws:dynamodb:eu-west-1:123456789012:table/leases",
        "TableStatus": "ACTIVE",
        "BillingModeSummary": {"BillingMode": request["BillingMode"]},
        **{key: request[key] for key in ("AttributeDefinitions", "KeySchema", "DeletionProtectionEnabled")},
        **changes,
    }


def keys(*named: tuple[str, str]) -> dict[str, Any]:
    """Key names and their types, the hash key first."""
    kinds = ("HASH", "RANGE")
    return {
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in named],
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for (name, _), kind in zip(named, kinds, strict=False)],
    }


def test_request_makes_an_on_demand_table_with_two_text_keys_that_is_protected() -> None:
    """DESIGN section 3 names the keys; what deletes a table by accident ends every group in it."""
    assert create_request("leases", tags={"team": "flights"}) == {
        "TableName": "leases",
        "AttributeDefinitions": [
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        "BillingMode": "PAY_PER_REQUEST",
        "DeletionProtectionEnabled": True,
        "Tags": [{"Key": "team", "Value": "flights"}],
    }


def test_request_without_tags_names_none_and_protection_can_be_left_off() -> None:
    """Tags need a permission of their own, and so does a list of none; a table of a test is to be deleted."""
    request = create_request("leases", is_protected=False)

    assert ("Tags" in request, request["DeletionProtectionEnabled"]) == (False, False)


@pytest.mark.parametrize("status", ["ACTIVE", "UPDATING"])
def test_table_as_it_is_made_here_has_no_problem(status: str) -> None:
    """A table whose recovery or billing is being changed answers as ever."""
    assert problems_of(described(TableStatus=status)) == ()


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ([("id", "S")], "('id')"),
        ([("pk", "S")], "('pk')"),
        ([("sk", "S"), ("pk", "S")], "('sk', 'pk')"),
        ([("pk", "S"), ("sk", "N")], "('pk', 'sk:N')"),
    ],
)
def test_table_with_other_keys_is_refused(named: list[tuple[str, str]], told: str) -> None:
    """Every request on it would fail, each with another message; a table of some other program must stay as it is."""
    assert problems_of(described(**keys(*named))) == (
        Finding(
            property="key schema",
            found=told,
            expected="('pk', 'sk')",
            verdict=Verdict.WRONG,
            remedy="name another table, and make it with 'processor-host table create'",
        ),
    )


def test_keys_come_hash_first_whatever_the_order_of_the_answer() -> None:
    """No server promises an order."""
    table = described()
    table["KeySchema"] = table["KeySchema"][::-1]

    assert keys_of(table) == ("pk", "sk")


def test_replicas_in_other_regions_are_refused_unless_told_and_its_own_region_is_none() -> None:
    """Two regions may both grant one lease under one token; a list that names the table's own region says nothing."""
    own = described(Replicas=[{"RegionName": "eu-west-1"}])
    others = described(Replicas=[{"RegionName": region} for region in ("us-east-1", "eu-west-1", "ap-south-1")])

    assert (replica_regions_of(own), replica_regions_of(others)) == ((), ("ap-south-1", "us-east-1"))
    assert [(each.property, each.found) for each in problems_of(others)] == [("replicas", "ap-south-1, us-east-1")]
    assert problems_of(own) == problems_of(others, allow_replicas=True) == ()


@pytest.mark.parametrize("status", ["CREATING", "DELETING", "INACCESSIBLE_ENCRYPTION_CREDENTIALS", "ARCHIVED"])
def test_table_that_takes_no_requests_is_refused(status: str) -> None:
    """What a host would otherwise meet as an error of its first write."""
    assert [(each.property, each.found) for each in problems_of(described(TableStatus=status))] == [("status", status)]


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        ("CREATING", "wait until it is ACTIVE"),
        ("DELETING", "somebody deletes it: wait until it is gone, then make it with 'processor-host table create'"),
        ("INACCESSIBLE_ENCRYPTION_CREDENTIALS", "give the table access to its KMS key again"),
        ("ARCHIVED", "restore it from the backup that was made of it, or name another table"),
    ],
)
def test_table_that_takes_no_requests_is_told_with_what_helps(status: str, remedy: str) -> None:
    """Who waits for a table that is being deleted to be ACTIVE waits for ever."""
    assert [each.remedy for each in problems_of(described(TableStatus=status))] == [remedy]


def test_findings_tell_every_property_of_a_table_as_it_is_made_here() -> None:
    """A list in which something is missing looks the same whether or not it was looked at."""
    assert [(each.property, each.found, each.verdict) for each in findings_of(described(), has_backups=True)] == [
        ("status", "ACTIVE", Verdict.OK),
        ("key schema", "('pk', 'sk')", Verdict.OK),
        ("replicas", "none", Verdict.OK),
        ("billing", "PAY_PER_REQUEST", Verdict.OK),
        ("point-in-time recovery", "on", Verdict.OK),
        ("deletion protection", "on", Verdict.OK),
    ]


def test_findings_tell_what_differs_and_what_the_server_does_not_know() -> None:
    """A host runs on such a table: it is told, and refused by nobody."""
    table = described(DeletionProtectionEnabled=False)
    del table["BillingModeSummary"]

    assert [(each.found, each.verdict) for each in findings_of(table, has_backups=None)][3:] == [
        ("PROVISIONED", Verdict.DIFFERS),
        ("not known to this server", Verdict.UNKNOWN),
        ("off", Verdict.DIFFERS),
    ]
    assert problems_of(table) == ()


def test_findings_take_what_was_not_asked_for_as_it_is() -> None:
    """Who turned a protection off at the creation has said so; more than was asked for harms nobody."""
    off = described(DeletionProtectionEnabled=False)
    wishes: dict[str, bool] = {"wants_backups": False, "wants_protection": False}

    assert {each.verdict for each in findings_of(off, has_backups=False, **wishes)} == {Verdict.OK}
    assert {each.verdict for each in findings_of(described(), has_backups=True, **wishes)} == {Verdict.OK}
