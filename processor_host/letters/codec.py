"""
Letters as JSON objects: one form for every sink that keeps text.

A payload that is a text to people stands there as text (`data`), any other as base64 (`data_base64`).
Everything is ASCII, so that neither a queue nor a terminal refuses a character. Fields that are not known are left out
of what is read, so an older version reads a newer one's letters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from processor_host.letters.base import Letter

__all__ = ["as_fields", "from_fields", "from_json", "to_json"]


def to_json(letter: Letter) -> str:
    """Return the letter as one line of ASCII."""
    return json.dumps(as_fields(letter), ensure_ascii=True, separators=(",", ":"))


def from_json(text: str | bytes) -> Letter:
    """
    Read what `to_json` has made.

    Raises:
        ValueError: it is no letter; the text says what is wrong.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 (of a line in a file, not of an argument)
    return from_fields(fields)


def as_fields(letter: Letter) -> dict[str, Any]:
    """Return the letter as a JSON object, its name (`id`) first."""
    fields: dict[str, Any] = {
        "id": letter.id,
        "group": letter.group,
        "partition": letter.partition,
        "position": letter.position,
        "after": letter.after,
        "key": letter.key,
        "stage": letter.stage,
        "error": letter.error,
        "attempts": letter.attempts,
        "host_id": letter.host_id,
        "token": letter.token,
        "time_s": letter.time_s,
        "source": letter.source,
        "record_time_s": letter.record_time_s,
        "headers": dict(letter.headers),
        "traceback": letter.traceback,
        "data_bytes": letter.data_bytes,
        "is_whole": letter.is_whole,
    }
    if letter.pointer is not None:
        fields["pointer"] = letter.pointer
    name, data = _payload(letter.data)
    fields[name] = data
    return fields


def from_fields(fields: Mapping[str, Any], *, data: bytes | None = None) -> Letter:
    """
    Read what `as_fields` has made.

    Args:
        fields: The object.
        data: The payload, where the sink keeps bytes beside it.

    Raises:
        ValueError: a field lacks, or is of another kind.
    """
    try:
        key, record_time_s = fields["key"], fields["record_time_s"]
        return Letter(
            **{name: _of(str, fields, name) for name in _TEXTS},
            **{name: _of(int, fields, name) for name in _NUMBERS},
            key=None if key is None else _of(str, fields, "key"),
            data=_data(fields) if data is None else data,
            is_whole=_of(bool, fields, "is_whole"),
            headers=MappingProxyType({str(name): str(value) for name, value in _of(dict, fields, "headers").items()}),
            record_time_s=None if record_time_s is None else float(record_time_s),
            time_s=float(fields["time_s"]),
        )
    except KeyError as error:
        raise ValueError(f"field {error.args[0]!r} is missing") from error
    except TypeError as error:
        raise ValueError(str(error)) from error


_TEXTS = ("group", "partition", "position", "after", "source", "stage", "error", "traceback", "host_id")
_NUMBERS = ("data_bytes", "attempts", "token")


def _of(kind: type, fields: Mapping[str, Any], name: str) -> Any:
    value = fields[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"field {name!r} is {value!r}, expected {kind.__name__}")
    return value


def _payload(data: bytes) -> tuple[str, str]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    # Of what nobody can read, escapes would take six characters for each byte.
    is_readable = all(character.isprintable() or character in "\n\r\t" for character in text)
    return ("data", text) if is_readable else ("data_base64", base64.b64encode(data).decode("ascii"))


def _data(fields: Mapping[str, Any]) -> bytes:
    if "data" in fields:
        data: bytes = _of(str, fields, "data").encode("utf-8")
        return data
    return base64.b64decode(_of(str, fields, "data_base64"), validate=True)
