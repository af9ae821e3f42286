"""Several groups in one table: C54."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from tests.processes.dynamodb.tables import TableGroup, losses
from tests.processes.histories import repeats, unhandled
from tests.processes.scaling import figure, scaled, tell_factor
from tests.proxy import Proxy

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

D_S = scaled(6.0)
WRITES = ("PutItem", "UpdateItem", "DeleteItem")


@pytest.fixture
def groups(tmp_path: Path, moto_url: str) -> Iterator[tuple[TableGroup, TableGroup]]:
    """Two groups on one table, each through a proxy of its own, which tells whose a call is."""
    with start_blocking_portal() as portal, Proxy(moto_url) as one, Proxy(moto_url) as two:
        folders = tmp_path / "g1", tmp_path / "g2"
        for folder in folders:
            folder.mkdir()
        first = TableGroup(folders[0], portal, one, group="g1")
        second = TableGroup(folders[1], portal, two, group="g2", table=first.table)
        try:
            yield first, second
        finally:
            first.close()
            second.close()


@pytest.mark.parametrize("streams", ["two streams", "one stream"])
def test_c54_groups_on_one_table_each_handle_all_and_write_no_item_of_the_other(
    streams: str, groups: tuple[TableGroup, TableGroup]
) -> None:
    """Partition ids repeat from stream to stream: an item named by its partition alone would belong to both."""
    first, second = groups
    first.create(4)
    first.put(60)
    if streams == "two streams":
        second.create(4)
        second.put(40)
    else:
        second.records = first.records
    source = first if streams == "one stream" else second
    hosts = []
    for group, url in ((first, first.folder), (second, source.folder)):
        for number in range(2):
            hosts.append(
                group.start(
                    f"h{number}",
                    *("--source", f"local://{url / 's.db'}", "--checkpoint-interval-s", repr(scaled(1.0))),
                    *("--batch-records-max", "5"),
                    lease_duration_s=D_S,
                    record_s=0.02,
                )
            )
    for group in groups:
        group.wait_until("all is handled", lambda g=group: not unhandled(g.journals.read(), g.records), 60)  # type: ignore[misc]
    for group in groups:
        group.wait_balanced(group.hosts)
    for host in hosts:
        host.terminate()
    statuses = [host.wait(20) for host in hosts]

    written = [keys_of(group.proxy) for group in groups]
    tell_factor()
    figure(f"{streams}: {[len(keys) for keys in written]} items written by each group")
    assert statuses == [0, 0, 0, 0]
    assert [line for host in hosts for line in losses(host)] == []
    for group, keys in zip(groups, written, strict=True):
        assert repeats(group.journals.read()) == {}
        ended = Counter((each.partition, each.value) for each in group.journals.ended())
        assert len(ended) == ended.total() == sum(group.records.values())
        # The leases, the sessions and the group's own item.
        assert len(keys) >= 4 + 2 + 1
        assert {item.partition: item.position for item in group.leases.leases().values()} == {
            name: str(count) for name, count in group.records.items()
        }
    assert written[0] & written[1] == set()


def keys_of(proxy: Proxy) -> set[tuple[str, str]]:
    """Return the key of each item that was written through a proxy."""
    writes = [call for call in proxy.calls if call.operation in (*WRITES, "TransactWriteItems")]
    return {(key["pk"], key["sk"]) for call in writes for key in call.keys}
