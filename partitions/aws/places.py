"""
Where something on AWS is: a region and, for tests and private endpoints, another address.

Knows no client. Parses the part of a URL after the question mark, such as `region=eu-west-1&endpoint_url=…`; what else
may stand there, the caller names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus, urlsplit

__all__ = ["AwsPlace", "parse_place", "parse_query", "query_of"]

_KEYS: Final = ("region", "endpoint_url")
_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsPlace:
    """A region and an address; None is what the SDK finds in the environment and in its own files."""

    region: str | None = None
    endpoint_url: str | None = None


def parse_place(query: str) -> AwsPlace:
    """
    Return the place that the query part of a URL names.

    Args:
        query: What stands after the question mark, percent-encoded; may be empty.

    Raises:
        ValueError: an unknown or doubled key, or a value that can be no region or address.
    """
    return parse_query(query)[0]


def parse_query(query: str, also: Sequence[str] = ()) -> tuple[AwsPlace, dict[str, str]]:
    """
    Return the place that the query part of a URL names, and what it says beside that.

    Args:
        query: As for `parse_place`.
        also: The other keys that may stand in it.

    Raises:
        ValueError: as `parse_place`.
    """
    found: dict[str, str] = {}
    keys = (*_KEYS, *also)
    for pair in query.split("&") if query else ():
        key, _, value = pair.partition("=")
        key, value = unquote_plus(key), unquote_plus(value)
        if key not in keys:
            raise ValueError(f"unknown key {key!r}, expected {' or '.join(keys)}; correct it or leave it out")
        if key in found:
            raise ValueError(f"{key} is given twice, as {found[key]!r} and {value!r}, expected once; leave one out")
        if not value:
            raise ValueError(f"{key} is empty, expected a value; give one or leave {key}= out")
        found[key] = value
    region, endpoint_url = found.pop("region", None), found.pop("endpoint_url", None)
    if region is not None and not _REGION.fullmatch(region):
        raise ValueError(f"region={region!r} is no region, expected one such as 'eu-west-1'; correct it")
    if endpoint_url is not None and not _is_address(endpoint_url):
        # Without a name and a password, which must not get into a log.
        shown = re.sub(r"//[^/]*@", "//…@", endpoint_url)
        raise ValueError(
            f"endpoint_url={shown!r} is no address, expected one such as 'http://127.0.0.1:8000'; correct it"
        )
    return AwsPlace(region=region, endpoint_url=endpoint_url), found


def query_of(place: AwsPlace) -> str:
    """Return the query part that `parse_place` reads as `place`; empty where the environment decides."""
    pairs = (("region", place.region), ("endpoint_url", place.endpoint_url))
    return "&".join(f"{key}={quote(value, safe=':/')}" for key, value in pairs if value is not None)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        return False
    has_more = parts.query or parts.fragment or parts.username or parts.password
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and port_is_valid and not has_more
