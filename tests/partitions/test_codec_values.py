"""Single values: each comes back as it was, in the type of its field."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.codecs.values import (
    flag_from,
    is_scalar,
    number_from,
    scalar_from,
    text_from,
    to_flag,
    to_number,
    to_scalar,
    to_text,
    whole_from,
)
from partitions.items import Scalar

__all__: list[str] = []

WHOLE_MAX = 10**38 - 1
FLOATS = st.floats(min_value=1e-130, max_value=9.99e125) | st.floats(min_value=-9.99e125, max_value=-1e-130)
WHOLES = st.integers(-WHOLE_MAX, WHOLE_MAX)


def digits(number: str) -> int:
    """How many significant digits a number has."""
    return len(Decimal(number).as_tuple().digits)


@given(FLOATS | st.just(0.0))
def test_a_float_comes_back_to_the_bit_and_fits(value: float) -> None:
    """A weight that changes on its way would move the plan; a number of more than 38 digits is refused by DynamoDB."""
    written = to_number(value)

    assert number_from(written) == value
    assert scalar_from(written) == value
    assert digits(written["N"]) <= 38


@given(WHOLES)
def test_a_whole_number_comes_back_exactly(value: int) -> None:
    """Tokens and sequence numbers are compared; a float in between would round the large ones."""
    written = to_number(value)

    assert whole_from(written) == value
    assert (scalar_from(written), type(scalar_from(written))) == (value, int)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e-200, 1e200, WHOLE_MAX + 1, -WHOLE_MAX - 1])
def test_a_number_that_does_not_fit_is_refused_with_its_value(value: float) -> None:
    """DynamoDB would refuse the whole request, and its text names no field."""
    with pytest.raises(ValueError, match=r"DynamoDB"):
        to_number(value)


@given(st.none() | st.booleans() | st.text() | WHOLES | FLOATS.filter(lambda value: not value.is_integer()))
def test_a_value_for_people_comes_back_with_its_type(value: Scalar) -> None:
    """True is not 1, "1" is not 1, and nothing is not an empty text."""
    found = scalar_from(to_scalar(value))

    assert (found, type(found)) == (value, type(value))


def test_values_are_written_as_dynamodb_names_their_types() -> None:
    """The names are the protocol: "1" and 1 differ in them alone."""
    assert [to_scalar(value) for value in (None, True, "", 7, 0.5)] == [
        {"NULL": True},
        {"BOOL": True},
        {"S": ""},
        {"N": "7"},
        {"N": "0.5"},
    ]
    assert (text_from(to_text("ü")), flag_from(to_flag(False))) == ("ü", False)


@pytest.mark.parametrize("attribute", [{"SS": ["a"]}, {"M": {}}, {"L": []}, {"B": b""}, {"NS": ["1"]}])
def test_sets_lists_maps_and_bytes_are_no_single_values(attribute: dict[str, object]) -> None:
    """`extra` holds what every store can keep; these stay in the item, unseen."""
    assert is_scalar(attribute) is False
