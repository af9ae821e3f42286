"""
What `processor-host stream` prints: records, the partitions of a stream, and what an import did.

Values in, text out; knows no stream and no terminal.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from partitions.sources.base import Record
from partitions.sources.local import Description, PartitionDescription
from processor_host.plurals import count_of

__all__ = ["description_text", "import_text", "record_json", "record_text"]

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What in a record's text would break its line, or speak to the terminal."""


def import_text(done: Mapping[str, Any]) -> str:
    """Return what an import did as one line; `done` is what `--json` prints."""
    spread = ", ".join(f"{partition} {records}" for partition, records in done["by_partition"].items())
    left_out = f", skipped {count_of(done['skipped'], 'bad line')}" if done["skipped"] else ""
    if done.get("resent"):
        left_out += f", {done['resent']} sent again"
    if done.get("unsure"):
        left_out += f", {done['unsure']} perhaps there twice"
    return f"imported {count_of(done['records'], 'record')} in {done['seconds']:.1f} s{left_out}: {spread}"


def record_text(record: Record) -> str:
    """Return a record as one line, whatever is in it."""
    key = "-" if record.key is None else record.key
    text = record.data.decode("utf-8", "backslashreplace")
    return _CONTROL.sub(
        lambda found: f"\\x{ord(found.group()):02x}", f"{record.partition} {record.position} {key} {text}"
    )


def record_json(record: Record) -> str:
    """Return a record as one JSON object."""
    fields: dict[str, object] = {
        "partition": record.partition,
        "position": record.position,
        "key": record.key,
        "time_s": record.time_s,
    }
    if record.headers:
        fields["headers"] = dict(record.headers)
    try:
        fields["data"] = record.data.decode("utf-8")
    except UnicodeDecodeError:
        fields["data_base64"] = base64.b64encode(record.data).decode("ascii")
    return json.dumps(fields, ensure_ascii=False)


def description_text(description: Description) -> str:
    """Return the partitions of a local stream as a table."""
    records = sum(each.records for each in description.partitions)
    is_open = sum(not each.closed for each in description.partitions)
    rows: list[tuple[str, ...]] = [("PARTITION", "STATE", "RECORDS", "LAST", "LAST AT", "PARENTS", "KEY HASHES")]
    rows += [_row(each) for each in description.partitions]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        [
            f"{description.name}: {count_of(len(description.partitions), 'partition')}, {is_open} open, "
            f"{count_of(records, 'record')}, identity {description.identity}",
            *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows),
        ]
    )


def _row(each: PartitionDescription) -> tuple[str, ...]:
    last_at = (
        "-" if each.last_time_s is None else datetime.fromtimestamp(each.last_time_s, UTC).isoformat("T", "seconds")
    )
    state = "open" if not each.closed else "closed" if each.listed else "dropped"
    hashes = f"{each.hash_low:08x}-{each.hash_high - 1:08x}"
    return each.partition, state, str(each.records), each.last, last_at, ",".join(each.parents) or "-", hashes
