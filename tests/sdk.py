"""
What the SDK of AWS reads for each client that it makes, read once in the process of the tests.

A program makes a few clients in its life; the tests make hundreds in one process, and half of the time of those that
talk to a server here went into reading the same files. Nothing that is tested is changed: not what is sent, nor what
becomes of an answer. The child processes of the tests read as any program does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import aiobotocore.httpsession  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]

__all__ = ["read_once"]


def read_once() -> None:
    """Keep the descriptions of the services, and read no authorities of certificates."""
    sdk: Any = botocore.session
    sdk.create_loader = cache(sdk.create_loader)
    # Every server of the tests speaks plain HTTP; one with TLS would be refused, for nobody vouches for it.
    connections: Any = aiobotocore.httpsession
    connections.get_cert_path = lambda verify: None
