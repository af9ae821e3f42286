"""
What a user names with a URL: sources and stores. The one place that knows which kinds there are.

Knows no host. The module of a source or store is loaded only when one of its kind is named, so that a host on SQLite
loads no client of another database.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from partitions.aws.places import AwsPlace, parse_query
from partitions.sources.base import Source
from partitions.stores.base import Store
from processor_host.errors import UserError

__all__ = [
    "SOURCES",
    "STORES",
    "TableUrl",
    "is_made_at_start",
    "open_source",
    "open_store",
    "parse_file_url",
    "parse_table_url",
    "scheme_of",
]

SOURCES: Final = ("local", "kinesis")
"""The schemes that `open_source` knows."""
STORES: Final = ("sqlite", "dynamodb")
"""The schemes that `open_store` knows."""

_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}", re.ASCII)
"""The names that DynamoDB takes."""

_TABLE_EXAMPLE: Final = "dynamodb://leases?region=eu-west-1"
_STREAM_EXAMPLE: Final = "kinesis://flights?region=eu-west-1"


def open_source(url: str, *, beside: bool = False) -> Source:
    """
    Return the source that a URL names; its `open` connects.

    Args:
        url: Names the source.
        beside: It is for somebody who looks on beside the hosts of a group, and may take nothing from them: a consumer
            in Kinesis has one subscription to a shard, which a second reader would take over.

    Raises:
        UserError: the URL names no kind of source, or is malformed.
    """
    if scheme_of(url) == "local":
        from partitions.sources.local import LocalSource

        return LocalSource(parse_file_url(url, "local"))
    if scheme_of(url) == "kinesis":
        from partitions.sources.kinesis import KinesisSource, parse_url

        try:
            place = parse_url(url)
            return KinesisSource(replace(place, consumer=None) if beside else place)
        except ValueError as error:
            raise UserError(f"{url!r}: {error}") from error
    stream = f", or '{_STREAM_EXAMPLE}' for a stream in Kinesis" if scheme_of(url) else ""
    raise UserError(f"{url!r} names no source; {_expected('local', 's.db', url)}{stream}")


def open_store(url: str, *, call_timeout_s: float) -> Store:
    """
    Return the store that a URL names; its `open` connects.

    Args:
        url: Names the store.
        call_timeout_s: When callers give up a call, seconds: nothing may be written later.

    Raises:
        UserError: the URL names no kind of store, or is malformed.
    """
    if scheme_of(url) == "sqlite":
        from partitions.stores.sqlite import SqliteStore

        return SqliteStore(parse_file_url(url, "sqlite"), call_timeout_s=call_timeout_s)
    if scheme_of(url) == "dynamodb":
        # Parsed before its module is loaded, which takes a second: a slip is told at once.
        named = parse_table_url(url)
        from partitions.stores.dynamodb import DynamoDBStore

        return DynamoDBStore(
            named.table, place=named.place, call_timeout_s=call_timeout_s, allow_replicas=named.allow_replicas
        )
    # Who wrote a plain path meant a file.
    table = f", or '{_TABLE_EXAMPLE}' for a table in DynamoDB" if scheme_of(url) else ""
    raise UserError(f"{url!r} names no store; {_expected('sqlite', 'leases.db', url)}{table}")


def is_made_at_start(url: str) -> bool:
    """
    Say whether a host may make the store where it is not there.

    A file of leases costs nothing and is nobody else's. A table costs money, needs rights that no host should have, and
    a slip in its name or region would silently begin all work anew: `processor-host table create` makes it.
    """
    return scheme_of(url) == "sqlite"


def scheme_of(url: str) -> str:
    """Return what stands before the first colon; empty if there is none."""
    scheme, colon, _ = url.partition(":")
    return scheme if colon else ""


def parse_file_url(url: str, scheme: str) -> Path:
    """
    Return the file that `<scheme>:///absolute/path` or `<scheme>:relative/path` names, as an absolute path.

    A relative one is in the current folder. Nothing in a path is special: no `%20`, no `~`, no `?`.

    Raises:
        UserError: the URL is of another scheme, names no file or one in memory, has two slashes, after which a host
            would stand, or begins with a `~` that a shell would have replaced in another place.
    """
    if scheme_of(url) != scheme:
        raise UserError(f"{url!r} is not a {scheme}: URL; {_expected(scheme, 'file.db', url)}")
    rest = url.removeprefix(f"{scheme}:")
    if rest.startswith("//") and not rest.startswith("///"):
        name = rest.removeprefix("//") or "file.db"
        raise UserError(
            f"{url!r} has two slashes; use '{scheme}:{name}' for a file in the current folder, "
            f"or three slashes for a path from the root: '{scheme}:///{name}'"
        )
    if rest == ":memory:":
        raise UserError(
            f"{url!r} would be in the memory of one process, where no other one finds it; "
            + _expected(scheme, "file.db", "")
        )
    if (whole := os.path.expanduser(rest)) != rest:
        raise UserError(f"{url!r}: `~` is not expanded; write the whole path: '{scheme}://{whole}'")
    path = rest.removeprefix("//")
    if Path(path).name in ("", "..") or path.endswith("/") or "\0" in path:
        raise UserError(f"{url!r} names no file; {_expected(scheme, 'file.db', '')}")
    return Path.cwd() / path


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUrl:
    """What a URL of a table in DynamoDB says."""

    table: str
    place: AwsPlace
    allow_replicas: bool
    """Whether the table may have replicas in other regions: safe only where all hosts of a group are in one region."""


def parse_table_url(url: str) -> TableUrl:
    """
    Return what `dynamodb://TABLE?region=…&endpoint_url=…&allow_replicas=…` says.

    Region and address are found by the SDK where they are left out.

    Raises:
        UserError: the URL is of another scheme, its table's name is none, or its query says something unknown.
    """
    if scheme_of(url) != "dynamodb":
        raise UserError(f"{url!r} is not a dynamodb: URL; use for instance '{_TABLE_EXAMPLE}'")
    rest, _, query = url.removeprefix("dynamodb:").partition("?")
    table = rest.removeprefix("//")
    if rest == table and _TABLE.fullmatch(table):
        raise UserError(f"{url!r} lacks two slashes; did you mean 'dynamodb://{url.removeprefix('dynamodb:')}'?")
    if not _TABLE.fullmatch(table):
        raise UserError(
            f"{url!r} names no table: {table!r} is not 3 to 255 of the characters A-Z, a-z, 0-9, '_', '.' and '-'; "
            f"use for instance '{_TABLE_EXAMPLE}'"
        )
    try:
        place, options = parse_query(query, ("allow_replicas",))
    except ValueError as error:
        raise UserError(f"{url!r}: {error}") from error
    allowed = options.get("allow_replicas", "false")
    if allowed not in ("true", "false"):
        raise UserError(f"{url!r}: allow_replicas={allowed!r} is neither true nor false; correct it or leave it out")
    return TableUrl(table=table, place=place, allow_replicas=allowed == "true")


def _expected(scheme: str, example: str, given: str) -> str:
    """Say what to write; of a plain path, how to write that very one."""
    if given and ":" not in given:
        path = given.lstrip("/")
        return f"did you mean '{scheme}:///{path}'?" if given.startswith("/") else f"did you mean '{scheme}:{given}'?"
    return f"use '{scheme}:{example}' for a file in the current folder or '{scheme}:///folder/{example}'"
