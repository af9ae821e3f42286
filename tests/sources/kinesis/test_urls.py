"""URLs of Kinesis as a command line takes them."""

from __future__ import annotations

import pytest

from partitions.sources.kinesis import KinesisSource
from processor_host.errors import UserError
from processor_host.urls import open_source

__all__: list[str] = []


def test_url_of_a_stream_names_a_source_of_kinesis() -> None:
    """The scheme alone says which source is meant."""
    source = open_source("kinesis://orders?region=eu-west-1&idle_read_s=0.5")

    assert isinstance(source, KinesisSource)
    assert source.url == "kinesis://orders?region=eu-west-1&idle_read_s=0.5"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("kinesis://orders?start=now", "start='now' is not a start"),
        ("kinesis:orders", "expected one such as 'kinesis://orders"),
        ("kinesys://orders", "'kinesis://flights"),
    ],
)
def test_url_that_names_no_stream_is_told_with_an_example(url: str, says: str) -> None:
    """A slip is told before anything is opened."""
    with pytest.raises(UserError, match=says):
        open_source(url)
