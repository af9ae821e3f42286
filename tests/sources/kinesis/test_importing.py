"""Putting many records: full requests, refused ones again, and what of their order is kept. On virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.clocks import Clock
from partitions.errors import SourceMisconfigured, SourceUnavailable
from partitions.sources.kinesis._importing import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    RECORD_BYTES_MAX,
    TRIES,
    Answer,
    Imported,
    Importer,
    Outcome,
    Put,
    batches,
    put_of,
)
from partitions.sources.local import Entry
from tests.stage import VIRTUAL_TIME
from tests.world.loop import run_virtual

__all__: list[str] = []

REFUSED = Outcome(error="ProvisionedThroughputExceededException: Rate exceeded")
MIB = 1024 * 1024


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class LoopClock(Clock):
    """The clock of the event loop, which is virtual."""

    def now_s(self) -> float:
        return anyio.current_time()


def put(key: str, data: bytes = b"", size: int | None = None) -> Put:
    return Put(key=key, data=data, size=len(data) if size is None else size)


@dataclass(slots=True)
class Stream:
    """Takes requests, and of each the records that `takes` says."""

    takes: Callable[[Put], bool]
    requests: list[list[Put]] = field(default_factory=list)
    taken: list[tuple[int, Put]] = field(default_factory=list)
    """Number of the request, and record, in the order in which they are in the stream."""
    times_s: list[float] = field(default_factory=list)
    is_lost: bool = False

    async def send(self, puts: Sequence[Put]) -> Answer:
        self.times_s.append(anyio.current_time())
        self.requests.append(list(puts))
        outcomes = []
        for each in puts:
            if self.takes(each):
                self.taken.append((len(self.requests), each))
                outcomes.append(Outcome(shard="shardId-1", sequence=str(len(self.taken))))
            else:
                outcomes.append(REFUSED)
        return Answer(outcomes=outcomes, is_lost=self.is_lost)

    def importer(self) -> Importer:
        return Importer(send=self.send, clock=LoopClock(), random=Random(1))


@given(st.lists(st.integers(1, 6 * MIB), max_size=40), st.integers(1, 30))
def test_requests_are_in_order_within_their_limits_and_full(sizes: list[int], repeats: int) -> None:
    """A request that is too large is refused as a whole; one that could be larger costs a round trip."""
    puts = [put(str(number), size=size) for number, size in enumerate(sizes * repeats)]
    found = list(batches(puts))

    assert [each for batch in found for each in batch] == puts
    assert all(batch for batch in found)
    assert all(len(batch) <= BATCH_RECORDS_MAX for batch in found)
    assert all(len(batch) == 1 or sum(each.size for each in batch) <= BATCH_BYTES_MAX for batch in found)
    for batch, following in pairwise(found):
        is_full = len(batch) == BATCH_RECORDS_MAX
        assert is_full or sum(each.size for each in batch) + following[0].size > BATCH_BYTES_MAX


def test_requests_have_five_hundred_small_records() -> None:
    """The limit of PutRecords."""
    assert [len(batch) for batch in batches([put("k")] * 1001)] == [500, 500, 1]


@pytest.mark.parametrize(("more", "requests"), [(0, 1), (1, 2)])
def test_requests_are_filled_to_the_last_byte(more: int, requests: int) -> None:
    """One byte above the limit is refused with all the rest."""
    assert len(list(batches([put("k", size=BATCH_BYTES_MAX - 1), put("k", size=1 + more)]))) == requests


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (Entry(data=b"", key=""), "the key has 0 characters, and Kinesis takes 1 to 256"),
        (Entry(data=b"", key="é" * 257), "the key has 257 characters"),
        (Entry(data=bytes(RECORD_BYTES_MAX - 1), key="ab"), f"{RECORD_BYTES_MAX + 1} bytes with its key"),
    ],
)
def test_record_that_kinesis_would_refuse_is_told_before_it_is_sent(entry: Entry, says: str) -> None:
    """Half a file in the stream could not be imported again."""
    with pytest.raises(ValueError, match=says):
        put_of(entry, Random(1))


def test_record_at_the_limits_is_sent() -> None:
    """The size is counted in bytes, the key's length in characters."""
    largest = put_of(Entry(data=bytes(RECORD_BYTES_MAX - 2), key="é"), Random(1))

    assert (largest.size, put_of(Entry(data=b"d", key="é" * 256), Random(1)).size) == (RECORD_BYTES_MAX, 513)


def test_records_without_a_key_get_different_ones() -> None:
    """With one key for all they would go to one shard."""
    random = Random(1)

    assert len({put_of(Entry(data=b""), random).key for _ in range(100)}) == 100


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.integers(0, 2**32))
def test_records_are_all_put_once_and_none_overtakes_one_of_its_key_in_a_later_request(
    keys: list[str], seed: int
) -> None:
    """
    What is promised of the order: only a request that was taken in part may leave a record behind its successors.

    A record is behind a later one of its key only if both were in one request, which took the later one alone.
    """
    random = Random(seed)
    stream = Stream(takes=lambda _: random.random() < 0.6)
    puts = [put(key, str(number).encode()) for number, key in enumerate(keys)]

    async def run() -> Imported:
        importer = stream.importer()
        for batch in (puts[:6], puts[6:]):
            await importer.put(batch)
        return importer.imported()

    imported = run_virtual(run)

    assert sorted(int(each.data) for _, each in stream.taken) == list(range(len(keys)))
    assert (imported.records, imported.by_partition) == (len(keys), {"shardId-1": len(keys)})
    requests_of = {each: [n for n, request in enumerate(stream.requests, 1) if each in request] for each in puts}
    for at, (_, earlier) in enumerate(stream.taken):
        for _, later in stream.taken[at + 1 :]:
            if earlier.key == later.key and int(later.data) < int(earlier.data):
                together = set(requests_of[earlier]) & set(requests_of[later])
                assert requests_of[earlier][-1] in together, (earlier, later)
    # Two that were refused are never together again: it happens once in a batch, in its first request.
    for request in stream.requests[1:]:
        if request not in (puts[:6], puts[6:]):
            assert len({each.key for each in request}) == len(request)


async def test_refused_records_are_sent_again_before_later_ones_after_growing_waits() -> None:
    """A shard takes a thousand records a second; who does not wait is refused for ever."""
    refusals = iter([True] * 5)
    stream = Stream(takes=lambda each: each.key != "b" or not next(refusals, False))
    importer = stream.importer()

    placed = await importer.put([put("a"), put("b"), put("c")])
    await importer.put([put("d")])

    assert [[each.key for each in request] for request in stream.requests] == [["a", "b", "c"], *[["b"]] * 5, ["d"]]
    assert [outcome.sequence for outcome in placed] == ["1", "3", "2"]
    waits = [later - earlier for earlier, later in pairwise(stream.times_s)]
    assert waits[-1] == 0
    assert [0.05 * 2 ** max(0, n) <= wait <= 0.1 * 2 ** max(0, n) for n, wait in enumerate(waits[:-1])] == [True] * 5
    assert importer.imported() == Imported(records=4, by_partition={"shardId-1": 4}, resent=5, unsure=0)


async def test_import_gives_up_when_nothing_is_taken_and_says_what_is_in_the_stream() -> None:
    """A stream that refuses for a minute is not going to be filled; the user must know where the file stands."""
    stream = Stream(takes=lambda each: each.key == "a")
    importer = stream.importer()
    await importer.put([put("a")])

    with pytest.raises(SourceUnavailable, match=f"2 of 2 records .* {TRIES} times in a row .*Rate.*; 1 records are in"):
        await importer.put([put("b"), put("c")])

    assert len(stream.requests) == 1 + TRIES
    assert 20 < stream.times_s[-1] - stream.times_s[0] < 60


async def test_import_does_not_give_up_while_some_are_taken() -> None:
    """Slow is not stuck."""
    stream = Stream(takes=lambda each: each is stream.requests[-1][0])
    importer = stream.importer()

    await importer.put([put(str(number)) for number in range(2 * TRIES)])

    assert (importer.records, len(stream.requests)) == (2 * TRIES, 2 * TRIES)


async def test_records_whose_answer_was_lost_are_counted_as_perhaps_twice() -> None:
    """The stream may have taken them; nothing is told as exact that is not."""
    stream = Stream(takes=lambda _: len(stream.requests) > 1)
    stream.is_lost = True
    importer = stream.importer()

    await importer.put([put("a"), put("b")])

    assert importer.imported() == Imported(records=2, by_partition={"shardId-1": 2}, resent=2, unsure=2)


async def test_import_ends_at_once_where_trying_again_cannot_help() -> None:
    """A right that is missing is not there a minute later."""
    sent = []

    async def send(puts: Sequence[Put]) -> Answer:
        sent.append(puts)
        raise SourceMisconfigured("denied")

    with pytest.raises(SourceMisconfigured, match="denied"):
        await Importer(send=send, clock=LoopClock(), random=Random(1)).put([put("a")])

    assert len(sent) == 1
