"""The stores as fixtures, for the commands beside a host in real time."""

from __future__ import annotations

from tests.stores.conftest import aws_dummies, dynalite_url, kind, ministack_url, moto_url, store

__all__ = ["aws_dummies", "dynalite_url", "kind", "ministack_url", "moto_url", "store"]
