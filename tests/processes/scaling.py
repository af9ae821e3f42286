"""
How the times of the field faults are scaled: all by one factor, which each test prints, or not at all.

Bounds in terms of lease duration, beat period and balance interval scale; bounds in seconds do not.
"""

from __future__ import annotations

import os

__all__ = ["FACTOR", "figure", "scaled", "tell_factor"]

FACTOR = 1.0 if os.environ.get("PROCESSOR_HOST_CASES") == "full" else 3.0
"""What the times of a case are divided by, unless the cases run in full."""


def scaled(seconds: float) -> float:
    """Return a time of a case as it is in this run."""
    return seconds / FACTOR


def tell_factor() -> None:
    """Print the factor."""
    figure(f"times divided by {FACTOR:g}")


def figure(text: str) -> None:
    """Print what was measured; `pytest -s` shows it."""
    print(f"\n  {text}", end="", flush=True)
