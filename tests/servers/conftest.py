"""The fixtures of the servers, for the tests of the servers themselves."""

from __future__ import annotations

from tests.servers.fixtures import (
    aws_dummies,
    dynalite_url,
    kinesalite_url,
    kinesis_local_url,
    ministack_url,
    moto_url,
)

__all__ = ["aws_dummies", "dynalite_url", "kinesalite_url", "kinesis_local_url", "ministack_url", "moto_url"]
