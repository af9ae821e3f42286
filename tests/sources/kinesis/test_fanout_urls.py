"""How a URL asks for enhanced fan-out, and each way to get it wrong."""

from __future__ import annotations

import pytest

from partitions.sources.kinesis import parse_url
from processor_host.urls import open_source

__all__: list[str] = []

URL = "kinesis://orders?region=eu-west-1"


def test_url_of_a_consumer_is_read_as_it_is_written() -> None:
    """A host tells its source by this URL, and a command reads it again."""
    url = f"{URL}&mode=fanout&consumer=billing"

    assert (parse_url(url).consumer, parse_url(url).url) == ("billing", url)


@pytest.mark.parametrize("url", [URL, f"{URL}&mode=poll"])
def test_url_without_fan_out_names_no_consumer(url: str) -> None:
    """A consumer costs money; only who asks for one gets one."""
    assert (parse_url(url).consumer, parse_url(url).url) == (None, URL)


def test_who_looks_on_beside_a_group_polls() -> None:
    """`status` and `tail` with the hosts' own URL would cut off the hosts' subscriptions, for a look."""
    url = f"{URL}&mode=fanout&consumer=billing"

    assert [open_source(url, beside=beside).url for beside in (False, True)] == [url, URL]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("mode=fanout", "mode=fanout needs consumer=NAME, a name for each group"),
        ("mode=push&consumer=a", "mode='push' is neither poll nor fanout"),
        ("consumer=a", "consumer='a' is for mode=fanout alone"),
        ("mode=poll&consumer=a", "consumer='a' is for mode=fanout alone"),
        ("mode=fanout&consumer=a/b", "consumer='a/b' is no name"),
        (f"mode=fanout&consumer={'a' * 129}", "is no name"),
    ],
)
def test_url_of_a_wrong_consumer_is_told_with_what_was_expected(query: str, says: str) -> None:
    """Two groups with one consumer, or a consumer that nobody uses, are found out late and dearly."""
    with pytest.raises(ValueError, match=says):
        parse_url(f"{URL}&{query}")
