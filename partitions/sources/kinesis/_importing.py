"""
Putting many records into a stream: full requests, and what to do about the records that a request did not take.

Knows no file and no client: requests are sent by a callable.

Theory of operation. PutRecords takes 500 records or 5 MiB at once, keys included, and answers for each of them whether
it was taken: a shard takes 1,000 records and 1 MiB a second, and refuses the rest. One request is in flight at a time.
Records that were refused are sent again after a growing wait, and before any later record: so no later request
overtakes them. From the first refusal on until all of a batch are in, a request has one record of each key at most:
so no record of a key overtakes one that is refused again.

What is kept: the records of one key are in the stream in their order, except where one request was taken in part, for
Kinesis answers for each record of it alone: a record that was refused is then behind those of its key that the same
request brought in. (Kinesis says of PutRecords that it guarantees no order; this takes it that what is taken of one
request is stored in its order.) What is not kept: a request whose answer was lost is sent again, and its records may be
there twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from partitions.clocks import Clock, sleep_until
from partitions.errors import SourceUnavailable
from partitions.retries import Waits

__all__ = [
    "RECORD_BYTES_MAX",
    "Entry",
    "Imported",
    "Importer",
    "Outcome",
    "Put",
    "batches",
    "first_of_each_key",
    "put_of",
]

BATCH_RECORDS_MAX: Final = 500
BATCH_BYTES_MAX: Final = 5 * 1024 * 1024
"""Kinesis takes 10 MiB at once by now; older services and all that stand in for it take 5."""
RECORD_BYTES_MAX: Final = 1024 * 1024
"""Of one record with its key, where the stream was not made for larger ones."""
KEY_CHARACTERS_MAX: Final = 256
WAITS: Final = Waits(first_s=0.1, most_s=5.0)
"""Between two requests for records that were refused."""
TRIES: Final = 12
"""In a row that brought nothing in; about 40 seconds."""


class Entry(Protocol):
    """What is to be put: a record that has no place yet."""

    @property
    def data(self) -> bytes: ...
    @property
    def key(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """One record of a request."""

    key: str
    data: bytes
    size: int
    """What Kinesis counts, bytes: the data and the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one record of a request: it has a place, or an error."""

    shard: str = ""
    sequence: str = ""
    error: str = ""
    """For people; empty where the record was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one request."""

    outcomes: Sequence[Outcome]
    """One for each record, in their order."""
    is_lost: bool = False
    """Nobody knows whether it was taken: there was no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did."""

    records: int
    by_partition: Mapping[str, int]
    resent: int = 0
    """Records that were sent again because they were refused; one that was refused three times counts three times."""
    unsure: int = 0
    """Records that may be in the stream twice, because an answer was lost."""


Send = Callable[[Sequence[Put]], Awaitable[Answer]]
"""Sends one request; raises where sending it again cannot help."""


def put_of(entry: Entry, random: Random, record_bytes_max: int = RECORD_BYTES_MAX) -> Put:
    """
    Return an entry as a record of a request; one without a key gets any key, so that it goes to any shard.

    Raises:
        ValueError: Kinesis does not take such a record.
    """
    key = f"{random.getrandbits(64):016x}" if entry.key is None else entry.key
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX:
        raise ValueError(f"the key has {len(key)} characters, and Kinesis takes 1 to {KEY_CHARACTERS_MAX}")
    size = len(entry.data) + len(key.encode("utf-8"))
    if size > record_bytes_max:
        raise ValueError(f"{size} bytes with its key, and the stream takes {record_bytes_max} of one record")
    return Put(key=key, data=entry.data, size=size)


def batches(puts: Iterable[Put]) -> Iterator[list[Put]]:
    """Give requests that are as full as they can be, in order."""
    batch: list[Put] = []
    size = 0
    for put in puts:
        if batch and (len(batch) == BATCH_RECORDS_MAX or size + put.size > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(put)
        size += put.size
    if batch:
        yield batch


def first_of_each_key(puts: Sequence[Put], indexes: Sequence[int]) -> list[int]:
    """Return those of the indexes, growing, whose record has no earlier one of the same key among them."""
    first: dict[str, int] = {}
    for index in indexes:
        first.setdefault(puts[index].key, index)
    return sorted(first.values())


@dataclass(slots=True, kw_only=True)
class Importer:
    """One import; counts what it did."""

    send: Send
    clock: Clock
    random: Random
    waits: Waits = WAITS
    records: int = 0
    by_partition: Counter[str] = field(default_factory=Counter)
    resent: int = 0
    unsure: int = 0

    async def put(self, batch: Sequence[Put]) -> list[Outcome]:
        """
        Put all records of one request, in as many as it takes; return the place of each.

        Raises:
            SourceUnavailable: none of what was left was taken in `TRIES` requests in a row.
            SourceMisconfigured: sending again cannot help.
        """
        outcomes: list[Outcome] = [Outcome(error="not sent")] * len(batch)
        left = list(range(len(batch)))
        is_refused = False
        tries = 0
        while left:
            sent = first_of_each_key(batch, left) if is_refused else left
            answer = await self.send([batch[index] for index in sent])
            for index, outcome in zip(sent, answer.outcomes, strict=True):
                outcomes[index] = outcome
                if not outcome.error:
                    self.records += 1
                    self.by_partition[outcome.shard] += 1
            refused = [index for index in sent if outcomes[index].error]
            left = [index for index in left if outcomes[index].error]
            if not refused:
                tries = 0
                continue
            is_refused = True
            self.resent += len(refused)
            self.unsure += len(refused) if answer.is_lost else 0
            tries = tries + 1 if len(refused) == len(sent) else 1
            if tries >= TRIES:
                raise SourceUnavailable(
                    f"{len(left)} of {len(batch)} records of a request were refused {TRIES} times in a row "
                    f"({outcomes[refused[0]].error}); {self.records} records are in the stream"
                )
            await sleep_until(self.clock, self.clock.now_s() + self.waits.after(tries, self.random))
        return outcomes

    def imported(self) -> Imported:
        """Return what was done so far."""
        by_partition = dict(sorted(self.by_partition.items()))
        return Imported(records=self.records, by_partition=by_partition, resent=self.resent, unsure=self.unsure)
