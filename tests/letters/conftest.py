"""The server for the sinks on AWS: moto, which comes with the development environment."""

from __future__ import annotations

from tests.servers.fixtures import aws_dummies, moto_url

__all__ = ["aws_dummies", "moto_url"]
