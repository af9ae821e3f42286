"""The judgements over journals: each finds a history that is guilty, and only that."""

from __future__ import annotations

from pathlib import Path

from tests.processes.histories import Entry, Journals, intervals, overlaps, repeats, stale_starts, unhandled

__all__: list[str] = []


def entry(act: str, position: str, at_s: float, *, token: int = 1, pid: int = 1, partition: str = "p0") -> Entry:
    return Entry(act=act, partition=partition, token=token, value=position, host="a", pid=pid, at_s=at_s)


CLEAN = [
    entry("started", "1", 1.0),
    entry("ended", "1", 2.0),
    entry("started", "2", 3.0),
    entry("started", "1", 3.5, partition="p1", pid=2),
    entry("ended", "2", 4.0),
    entry("started", "3", 5.0, token=2, pid=2),
    entry("ended", "1", 5.5, partition="p1", pid=2),
    entry("ended", "3", 6.0, token=2, pid=2),
]


def test_judgements_find_nothing_in_a_clean_history() -> None:
    """A hand-over without a fault, beside another partition."""
    found = overlaps(intervals(CLEAN)), stale_starts(CLEAN), repeats(CLEAN), unhandled(CLEAN, {"p0": 3, "p1": 1})

    assert found == ([], [], {}, [])


def test_overlaps_finds_a_record_that_was_started_while_another_process_had_one_in_hand() -> None:
    """Two owners at once, also where the first one never comes to an end."""
    ended = [entry("started", "1", 1.0), entry("started", "1", 2.0, token=2, pid=2), entry("ended", "1", 3.0)]
    never = ended[:2]

    assert [len(overlaps(intervals(each))) for each in (ended, never)] == [1, 1]


def test_overlaps_finds_a_record_inside_an_earlier_and_longer_one() -> None:
    """The longest one so far counts, not the last."""
    history = [
        entry("started", "1", 1.0),
        entry("started", "2", 2.0, token=2, pid=2),
        entry("ended", "2", 3.0, token=2, pid=2),
        entry("started", "3", 4.0, token=2, pid=2),
        entry("ended", "1", 5.0),
    ]

    assert len(overlaps(intervals(history))) == 2


def test_overlaps_counts_the_hand_of_a_killed_process_as_empty() -> None:
    """Else every kill would look like an overlap."""
    history = [entry("started", "1", 1.0), entry("started", "1", 3.0, token=2, pid=2)]

    assert overlaps(intervals(history, {1: 2.0, 2: 4.0})) == []
    assert len(overlaps(intervals(history, {1: 3.5, 2: 4.0}))) == 1


def test_stale_starts_finds_a_start_under_an_old_token() -> None:
    """What a host does that wakes up still acting as owner."""
    stale = entry("started", "2", 3.0)

    assert stale_starts([entry("started", "1", 1.0), entry("started", "1", 2.0, token=2, pid=2), stale]) == [stale]


def test_repeats_counts_each_further_start() -> None:
    """A record that was cut counts too: its work may have been done."""
    history = [entry("started", "1", 1.0), entry("cut", "1", 2.0), entry("started", "1", 3.0), entry("ended", "1", 4.0)]

    assert repeats(history) == {("p0", "1"): 1}


def test_unhandled_finds_a_record_that_was_only_started() -> None:
    """Started is not done."""
    assert unhandled(CLEAN[:3], {"p0": 3}) == [("p0", "2"), ("p0", "3")]


def test_journals_are_read_as_they_grow_without_a_line_that_is_being_written(tmp_path: Path) -> None:
    """A SIGKILL may leave half a line."""
    journals = Journals(tmp_path)
    file = tmp_path / "journal-1.jsonl"
    line = '["started", "p0", 1, "%d", "a", 7, 1.5]\n'
    file.write_text(line % 1 + '["started", "p')
    first = [each.value for each in journals.read()]
    file.write_text(line % 1 + line % 2 + '["sta')

    assert (first, [each.value for each in journals.read()]) == (["1"], ["1", "2"])
