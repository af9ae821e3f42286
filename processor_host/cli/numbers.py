"""
Numbers that a command is given, refused in the words of this program: which value, and what was expected.

Knows no command.
"""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["Number", "Whole"]


class Whole(click.IntRange):
    """A whole number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a whole number{_bounds(self)}", param, ctx)


class Number(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number{_bounds(self)}", param, ctx)
        return number


def _bounds(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min is None:
        return ""
    if kind.max is not None:
        return f" from {kind.min} to {kind.max}"
    return f" above {kind.min}" if kind.min_open else f" from {kind.min} on"
