"""
URLs of tables: what they say, and what is told of one that is wrong. Those of files are tested with the commands.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from partitions.aws.places import AwsPlace
from partitions.stores.dynamodb import DynamoDBStore
from processor_host.errors import UserError
from processor_host.urls import TableUrl, is_made_at_start, open_store, parse_table_url

__all__: list[str] = []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("dynamodb://leases", TableUrl(table="leases", place=AwsPlace(), allow_replicas=False)),
        (
            "dynamodb://my.leases-2_b?region=eu-west-1&endpoint_url=http://127.0.0.1:8000",
            TableUrl(
                table="my.leases-2_b",
                place=AwsPlace(region="eu-west-1", endpoint_url="http://127.0.0.1:8000"),
                allow_replicas=False,
            ),
        ),
        (
            "dynamodb://leases?endpoint_url=http%3A%2F%2Fdb%3A80&allow_replicas=true",
            TableUrl(table="leases", place=AwsPlace(endpoint_url="http://db:80"), allow_replicas=True),
        ),
    ],
)
def test_url_of_a_table_says_its_name_its_place_and_whether_replicas_are_taken(url: str, says: TableUrl) -> None:
    """What it leaves out, the SDK finds in the environment; replicas are taken only where somebody says so."""
    assert parse_table_url(url) == says


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("dynamodb:leases?region=eu-west-1", "lacks two slashes; did you mean 'dynamodb://leases?region=eu-west-1'?"),
        ("dynamodb://", "names no table: '' is not 3 to 255 of the characters"),
        ("dynamodb://le", "names no table: 'le' is not 3 to 255 of the characters"),
        ("dynamodb:///leases", "names no table: '/leases' is not 3 to 255"),
        ("dynamodb://leases/", "names no table: 'leases/' is not 3 to 255"),
        ("dynamodb://tische-für-uns", "names no table"),
        ("dynamodb://leases?table=x", "unknown key 'table', expected region or endpoint_url or allow_replicas"),
        ("dynamodb://leases?region=", "region is empty, expected a value"),
        ("dynamodb://leases?region=Ireland", "region='Ireland' is no region, expected one such as 'eu-west-1'"),
        ("dynamodb://leases?region=eu-west-1&region=eu-west-2", "region is given twice"),
        ("dynamodb://leases?endpoint_url=127.0.0.1:8000", "endpoint_url='127.0.0.1:8000' is no address"),
        ("dynamodb://leases?allow_replicas=yes", "allow_replicas='yes' is neither true nor false"),
        ("leases", "is not a dynamodb: URL; use for instance 'dynamodb://leases?region=eu-west-1'"),
    ],
)
def test_url_of_a_table_that_is_malformed_is_told_with_the_remedy(url: str, says: str) -> None:
    """A slip that is taken for something else is a group that starts anew in an empty table."""
    with pytest.raises(UserError, match="^" + re.escape(repr(url)) + ".*" + re.escape(says)):
        parse_table_url(url)


def test_url_of_a_table_opens_a_store_in_dynamodb() -> None:
    """The scheme alone says which store is meant."""
    store = open_store("dynamodb://leases?region=eu-west-1", call_timeout_s=1.0)

    assert (type(store), store.url) == (DynamoDBStore, "dynamodb://leases?region=eu-west-1")


def test_url_of_no_store_with_a_scheme_is_told_that_there_are_tables_too() -> None:
    """Who wrote a scheme was thinking of some server."""
    with pytest.raises(UserError, match=re.escape("or 'dynamodb://leases?region=eu-west-1' for a table in DynamoDB")):
        open_store("redis://leases", call_timeout_s=1.0)


def test_host_makes_files_at_its_start_and_never_a_table() -> None:
    """A slip in a table's name or region would begin all work anew, and no host needs the right to make one."""
    assert [is_made_at_start(url) for url in ("sqlite:leases.db", "dynamodb://leases")] == [True, False]


def test_urls_load_no_client_of_aws_before_a_table_is_opened() -> None:
    """A host on SQLite starts without it, and a slip in a URL is told at once."""
    code = (
        "import sys; from processor_host.urls import open_store, parse_table_url; "
        "open_store('sqlite:leases.db', call_timeout_s=1.0); parse_table_url('dynamodb://leases'); "
        "sys.exit(','.join(sorted({'aioboto3', 'botocore'} & set(sys.modules))) or 0)"
    )

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (loaded.returncode, loaded.stderr) == (0, "")
