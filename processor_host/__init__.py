"""
Consume a partitioned stream with many hosts: every partition has exactly one owner, and nothing is lost.

Subclass `PartitionProcessor`, run several hosts, and scrape their metrics to see who owns what. Guaranteed: each record
is handled at least once, in the order of its partition, by one host at a time. Not guaranteed: exactly once. After a
crash everything since the last checkpoint is handled again.
"""

from partitions.errors import LeaseLost
from partitions.leases import Lease, current_lease
from partitions.sources.base import Record
from processor_host.errors import SettingsError
from processor_host.host import ProcessorHost
from processor_host.processor import Batch, CloseReason, PartitionProcessor, ProcessorContext
from processor_host.settings import HostSettings

__all__ = [
    "Batch",
    "CloseReason",
    "HostSettings",
    "Lease",
    "LeaseLost",
    "PartitionProcessor",
    "ProcessorContext",
    "ProcessorHost",
    "Record",
    "SettingsError",
    "current_lease",
]
