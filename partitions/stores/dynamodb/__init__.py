"""
A store in one DynamoDB table. Imported by name only, because it loads the SDK of AWS.
"""

from __future__ import annotations

from partitions.stores.dynamodb._store import DynamoDBStore
from partitions.stores.dynamodb.operations import DynamoDBOperation, DynamoDBTransaction

__all__ = ["DynamoDBOperation", "DynamoDBStore", "DynamoDBTransaction"]
