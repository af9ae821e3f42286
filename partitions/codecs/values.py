"""
Single values as DynamoDB writes them: `{"S": "text"}`, `{"N": "1.5"}`, `{"BOOL": True}` and the like.

Knows no item. A number is a decimal text of at most 38 digits, between 1E-130 and 1E126 in size; every whole number of
that many digits and every float between those bounds comes back to the bit. Of a whole number nobody can tell whether
it was written as 1 or as 1.0, so a field whose type is not known comes back as an int.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from partitions.items import Scalar

__all__ = [
    "Attribute",
    "flag_from",
    "is_scalar",
    "number_from",
    "scalar_from",
    "text_from",
    "to_flag",
    "to_number",
    "to_scalar",
    "to_text",
    "whole_from",
]

Attribute = Mapping[str, Any]
"""A value beside the name of its type, as `{"S": "text"}`."""

DIGITS_MAX: Final = 38
_WHOLE_MAX: Final = 10**DIGITS_MAX
_SMALLEST: Final = 1e-130
_LARGEST: Final = 9.99e125


def to_text(value: str) -> Attribute:
    """Return a text; it may be empty."""
    return {"S": value}


def to_flag(value: bool) -> Attribute:
    """Return a truth."""
    return {"BOOL": value}


def to_number(value: int | float) -> Attribute:
    """
    Return a number.

    Raises:
        ValueError: it does not fit a number of DynamoDB.
    """
    if isinstance(value, float):
        if value != 0 and not _SMALLEST <= abs(value) <= _LARGEST:
            raise ValueError(f"{value!r} does not fit a number of DynamoDB, expected 0 or 1E-130 to 9.99E+125 in size")
        # A whole float in all of its digits, because it comes back as an int: 1e+23 is not 10**23.
        return {"N": str(int(value)) if value.is_integer() and abs(value) < _WHOLE_MAX else repr(value)}
    if abs(value) >= _WHOLE_MAX:
        raise ValueError(f"{value!r} has more than {DIGITS_MAX} digits, which no number of DynamoDB has; write a text")
    return {"N": str(int(value))}


def to_scalar(value: Scalar) -> Attribute:
    """
    Return a value of any of the types that a field for people may have.

    Raises:
        ValueError: a number that does not fit.
    """
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return to_flag(value)
    return to_text(value) if isinstance(value, str) else to_number(value)


def text_from(attribute: Attribute) -> str:
    """Return a text; raises KeyError where it is none."""
    text: str = attribute["S"]
    return text


def flag_from(attribute: Attribute) -> bool:
    """Return a truth; raises KeyError where it is none."""
    return bool(attribute["BOOL"])


def whole_from(attribute: Attribute) -> int:
    """Return a whole number; raises KeyError where it is no number."""
    return int(Decimal(attribute["N"]))


def number_from(attribute: Attribute) -> float:
    """Return a number; raises KeyError where it is none."""
    return float(attribute["N"])


def is_scalar(attribute: Attribute) -> bool:
    """Say whether `scalar_from` can read it; sets, lists, maps and bytes it cannot."""
    return not attribute.keys().isdisjoint(("S", "N", "BOOL", "NULL"))


def scalar_from(attribute: Attribute) -> Scalar:
    """Return a value of a field whose type is not known. Whole numbers are ints."""
    if "N" in attribute:
        number = Decimal(attribute["N"])
        # Compared and not made absolute, which would round to 28 digits.
        is_whole = -_WHOLE_MAX < number < _WHOLE_MAX and number == number.to_integral_value()
        return int(number) if is_whole else float(number)
    if "BOOL" in attribute:
        return flag_from(attribute)
    return None if "NULL" in attribute else text_from(attribute)
