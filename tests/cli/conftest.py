"""What the tests of the commands on AWS have: a server that answers as DynamoDB does."""

from __future__ import annotations

from tests.servers.fixtures import aws_dummies, moto_url

__all__ = ["aws_dummies", "moto_url"]
