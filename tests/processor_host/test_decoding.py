"""
Decoding: values beside the payloads, and a failure that names its record and not its payload.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from partitions.sources.base import Record
from processor_host.decoding import DecodedRecord, DecodeFailed, decoded, decoding, json_of
from processor_host.failures import Failure, Retry, SplitUp, what_next
from processor_host.middleware import Middleware, around
from processor_host.processor import Batch
from tests.stage import VIRTUAL_TIME, Stage

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def record(n: int, data: bytes, **more: Any) -> Record:
    return Record(partition="p0", position=str(n), key=f"k{n}", data=data, time_s=float(n), **more)


class Run:
    """A batch of these records that went through a middleware, and what `process` got."""

    def __init__(self, *records: Record) -> None:
        self.records = records
        self.saved: list[int] = []
        self.got: list[DecodedRecord] = []
        self.lag_s: float | None = None
        self.calls = 0

    async def through(self, middleware: Middleware, *, upto: int | None = None) -> None:
        stage = Stage()
        failed: DecodeFailed | None = None

        async def save(index: int) -> None:
            self.saved.append(index)

        async def commit(index: int, operations: Sequence[Any]) -> None:
            self.saved.append(100 + index + len(operations))

        async def process(batch: Batch) -> None:
            self.calls += 1
            self.lag_s = batch.lag_s
            self.got = list(decoded(batch))
            chosen = None if upto is None else self.got[upto]
            await batch.checkpoint(upto=chosen)
            async with batch.transaction(upto=chosen):
                self.saved.append(-1)

        async with stage.living() as session:
            batch = Batch(self.records, lease=await stage.acquired(session), lag_s=2.5, save=save, commit=commit)
            try:
                await around([middleware], process)(batch)
            except DecodeFailed as error:
                # Raised again outside of the session's tasks, which would wrap it.
                failed = error
        if failed is not None:
            raise failed


async def test_decoding_hands_on_the_records_with_their_values() -> None:
    """Everything else of a record stays, and its bytes too: what is dead-lettered is what was written."""
    run = Run(record(1, b'{"a":1}'), record(2, b"[]", headers={"h": "x"}))
    await run.through(decoding(json_of()))

    assert run.got == [
        DecodedRecord(partition="p0", position="1", key="k1", data=b'{"a":1}', time_s=1.0, value={"a": 1}),
        DecodedRecord(partition="p0", position="2", key="k2", data=b"[]", time_s=2.0, headers={"h": "x"}, value=[]),
    ]
    assert (run.lag_s, run.saved) == (2.5, [1, -1, 101])


async def test_checkpoint_upto_a_decoded_record_is_one_of_the_record_itself() -> None:
    """`upto=record` gets what the iteration gave, which is another object than the pump's; in a transaction too."""
    run = Run(record(1, b"1"), record(2, b"2"), record(3, b"3"))
    await run.through(decoding(json_of()), upto=1)

    assert run.saved == [1, -1, 101]


@pytest.mark.parametrize("data", [b"\xff", b"{", b"", b'"secret'])
async def test_decode_failure_names_partition_and_position_and_sets_that_record_apart(data: bytes) -> None:
    """It is a failure like any other, of one record: those before it are handled, those after it not blamed."""
    run = Run(record(1, b"1"), record(2, data), record(3, b"3"))
    with pytest.raises(DecodeFailed) as failed:
        await run.through(decoding(json_of()))

    failure = Failure(partition="p0", token=1, stage="process", error=failed.value, attempts=1, records=run.records)
    assert (failed.value.partition, failed.value.position, run.calls) == ("p0", "2", 0)
    assert what_next(Retry(), failure) == SplitUp(at=(1, 2))
    assert str(failed.value).startswith("partition 'p0': the record at '2' cannot be decoded (")
    assert "secret" not in str(failed.value)


async def test_check_of_a_schema_is_part_of_decoding() -> None:
    """A JSON schema's `validate` raises; a record that is JSON and not as agreed fails like one that is not JSON."""

    def check(value: Any) -> None:
        if "id" not in value:
            raise ValueError("'id' is a required property\n\nOn instance: secret")

    run = Run(record(1, b'{"id":1}'), record(2, b"{}"))
    with pytest.raises(
        DecodeFailed, match=r"the record at '2' cannot be decoded \(ValueError: 'id' is a required property\)$"
    ):
        await run.through(decoding(json_of(check=check)))


async def test_decoder_may_be_async_and_get_the_whole_record() -> None:
    """A schema registry is asked over the network, for the id in a record's headers."""

    async def decode(each: Record) -> str:
        return f"{each.headers['schema']}:{each.data.decode()}"

    run = Run(record(1, b"x", headers={"schema": "7"}))
    await run.through(decoding(from_record=decode))

    assert [each.value for each in run.got] == ["7:x"]


async def test_batch_that_was_not_decoded_says_so() -> None:
    """Without the middleware every record would be of another kind, at the first attribute that is missing."""
    stage = Stage()

    async def save(_: int) -> None:
        return

    async with stage.living() as session:
        batch = Batch([record(1, b"1")], lease=await stage.acquired(session), lag_s=None, save=save)
        with pytest.raises(TypeError, match=r"give the host middleware=\[decoding"):
            list(decoded(batch))


@pytest.mark.parametrize("arguments", [{}, {"decode": json.loads, "from_record": str}])
def test_decoding_takes_exactly_one_decoder(arguments: dict[str, Any]) -> None:
    """With none every value would be None, with two nobody knows which one counts."""
    with pytest.raises(TypeError, match="exactly one of them"):
        decoding(**arguments)
