"""
A proxy between a client of AWS and a server, which counts the calls and disturbs those that a test chooses.

    with Proxy(moto_url) as proxy:
        ...                                     # hosts whose endpoint_url is proxy.url, in any process
        beats = Fault(effect=Effect.FAIL_AFTER, operation="UpdateItem", when=lambda call: call.mentions("p5"))
        with proxy.rules.applied(beats):
            ...                                 # each update of p5 is applied, and its answer lost
        with proxy.cut(silent=True):
            ...                                 # nobody gets an answer
        assert proxy.count("UpdateItem") == 3

It runs on a thread with a loop of its own, so that it serves tests with and without a loop, and does not stand still
when a test does.
"""

from __future__ import annotations

from tests.proxy.calls import Call
from tests.proxy.faults import Effect, Fault, Rules
from tests.proxy.notes import Capacity
from tests.proxy.proxy import Proxy

__all__ = ["Call", "Capacity", "Effect", "Fault", "Proxy", "Rules"]
