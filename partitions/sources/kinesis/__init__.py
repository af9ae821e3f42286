"""
Amazon Kinesis Data Streams as a source: the only place that says shard.

Imported by name only: `import partitions` loads no client of AWS. The writer's side is not here.
"""

from partitions.sources.kinesis._calls import KinesisClient
from partitions.sources.kinesis._reader import KinesisReader
from partitions.sources.kinesis._source import KinesisSource
from partitions.sources.kinesis._url import KinesisPlace, parse_url

__all__ = ["KinesisClient", "KinesisPlace", "KinesisReader", "KinesisSource", "parse_url"]
