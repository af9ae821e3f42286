"""
What the demo counts and shows while it runs, and how it prints its verdict.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from processor_host.demo.ledger import Ledger
from processor_host.demo.lines import LineWriter, Produced
from processor_host.demo.play import Outcome
from processor_host.demo.report import report_of
from processor_host.demo.scene import HostLook, Look, PartitionLook
from processor_host.demo.show import line_of, shown, table_of
from tests.demo.forging import CLEAN, handled

__all__: list[str] = []


def a_partition(number: int, host: str | None, /, **changes: object) -> PartitionLook:
    """A partition that its owner has handled a record of; free where no host is given."""
    name = f"p{number}"
    usual = PartitionLook(
        partition=name,
        state="free" if host is None else "owned",
        host=host,
        token=7,
        lag_s=0.5,
        rate=20.0,
        is_handled=True,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def a_look(*partitions: PartitionLook) -> Look:
    """Two hosts, the second one killed a moment ago."""
    hosts = (
        HostLook(name="host-1", pid=11, state="alive", owned=2, beat_age_s=0.25, rate=40.0),
        HostLook(name="host-2", pid=22, state="killed", owned=1, beat_age_s=2.5, rate=0.0),
    )
    return Look(elapsed_s=9.5, produced=100, handled=90, missing=10, repeats=3, hosts=hosts, partitions=partitions)


def printed(item: object, *, width: int) -> str:
    """What a console of so many columns that is no terminal would show."""
    file = io.StringIO()
    Console(file=file, width=width).print(item, soft_wrap=True)
    return file.getvalue()


def test_ledger_counts_what_is_missing_handled_and_repeated_while_the_files_grow(tmp_path: Path) -> None:
    """The demo stops when nothing is missing; a count that is too low would look like a loss in the verdict."""
    ledger = Ledger(tmp_path, tmp_path / "produced")
    listed = LineWriter(tmp_path / "produced")
    journal = LineWriter(tmp_path / "host-1.jsonl")
    seen: list[tuple[int, int, int, int, float | None]] = []

    def look() -> None:
        ledger.read()
        seen.append((ledger.produced, ledger.handled, ledger.missing, ledger.repeats, ledger.lag_s("p0")))

    look()
    listed.write(*(Produced(partition="p0", position=str(number), at_s=float(number)) for number in (1, 2, 3)))
    look()
    journal.write(*handled("1", 1.5, 1.6), *handled("2", 2.5, 2.6), *handled("2", 2.7, 2.8, token=2))
    look()
    # Handled before the producer has listed it.
    journal.write(*handled("3", 3.5, 3.6, token=2), *handled("4", 4.5, 4.6, token=2))
    look()
    listed.write(Produced(partition="p0", position="4", at_s=4.5))
    look()
    listed.close()
    journal.close()

    assert seen == [(0, 0, 0, 0, None), (3, 0, 3, 0, 2.0), (3, 2, 1, 1, 1.0), (3, 4, 0, 1, 0.0), (4, 4, 0, 1, 0.0)]
    assert (ledger.tokens["p0"], ledger.last_s, ledger.rates(5.0)) == (2, 4.6, ({"p0": 1.0}, {10: 1.0}))


@pytest.mark.parametrize(
    ("partitions", "is_settled"),
    [
        ((), False),
        ((a_partition(0, "a"), a_partition(1, "b")), True),
        ((a_partition(0, "a"), a_partition(1, "b"), a_partition(2, "b")), True),
        ((a_partition(0, "b"), a_partition(1, "b")), False),
        ((a_partition(0, "a"), a_partition(1, None)), False),
        ((a_partition(0, "a"), a_partition(1, "b"), a_partition(2, "c")), False),
        ((a_partition(0, "a"), a_partition(1, "b", state="asked")), False),
        ((a_partition(0, "a"), a_partition(1, "b", is_handled=False)), False),
    ],
)
def test_look_is_settled_only_where_the_named_hosts_share_all_and_handle_it(
    partitions: tuple[PartitionLook, ...], is_settled: bool
) -> None:
    """The next act begins then; too early, a kill would hit a host that has nothing to lose."""
    assert a_look(*partitions).is_settled(["a", "b"]) is is_settled


@pytest.mark.parametrize("width", [80, 120])
def test_table_shows_owner_token_lag_rate_hosts_and_beats(width: int) -> None:
    """That is what the table is for; a column that gives way on a narrow terminal would be missed."""
    text = printed(table_of(a_look(a_partition(3, "host-1")), "the act", width=width), width=width)

    for cells in (["p3", "owned", "host-1", "7", "0.5 s", "20"], ["host-2", "22", "killed", "1", "2.5 s ago", "0"]):
        assert any(all(cell in line for cell in cells) for line in text.splitlines()), text
    assert "the act" in text


def test_line_tells_everything_that_moves() -> None:
    """Without a terminal this is all that shows."""
    look = a_look(a_partition(0, "host-1"), a_partition(1, "host-1", lag_s=2.0), a_partition(2, None, rate=0.0))

    assert line_of(look) == (
        "   9.5 s  owned 2 of 3, produced 100, handled 90, 40 records/s, worst lag 2.0 s; "
        "host-1 alive 2, host-2 killed 1"
    )


def test_show_prints_plain_lines_where_there_is_no_terminal() -> None:
    """A log gets each act at once and a line every two seconds, without colours or broken lines."""
    file = io.StringIO()
    with shown(Console(file=file, width=40)) as show:
        for elapsed_s in (0.0, 1.0, 2.5):
            show.look(replace(a_look(), elapsed_s=elapsed_s))
        show.act(3.0, "killed [red]host-2[/red]")

    assert [line[:12] for line in file.getvalue().splitlines()] == ["   0.0 s  ow", "   2.5 s  ow", "   3.0 s  ki"]
    assert file.getvalue().splitlines()[-1] == "   3.0 s  killed [red]host-2[/red]"


def test_report_has_every_figure_also_where_lines_are_short() -> None:
    """A table that fits itself to 80 columns would leave out the figures and keep the names."""
    outcome = Outcome(verdict=replace(CLEAN, lost=("p0 at '4'",)), problems=("host-2 fell",))

    assert [line.split() for line in printed(report_of(outcome), width=20).splitlines() if line] == [
        line.split()
        for line in (
            "Verdict",
            "records produced 6",
            "records handled 6",
            "repeats 1 allowed after the kill, back to the last checkpoint",
            "records lost 1 must be 0",
            "positions that nobody produced 0 must be 0",
            "owner overlaps 0 must be 0",
            "checkpoints that went backwards 0 must be 0",
            "from the kill to the next owner's first record 4.00 s the worst of 1 partition; median 4.00 s",
            "hand-off gap 1.50 s the longest of 1 orderly moves",
            "FAILED: records lost: 1; the first: p0 at '4'",
            "FAILED: host-2 fell",
        )
    ]
