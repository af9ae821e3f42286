"""
The verdict on orders can fail: forged journals of a partition that is split, with one fault each.

The clean story: process 10 handles the three records of the partition `p`, is killed, and process 20 handles the last
of them again and then the first record of the child `c`; process 30 handles the record of the other child `d`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from partitions.positions import EARLIEST
from processor_host.demo.folder import Folder
from processor_host.demo.lines import Act, Birth, Kill, Line, LineWriter, Produced
from processor_host.demo.play import Outcome
from processor_host.demo.report import report_of
from processor_host.demo.verdict import Verdict, judge
from tests.demo.forging import Journals, a_line, handled

__all__: list[str] = []

KEYS = {("p", "1"): "red", ("p", "2"): "blue", ("p", "3"): "red", ("c", "4"): "red", ("d", "5"): "blue"}
PRODUCED = [
    Produced(partition=partition, position=position, at_s=0.0, key=key) for (partition, position), key in KEYS.items()
]
BIRTHS = [Birth(partition="c", parent="p"), Birth(partition="d", parent="p")]
KILLS = [Kill(pid=10, at_s=4.0)]

SECOND = {"token": 2, "pid": 20}
ORDERS = ("out_of_order", "early")


def the_split() -> Journals:
    """The clean journals."""
    p, c, d = ({"partition": name} for name in "pcd")
    return {
        10: [
            a_line(Act.OPENED, EARLIEST, 0.0, **p),
            *handled("1", 1.0, 1.5, **p),
            *handled("2", 2.0, 2.5, **p),
            *handled("3", 3.0, 3.5, **p),
        ],
        20: [
            a_line(Act.OPENED, "2", 7.0, **p, **SECOND),
            *handled("3", 8.0, 8.5, **p, **SECOND),
            a_line(Act.CLOSED, "3", 8.75, reason="PARTITION_ENDED", **p, **SECOND),
            a_line(Act.OPENED, EARLIEST, 9.0, pid=20, **c),
            *handled("4", 9.5, 10.0, pid=20, **c),
        ],
        30: [a_line(Act.OPENED, EARLIEST, 9.0, pid=30, **d), *handled("5", 9.0, 9.5, pid=30, **d)],
    }


def verdict_of(journals: Journals, births: list[Birth] = BIRTHS, produced: list[Produced] = PRODUCED) -> Verdict:
    return judge(list(journals.values()), produced, KILLS, births)


def moved(line: Line, by_s: float) -> Line:
    return replace(line, at_s=line.at_s + by_s)


def with_a_child_during_its_parent(journals: Journals) -> None:
    """Process 30 begins while process 20 still repeats the last record of the parent."""
    journals[30] = [moved(line, -0.75) for line in journals[30]]


def with_a_child_before_its_parent(journals: Journals) -> None:
    """Process 30 is done with its record before process 20 goes on with the parent, which hides in no overlap."""
    journals[30] = [moved(line, -2.5) for line in journals[30]]


def with_a_child_that_was_cut_short(journals: Journals) -> None:
    """Process 30 begins too early, gives up, and does it again in time: the first start counts."""
    journals[30][1:1] = [a_line(act, "5", 8.25, pid=30, partition="d") for act in (Act.STARTED, Act.CUT)]


def test_verdict_passes_a_clean_split() -> None:
    """A repeat after a kill breaks no order, nor does a child that begins when its parent ends."""
    verdict = verdict_of(the_split())

    assert verdict.failures() == ()
    assert (verdict.repeats, verdict.births, verdict.keys_over_births) == (1, 2, 2)
    assert (verdict.out_of_order, verdict.early) == ((), ())


@pytest.mark.parametrize(
    "spoil", [with_a_child_during_its_parent, with_a_child_before_its_parent, with_a_child_that_was_cut_short]
)
def test_verdict_fails_on_one_early_child_and_on_nothing_else(spoil: Callable[[Journals], None]) -> None:
    """Whoever takes a child as soon as it is listed handles it beside its parent."""
    journals = the_split()
    spoil(journals)

    verdict = verdict_of(journals)

    assert verdict.early == ("d at '5' before its parent was done with p at '3'",)
    assert [failure.split(":")[0] for failure in verdict.failures()] == [
        "partitions handled before their parents were done"
    ]


@pytest.mark.parametrize("births", [[], BIRTHS])
def test_verdict_fails_on_a_record_before_one_of_its_key(births: list[Birth]) -> None:
    """Also where nobody told of the birth: the first time counts, so that a repeat of the older one hides nothing."""
    journals = the_split()
    journals[30] = [moved(line, -7.25) for line in journals[30]]

    assert verdict_of(journals, births).out_of_order == ("d at '5' of key 'blue' before p at '2' was done",)


def test_verdict_takes_the_order_of_a_key_from_the_producer_alone() -> None:
    """Two records of one shard and one key that change places, as where a reader swaps two answers."""
    swapped = [PRODUCED[2], PRODUCED[1], PRODUCED[0], *PRODUCED[3:]]

    assert verdict_of(the_split(), produced=swapped).out_of_order == ("p at '1' of key 'red' before p at '3' was done",)


def test_verdict_keeps_no_order_of_records_without_a_key() -> None:
    """Those of a local stream that nobody reshards have the order of their partition alone."""
    journals = the_split()
    journals[30] = [moved(line, -7.25) for line in journals[30]]

    assert verdict_of(journals, [], [replace(each, key="") for each in PRODUCED]).failures() == ()


def test_verdict_fails_where_no_key_went_on_in_a_child() -> None:
    """Keys that are all new after a split put no order to the test, and a pass would say nothing."""
    renamed = [replace(each, key=f"{each.key} {each.partition}") for each in PRODUCED]

    assert verdict_of(the_split(), produced=renamed).failures() == (
        "no key has records in a partition and in one that is born of it",
    )


def test_folder_judges_the_births_that_were_written_into_it(tmp_path: Path) -> None:
    """From the file, as after a play."""
    folder = Folder(tmp_path)
    folder.prepare()
    journals = the_split()
    with_a_child_during_its_parent(journals)
    files: dict[Path, Sequence[Any]] = {folder.produced: PRODUCED, folder.births: BIRTHS}
    files |= {folder.journals / f"{pid}.jsonl": lines for pid, lines in journals.items()}
    for file, rows in files.items():
        writer = LineWriter(file)
        writer.write(*rows)
        writer.close()

    verdict = folder.judge()

    assert tuple(len(getattr(verdict, name)) for name in ORDERS) == (0, 1)
    assert (verdict.births, verdict.as_json()["children_early"]) == (2, 1)


def test_report_has_the_orders_where_partitions_were_born() -> None:
    """With what they were put to the test by; without births the rows would be empty promises."""
    file = io.StringIO()
    verdict = verdict_of(the_split())
    console = Console(file=file, width=200)
    console.print(report_of(Outcome(verdict=verdict, problems=())))
    console.print(report_of(Outcome(verdict=replace(verdict, births=0), problems=())))

    assert [" ".join(line.split()) for line in file.getvalue().splitlines() if " key" in line or "parents" in line] == [
        "records before an earlier one of their key 0 must be 0; 2 keys went on in one of 2 new partitions",
        "partitions handled before their parents were done 0 must be 0",
    ]
