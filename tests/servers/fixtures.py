"""
The servers as fixtures, one of each for a whole session of pytest (each process of xdist has its own).

A folder that needs them names them in its `conftest.py`: `from tests.servers.fixtures import moto_url as moto_url`.
All tests of a session share a server: each makes tables and streams under names of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.kinds import KINDS, ServerNotInstalled
from tests.servers.processes import DUMMY_CREDENTIALS, started

__all__ = [
    "aws_dummies",
    "dynalite_url",
    "kinesalite_url",
    "kinesis_local_url",
    "ministack_url",
    "moto_url",
]


def served(name: str, factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that runs until the session's end; one that is not installed fails the test."""
    missing = ""
    try:
        KINDS[name].check_installed()
    except ServerNotInstalled as error:
        missing = str(error)
    if missing:
        pytest.fail(missing, pytrace=False)
    with started(name, log_folder=factory.mktemp(name)) as server:
        yield server.url


@pytest.fixture
def aws_dummies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that no server checks, and a region, in the environment of the test."""
    for name, value in DUMMY_CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def moto_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """moto behind one lock: DynamoDB with transactions, Kinesis, SQS, IAM, STS. Comes with `make venv`."""
    yield from served("moto", tmp_path_factory)


@pytest.fixture(scope="session")
def ministack_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """ministack: DynamoDB with transactions and their tokens, Kinesis with fan-out. Marker `servers`."""
    yield from served("ministack", tmp_path_factory)


@pytest.fixture(scope="session")
def dynalite_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """dynalite: DynamoDB without transactions, strict about expressions. Marker `servers`."""
    yield from served("dynalite", tmp_path_factory)


@pytest.fixture(scope="session")
def kinesis_local_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """kinesis-local: Kinesis, right about resharding; small streams only. Marker `servers`."""
    yield from served("kinesis-local", tmp_path_factory)


@pytest.fixture(scope="session")
def kinesalite_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """kinesalite: Kinesis, thousands of puts a second and resharding. Marker `servers`."""
    yield from served("kinesalite", tmp_path_factory)
