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
from processor_host.failures import DeadLetter, Failure, Retry, Skip, Stop
from processor_host.host import ProcessorHost
from processor_host.logs import EventLog
from processor_host.processor import Batch, CloseReason, PartitionProcessor, ProcessorContext, RecordProcessor
from processor_host.settings import HostSettings
from processor_host.threads import SyncBatch

__all__ = [
    "Batch",
    "CloseReason",
    "DeadLetter",
    "EventLog",
    "Failure",
    "HostSettings",
    "Lease",
    "LeaseLost",
    "PartitionProcessor",
    "ProcessorContext",
    "ProcessorHost",
    "Record",
    "RecordProcessor",
    "Retry",
    "SettingsError",
    "Skip",
    "Stop",
    "SyncBatch",
    "current_lease",
]
