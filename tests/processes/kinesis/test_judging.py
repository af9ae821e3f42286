"""What the tests on Kinesis judge by finds each fault in a history that has it, and none in one that has none."""

from __future__ import annotations

from tests.processes.histories import Entry, intervals
from tests.processes.kinesis.judging import begun_below, early_children, lost, out_of_order
from tests.processes.kinesis.streams import Written

__all__: list[str] = []

RED, BLUE, CHILD = (Written(shard=shard, position=position, key=key) for shard, position, key in ("p1r", "p2b", "c3r"))
WRITTEN = [RED, BLUE, CHILD]
PARENTS = {"c": ("p",)}


def entry(act: str, record: Written, at_s: float, token: int = 1) -> Entry:
    return Entry(act=act, partition=record.shard, token=token, value=record.position, host="a", pid=token, at_s=at_s)


def handled(record: Written, start_s: float, end_s: float, token: int = 1) -> list[Entry]:
    return [entry("started", record, start_s, token), entry("ended", record, end_s, token)]


CLEAN = [
    *handled(RED, 1.0, 2.0),
    *handled(BLUE, 2.0, 3.0),
    *handled(BLUE, 5.0, 6.0, token=2),
    *handled(CHILD, 6.0, 7.0, token=3),
]
"""The second record is handled again after a kill; the child begins as its parent ends."""


def test_judgements_pass_a_clean_history() -> None:
    """Else those below would prove nothing."""
    found = lost(WRITTEN, CLEAN), out_of_order(WRITTEN, CLEAN), early_children(PARENTS, intervals(CLEAN))

    assert found == ([], [], [])
    assert begun_below([("p", 1, 1)], CLEAN) == []


def test_record_that_was_only_begun_is_lost() -> None:
    """A start is no end."""
    assert lost(WRITTEN, [*CLEAN[:6], entry("started", CHILD, 6.0)]) == [CHILD]


def test_record_begun_before_the_one_before_it_of_its_key_is_out_of_order() -> None:
    """Also where the two are in different shards; one of another key in between counts for nothing."""
    early = [*handled(RED, 1.0, 2.0), *handled(CHILD, 1.5, 2.5, token=3), *handled(BLUE, 3.0, 4.0)]

    assert out_of_order(WRITTEN, early) == [(RED, CHILD)]


def test_child_begun_while_its_parent_is_repeated_is_early() -> None:
    """Its keys may be in order by chance."""
    early = [*CLEAN[:4], *handled(CHILD, 5.5, 5.75, token=3), *CLEAN[4:6]]

    assert early_children(PARENTS, intervals(sorted(early, key=lambda each: each.at_s))) == [("c", "p")]


def test_term_begun_at_a_checkpoint_of_an_older_one_is_told() -> None:
    """What the store was known to have is not handled again; a checkpoint of the same term says nothing of it."""
    assert begun_below([("p", 1, 2), ("p", 2, 2)], CLEAN) == [(("p", 1, 2), CLEAN[4])]
