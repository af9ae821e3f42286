"""
Where something on AWS is: a region and, for tests and private endpoints, another address.

Knows no client. Parses the part of a URL after the question mark, such as `region=eu-west-1&endpoint_url=…`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus, urlsplit

__all__ = ["AwsPlace", "parse_place", "query_of"]

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
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        key, _, value = pair.partition("=")
        key, value = unquote_plus(key), unquote_plus(value)
        if key not in _KEYS:
            raise ValueError(f"unknown key {key!r}, expected {' or '.join(_KEYS)}; correct it or leave it out")
        if key in found:
            raise ValueError(f"{key} is given twice, as {found[key]!r} and {value!r}, expected once; leave one out")
        if not value:
            raise ValueError(f"{key} is empty, expected a value; give one or leave {key}= out")
        found[key] = value
    region, endpoint_url = found.get("region"), found.get("endpoint_url")
    if region is not None and not _REGION.fullmatch(region):
        raise ValueError(f"region={region!r} is no region, expected one such as 'eu-west-1'; correct it")
    if endpoint_url is not None and not _is_address(endpoint_url):
        raise ValueError(
            f"endpoint_url={endpoint_url!r} is no address, expected one such as 'http://127.0.0.1:8000'; correct it"
        )
    return AwsPlace(region=region, endpoint_url=endpoint_url)


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
