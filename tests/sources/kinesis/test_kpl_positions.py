"""Positions inside of aggregates: wherever a group stopped, it goes on with the very next user record."""

from __future__ import annotations

from importlib import import_module

from hypothesis import given
from hypothesis import strategies as st

from partitions.positions import EARLIEST
from partitions.sources.base import Record
from partitions.sources.kinesis._kpl import load_unpack
from partitions.sources.kinesis._places import AtRecord, place_of
from partitions.sources.kinesis._records import RawRecord
from partitions.sources.kinesis._shelf import Page, Shelf

__all__: list[str] = []

UNPACK = load_unpack()
SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=8)
"""How many user records each record of a shard has; 0 for one that is not packed."""


def raws_of(sizes: list[int]) -> list[RawRecord]:
    """The records of a shard, packed by awslabs' own aggregator."""
    raws = []
    for at, size in enumerate(sizes):
        data = b"plain"
        if size:
            aggregator = import_module("aws_kinesis_agg.aggregator").RecordAggregator()
            for number in range(size):
                aggregator.add_user_record(f"{at}-{number}", b"%d" % number)
            data = aggregator.clear_and_get().get_contents()[2]
        raws.append(RawRecord(sequence=str(1000 + 7 * at), key=str(at), data=data, time_s=float(at)))
    return raws


def read_on(raws: list[RawRecord], position: str, records_max: int) -> tuple[list[Record], bool]:
    """What a reader hands on that begins at a position, and whether it tells a gap."""
    place = place_of("p", position)
    shelf = Shelf("p", place, UNPACK)
    # As Kinesis does it: from the record itself on.
    from_sequence = int(place.sequence) if isinstance(place, AtRecord) else 0
    shelf.put(Page(raws=[raw for raw in raws if int(raw.sequence) >= from_sequence], lag_s=0.0))
    found: list[Record] = []
    is_gap = False
    while (fetched := shelf.take(records_max, 1_000_000)) is not None:
        found += fetched.records
        is_gap = is_gap or fetched.trimmed
    return found, is_gap


@given(SIZES, st.data())
def test_restart_at_any_user_record_hands_on_exactly_those_after_it(sizes: list[int], data: st.DataObject) -> None:
    """A checkpoint is inside of an aggregate as often as not: nothing before it comes again, nothing after is lost."""
    raws = raws_of(sizes)
    whole, _ = read_on(raws, EARLIEST, data.draw(st.integers(1, 7)))
    at = data.draw(st.integers(0, len(whole) - 1))

    assert read_on(raws, whole[at].position, data.draw(st.integers(1, 7))) == (whole[at + 1 :], False)
    assert len(whole) == sum(size or 1 for size in sizes)
    assert len({each.position for each in whole}) == len(whole)


@given(SIZES, st.data())
def test_restart_without_the_extra_loses_nothing(sizes: list[int], data: st.DataObject) -> None:
    """An aggregate of which a part is done is handed on packed, as a whole: at least once."""
    raws = raws_of(sizes)
    whole, _ = read_on(raws, EARLIEST, 100)
    at = data.draw(st.integers(0, len(whole) - 1))
    place = place_of("p", whole[at].position)
    assert isinstance(place, AtRecord)
    shelf = Shelf("p", place, None)
    shelf.put(Page(raws=[raw for raw in raws if int(raw.sequence) >= int(place.sequence)], lag_s=0.0))
    fetched = shelf.take(100, 1_000_000)

    left = [raw for raw in raws if int(raw.sequence) > int(place.sequence) - (place.sub is not None)]
    assert [each.data for each in (fetched.records if fetched else ())] == [raw.data for raw in left]
