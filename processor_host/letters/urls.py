"""
What a user names with a URL: a sink of dead letters. The one place that knows which kinds there are.

The module of a sink is loaded only when one of its kind is named.
"""

from __future__ import annotations

import re
from typing import Final

from partitions.aws.places import AwsPlace, parse_place
from processor_host.errors import UserError
from processor_host.letters.base import LetterBox
from processor_host.urls import parse_file_url, scheme_of

__all__ = ["SINKS", "open_sink"]

SINKS: Final = (
    "file:letters.jsonl",
    "sqlite:letters.db",
    "sqs://orders-letters?region=eu-west-1",
    "dynamodb://orders-letters?region=eu-west-1",
)
"""One URL of each kind."""

_NAMES: Final = {
    "sqs": ("queue", re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo|[A-Za-z0-9_-]{1,80}"), "1 to 80 of A-Z, a-z, 0-9, _ and -"),
    "dynamodb": ("table", re.compile(r"[A-Za-z0-9_.-]{3,255}"), "3 to 255 of A-Z, a-z, 0-9, '_', '.' and '-'"),
}
"""What stands after the slashes, and which names AWS takes."""


def open_sink(url: str, *, makes: bool = True) -> LetterBox:
    """
    Return the sink that a URL names; its `open` connects.

    Args:
        url: Names the sink.
        makes: Whether its `open` may make a file that is not there. Queues and tables are never made.

    Raises:
        UserError: the URL names no kind of sink, or is malformed.
    """
    match scheme_of(url):
        case "file":
            from processor_host.letters.file import FileLetters

            return FileLetters(parse_file_url(url, "file"), makes=makes)
        case "sqlite":
            from processor_host.letters.sqlite import SqliteLetters

            return SqliteLetters(parse_file_url(url, "sqlite"), makes=makes)
        case "sqs":
            name, place = _named(url, "sqs")
            from processor_host.letters.sqs import SqsLetters

            return SqsLetters(name, place)
        case "dynamodb":
            name, place = _named(url, "dynamodb")
            from processor_host.letters.dynamodb import DynamoLetters

            return DynamoLetters(name, place)
    raise UserError(f"{url!r} names no sink of dead letters; use for instance {', '.join(SINKS)}")


def _named(url: str, scheme: str) -> tuple[str, AwsPlace]:
    """Read `<scheme>://<name>?region=…&endpoint_url=…`."""
    what, names, expected = _NAMES[scheme]
    rest, _, query = url.removeprefix(f"{scheme}:").partition("?")
    name = rest.removeprefix("//")
    if rest == name or not names.fullmatch(name):
        example = next(each for each in SINKS if each.startswith(f"{scheme}:"))
        raise UserError(f"{url!r} names no {what}; expected '{scheme}://' and {expected}; use for instance '{example}'")
    try:
        return name, parse_place(query)
    except ValueError as error:
        raise UserError(f"{url!r}: {error}") from error
