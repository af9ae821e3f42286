"""
Amazon Kinesis Data Streams as a source: the only place that says shard.

Imported by name only: `import partitions` loads no client of AWS. `KinesisSource` is the reader's side (the contract of
`partitions.sources.base`), `KinesisStream` the writer's.
"""

from partitions.sources.kinesis._calls import KinesisClient
from partitions.sources.kinesis._importing import Imported
from partitions.sources.kinesis._reader import KinesisReader
from partitions.sources.kinesis._source import KinesisSource
from partitions.sources.kinesis._stream import KinesisStream, ShardDescription
from partitions.sources.kinesis._url import KinesisPlace, parse_url

__all__ = [
    "Imported",
    "KinesisClient",
    "KinesisPlace",
    "KinesisReader",
    "KinesisSource",
    "KinesisStream",
    "ShardDescription",
    "parse_url",
]
