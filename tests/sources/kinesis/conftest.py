"""The servers of Kinesis as fixtures."""

from __future__ import annotations

from tests.servers.fixtures import aws_dummies, kinesalite_url, kinesis_local_url, ministack_url, moto_url

__all__ = ["aws_dummies", "kinesalite_url", "kinesis_local_url", "ministack_url", "moto_url"]
