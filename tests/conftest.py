"""
What every test has: one event loop, property tests that repeat exactly, and the flights.

It knows neither hosts nor stores; those have their own builders.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

from tests.sdk import read_once

__all__ = ["FLIGHTS", "FLIGHTS_WHOLE_YEAR", "anyio_backend", "flights_file", "whole_year_file"]

DATA = Path(__file__).parent / "data"

FLIGHTS = 27_004
"""Lines in `flights_file`: the first of the whole year's, with the same bytes."""

FLIGHTS_WHOLE_YEAR = 336_776
"""Lines in `whole_year_file`."""

# No deadline: two cores that others use too say nothing about the speed of one example. In CI a run repeats
# exactly, so that a red one is about the change; elsewhere each run looks at new examples.
hypothesis.settings.register_profile("house", deadline=None, print_blob=True, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("house")

# A shell starts what runs in its background with SIGINT ignored, and so would every process that a test starts: one
# that is to end at Ctrl-C never would.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

read_once()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Only asyncio: the store clients of AWS know no other loop. The virtual world overrides this with its own loop."""
    return "asyncio"


@pytest.fixture(scope="session")
def flights_file() -> Path:
    """The first 27,004 real flights, gzip, one JSON object a line; part of the clone."""
    return DATA / "flights-27004.jsonl.gz"


@pytest.fixture(scope="session")
def whole_year_file() -> Path:
    """All 336,776 flights, gzip; too large for the clone, so the environment names the file."""
    named = os.environ.get("PROCESSOR_HOST_FLIGHTS", "")
    if not named:
        pytest.fail("PROCESSOR_HOST_FLIGHTS is not set; let it name the file flights.jsonl.gz", pytrace=False)
    path = Path(named)
    if not path.is_file():
        pytest.fail(f"PROCESSOR_HOST_FLIGHTS={named!r} is no file; let it name flights.jsonl.gz", pytrace=False)
    return path
