"""
The verdict of the demo can fail: forged journals with one fault each, read from files as those of real hosts are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.positions import EARLIEST
from processor_host.demo.lines import Act, Kill, Line, Produced
from processor_host.demo.verdict import Recovery, Verdict, judge
from tests.demo.forging import CLEAN, Journals, a_line, handled, played, the_story

__all__: list[str] = []


def spoilt(spoil: Callable[[Journals], None]) -> Journals:
    """The story with one thing changed."""
    journals = the_story()
    spoil(journals)
    return journals


def without_the_fourth(journals: Journals) -> None:
    """Process 20 passes over the record in the middle of which process 10 was killed."""
    journals[20] = [line for line in journals[20] if line.position != "4"]


def with_an_old_owner(journals: Journals) -> None:
    """Process 20 handles a record after its lease went to process 30."""
    journals[20][-1:] = handled("5", 12.5, 12.6, token=2, pid=20)


def with_two_at_once(journals: Journals) -> None:
    """Process 30 begins before process 20 has ended its last record."""
    journals[30][1:3] = handled("6", 10.25, 12.0, token=3, pid=30)


def with_one_token_twice(journals: Journals) -> None:
    """Process 30 works under the token of process 20, though after it."""
    journals[30] = [replace(line, token=2) for line in journals[30]]


def during_the_life_of_the_killed(journals: Journals) -> None:
    """Process 10 still wrote of another partition while process 20 had its unfinished record."""
    journals[10].append(a_line(Act.OPENED, EARLIEST, 8.25, partition="p1"))


def begun_below_a_checkpoint(journals: Journals) -> None:
    """Process 30 begins before what the store had accepted of process 20."""
    journals[30][0] = replace(journals[30][0], position="4")


def begun_below_a_beginning(journals: Journals) -> None:
    """Process 30 begins before where process 20 had begun, which has no checkpoint."""
    journals[20] = [line for line in journals[20] if line.act is not Act.CHECKPOINT]
    journals[30][0] = replace(journals[30][0], position="1")


def begun_at_the_beginning(journals: Journals) -> None:
    """Process 20 begins where nobody has ever been, though there was a checkpoint."""
    journals[20][0] = replace(journals[20][0], position=EARLIEST)


def stored_below_a_checkpoint(journals: Journals) -> None:
    """A second checkpoint of process 10 is before its first."""
    journals[10].insert(6, a_line(Act.CHECKPOINT, "1", 2.8))


def counts(verdict: Verdict) -> dict[str, int]:
    """How many faults of each kind."""
    return {name: len(getattr(verdict, name)) for name in ("lost", "unknown", "overlaps", "steps_back")}


def test_verdict_passes_a_clean_story(tmp_path: Path) -> None:
    """A repeat after a kill and a record that was cut short are no faults; without this the others prove nothing."""
    verdict = played(tmp_path, the_story()).judge()

    assert (verdict, verdict.failures()) == (CLEAN, ())


def test_verdict_fails_on_one_loss_and_changes_nothing_else(tmp_path: Path) -> None:
    """A record whose only start was cut short by the kill was not handled."""
    verdict = played(tmp_path, spoilt(without_the_fourth)).judge()

    assert verdict == replace(CLEAN, handled=5, lost=("p0 at '4'",))
    assert verdict.failures() == ("records lost: 1; the first: p0 at '4'",)


@pytest.mark.parametrize(
    "spoil", [with_an_old_owner, with_two_at_once, with_one_token_twice, during_the_life_of_the_killed]
)
def test_verdict_fails_on_one_overlap(spoil: Callable[[Journals], None], tmp_path: Path) -> None:
    """Two owners show in the order of starts, in times that overlap, or in one token of two processes."""
    verdict = played(tmp_path, spoilt(spoil)).judge()

    assert counts(verdict) == {"lost": 0, "unknown": 0, "overlaps": 1, "steps_back": 0}
    assert [failure.split(":")[0] for failure in verdict.failures()] == ["owner overlaps"]


@pytest.mark.parametrize(
    "spoil",
    [begun_below_a_checkpoint, begun_below_a_beginning, begun_at_the_beginning, stored_below_a_checkpoint],
)
def test_verdict_fails_on_one_step_back(spoil: Callable[[Journals], None], tmp_path: Path) -> None:
    """What the store had accepted, or a term had begun with, is never taken back."""
    verdict = played(tmp_path, spoilt(spoil)).judge()

    assert counts(verdict) == {"lost": 0, "unknown": 0, "overlaps": 0, "steps_back": 1}
    assert [failure.split(":")[0] for failure in verdict.failures()] == ["checkpoints that went backwards"]


def test_verdict_fails_on_a_position_that_nobody_produced(tmp_path: Path) -> None:
    """Its place in the order is not known, so that no other count can be trusted."""
    journals = the_story()
    journals[30][3:3] = handled("99", 12.1, 12.2, token=3, pid=30)

    verdict = played(tmp_path, journals).judge()

    assert verdict == replace(CLEAN, unknown=("p0 at '99'",))
    assert verdict.failures() == ("positions that nobody produced: 1; the first: p0 at '99'",)


def test_verdict_fails_where_nothing_was_produced() -> None:
    """Nothing can be lost of nothing, which would be a pass that says nothing."""
    assert judge([], []).failures() == ("no record was produced",)


def test_verdict_tells_a_partition_that_nobody_went_on_with(tmp_path: Path) -> None:
    """A median of the lucky ones alone would hide it."""
    journals = {10: the_story()[10]}

    verdict = played(tmp_path, journals).judge()

    assert verdict.recoveries == (Recovery(partition="p0", seconds=None),)


@pytest.mark.parametrize("kill", [Kill(pid=20, at_s=11.1), Kill(pid=10, at_s=9.0)])
def test_verdict_counts_no_recovery_of_what_the_killed_host_had_no_longer(kill: Kill, tmp_path: Path) -> None:
    """What it had closed, or another host had taken over, before the kill says nothing about it."""
    assert played(tmp_path, the_story(), kills=[kill]).judge().recoveries == ()


@pytest.mark.parametrize("rest", [b'{"act":"started","partit', b"\x00\xff\x00", b"{}", b"17"])
def test_verdict_ignores_a_last_line_that_was_cut_short(rest: bytes, tmp_path: Path) -> None:
    """A SIGKILL may come in the middle of a write."""
    folder = played(tmp_path, the_story())
    with (folder.journals / "host-10.jsonl").open("ab") as file:
        file.write(rest)

    assert folder.judge() == CLEAN


def test_verdict_takes_a_last_line_that_lacks_only_its_newline(tmp_path: Path) -> None:
    """It says what happened; without it the sixth record would be lost where it is not."""
    journals = the_story()
    journals[30] = journals[30][:3]
    folder = played(tmp_path, journals)
    file = folder.journals / "host-30.jsonl"
    file.write_bytes(file.read_bytes().removesuffix(b"\n"))

    assert folder.judge() == CLEAN


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b'{"act":"sta',
        b'{"act":"started","partition":"p0","token":1,"position":"1","pid":1,"at_s":1.0}',
        b'{"act":"eaten","partition":"p0","token":1,"position":"1","pid":1,"at_s":1.0,"reason":""}',
        b'{"act":"started","partition":"p0","token":"1","position":"1","pid":1,"at_s":1.0,"reason":""}',
        b'{"act":"started","partition":"p0","token":true,"position":"1","pid":1,"at_s":1.0,"reason":""}',
        b'{"act":"started","partition":"p0","token":1,"position":1,"pid":1,"at_s":1.0,"reason":""}',
        b'{"act":"started","partition":"p0","token":1,"position":"1","pid":1,"at_s":NaN,"reason":""}',
    ],
)
@pytest.mark.parametrize("at", [0, 3, -1])
def test_verdict_names_file_and_line_of_what_it_cannot_read(bad: bytes, at: int, tmp_path: Path) -> None:
    """A whole line that is passed over could be the one that shows the fault."""
    folder = played(tmp_path, the_story())
    file = folder.journals / "host-20.jsonl"
    lines = file.read_bytes().splitlines()
    at = len(lines) if at < 0 else at
    lines.insert(at, bad)
    file.write_bytes(b"\n".join(lines) + b"\n")

    with pytest.raises(ValueError, match=rf"host-20\.jsonl, line {at + 1}: "):
        folder.judge()


@pytest.mark.parametrize(
    "lines",
    [
        [a_line(Act.ENDED, "1", 1.0)],
        [a_line(Act.STARTED, "1", 1.0), a_line(Act.ENDED, "2", 2.0)],
        [a_line(Act.STARTED, "1", 1.0), a_line(Act.STARTED, "2", 2.0)],
    ],
)
def test_verdict_refuses_a_journal_that_contradicts_itself(lines: list[Line]) -> None:
    """Its writer is broken; what it says of other records is worth nothing."""
    with pytest.raises(ValueError, match="process 10 "):
        judge([lines], [])


def test_verdict_refuses_a_list_with_one_record_twice() -> None:
    """Two records at one position cannot be told apart, and one of them could be lost unseen."""
    twice = Produced(partition="p0", position="1", at_s=0.0)

    with pytest.raises(ValueError, match="p0 at '1' twice"):
        judge([], [twice, twice])


@given(
    terms=st.lists(
        # How many records a term handles, how many of those are behind its last checkpoint, and whether it is killed.
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_verdict_passes_every_history_that_keeps_the_rules(terms: list[tuple[int, int, bool]]) -> None:
    """A verdict that cries wolf would be switched off."""
    journals: list[list[Line]] = []
    kills: list[Kill] = []
    stored = done = clock = repeats = 0
    for token, (count, behind, is_killed) in enumerate(terms, 1):
        clock += 1
        named = {"token": token, "pid": 100 + token}
        lines = [a_line(Act.OPENED, str(stored) if stored else EARLIEST, clock, **named)]
        repeats += min(done - stored, count)
        at = stored
        for index in range(count):
            clock += 2
            at += 1
            lines += handled(str(at), clock - 1, clock, **named)
            if index + 1 == count - behind:
                stored = at
                lines.append(a_line(Act.CHECKPOINT, str(at), clock, **named))
        done = max(done, at)
        if is_killed:
            kills.append(Kill(pid=100 + token, at_s=clock))
        else:
            stored = at
            lines.append(a_line(Act.CLOSED, str(at) if at else EARLIEST, clock, reason="HANDED_OFF", **named))
        journals.append(lines)
    produced = [Produced(partition="p0", position=str(number), at_s=0.0) for number in range(1, done + 1)]

    verdict = judge(journals, produced, kills)

    assert counts(verdict) == {"lost": 0, "unknown": 0, "overlaps": 0, "steps_back": 0}
    assert (verdict.handled, verdict.repeats) == (done, repeats)
