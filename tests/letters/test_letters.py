"""
What a letter holds: the whole record where it fits, a pointer to it where it does not, and JSON that brings it back.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.sources.base import Record
from processor_host.letters.base import Letter, fitted, letter_of, record_of
from processor_host.letters.codec import as_fields, from_json, to_json
from tests.letters.builders import a_letter

__all__: list[str] = []

RECORD = Record(
    partition="p0", position="7", key="N123", data=b'{"delay":1}', time_s=1_700_000_000.25, headers={"h": "x"}
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LETTERS = st.builds(
    a_letter,
    position=TEXT,
    partition=TEXT,
    key=st.none() | TEXT,
    data=st.binary(max_size=400) | TEXT.map(lambda text: text.encode() * 5),
    headers=st.dictionaries(TEXT, TEXT, max_size=3),
    error=TEXT,
    traceback=TEXT.map(lambda text: text * 20),
    record_time_s=st.none() | st.floats(0, 2e9),
    token=st.integers(0, 10**12),
)


def size(letter: Letter) -> int:
    return len(to_json(letter))


def made(error: BaseException) -> Letter:
    return letter_of(
        RECORD,
        error=error,
        stage="process",
        attempts=3,
        after="6",
        source="local:s.db",
        group="delays",
        host_id="a",
        token=4,
        time_s=1_700_000_100.5,
    )


def test_letter_has_everything_that_is_known_of_the_failure() -> None:
    """Who finds it in a year has nothing else: no log, no host, maybe no stream."""
    try:
        raise ValueError("bad")
    except ValueError as error:
        letter = made(error)

    assert replace(letter, traceback="") == a_letter(traceback="")
    assert letter.traceback.startswith("Traceback (most recent call last):")
    assert letter.traceback.endswith("ValueError: bad\n")
    assert (letter.id, letter.pointer, record_of(letter)) == ("p0@4/7", None, RECORD)


def test_letter_bounds_what_an_error_says() -> None:
    """An error that quotes its input, or a recursion, must not be larger than the record."""
    letter = made(ValueError("x" * 50_000))

    assert (len(letter.error), len(letter.traceback)) == (2_000, 16_000)
    assert letter.traceback.endswith("xxx\n")


def test_letter_is_made_of_an_error_that_has_no_text() -> None:
    """A record may be given up for a failure that cannot even be told."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

        def __repr__(self) -> str:
            raise RuntimeError("no text")

    assert made(Mute()).error == "Mute"


@given(letter=LETTERS)
def test_letter_comes_back_from_json(letter: Letter) -> None:
    """One line of ASCII, whatever is in it, and the very same letter again."""
    text = to_json(letter)

    assert from_json(text) == letter
    assert text.isascii()
    assert "\n" not in text


def test_json_of_a_letter_shows_a_text_as_text() -> None:
    """People read these lines, and search them."""
    assert json.loads(to_json(a_letter(data='{"näme":"ö"}'.encode())))["data"] == '{"näme":"ö"}'


@pytest.mark.parametrize("data", [b"\xff\x00", b"\x00\x01\x02"])
def test_json_of_a_letter_packs_what_is_no_text_or_would_grow(data: bytes) -> None:
    """Escapes take six characters for a byte, which no limit of a sink could count on."""
    fields = as_fields(a_letter(data=data))

    assert ("data" in fields, "data_base64" in fields) == (False, True)


@given(letter=LETTERS, limit=st.integers(1_000, 3_000))
def test_fitted_letter_takes_no_more_than_the_limit_and_names_its_record(letter: Letter, limit: int) -> None:
    """A sink that refuses a letter would block the partition for good."""
    kept = fitted(letter, size, limit)

    names = ("group", "partition", "position", "after", "source", "attempts", "token", "data_bytes")
    assert size(kept) <= limit
    assert [getattr(kept, name) for name in names] == [getattr(letter, name) for name in names]
    assert kept == letter if size(letter) <= limit else (letter.data.startswith(kept.data) and not kept.is_whole)


def test_cut_letter_uses_the_room_it_has_and_says_where_the_record_is() -> None:
    """As much of the payload as fits is kept, since the source drops its records one day."""
    letter = a_letter(data=bytes(range(256)) * 400)
    kept = fitted(letter, size, 5_000)

    assert 4_900 < size(kept) <= 5_000
    assert (kept.data, kept.key, kept.headers) == (letter.data[: len(kept.data)], letter.key, letter.headers)
    assert kept.pointer == "local:s.db, partition p0, the record after position 6"
    with pytest.raises(ValueError, match=f"has {len(kept.data)} of 102400 bytes: local:s.db, partition p0"):
        record_of(kept)


def test_cut_letter_of_a_text_that_grows_by_its_escapes_fits_all_the_same() -> None:
    """A text of other letters than ASCII takes up to three bytes for one in JSON, and is still worth reading."""
    kept = fitted(a_letter(data="щ".encode() * 5_000), size, 5_000)

    assert size(kept) <= 5_000
    assert "data" in as_fields(kept)
    assert len(kept.data) > 1_000


def test_cut_letter_drops_headers_and_traceback_only_where_they_alone_are_too_large() -> None:
    """Nobody bounds what a producer writes into headers and keys."""
    letter = a_letter(headers={"h": "x" * 9_000}, key="k" * 9_000, traceback="t" * 9_000)
    kept = fitted(letter, size, 2_000)

    assert (kept.headers, kept.key, kept.error, kept.is_whole) == ({}, None, letter.error, False)
    with pytest.raises(ValueError, match="bytes without payload, limit 100"):
        fitted(letter, size, 100)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON: "),
        ("[]", "no JSON object"),
        ("{}", "field 'key' is missing"),
        (json.dumps(as_fields(a_letter()) | {"token": "4"}), "field 'token' is '4', expected int"),
        (json.dumps(as_fields(a_letter()) | {"is_whole": 1}), "field 'is_whole' is 1, expected bool"),
        (json.dumps(as_fields(a_letter()) | {"time_s": None}), "float() argument must be"),
    ],
)
def test_what_is_no_letter_is_refused_with_the_reason(text: str, why: str) -> None:
    """A file of letters may be edited by hand, and a queue may hold anything."""
    with pytest.raises(ValueError, match=f"^{re.escape(why)}"):
        from_json(text)


def test_fields_of_a_newer_version_are_left_out() -> None:
    """A fleet is not updated at one moment."""
    fields: dict[str, Any] = as_fields(a_letter()) | {"colour": "red"}

    assert from_json(json.dumps(fields)) == a_letter()
