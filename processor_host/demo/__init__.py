"""
The demo: three real hosts share a local stream, one is killed, a fourth joins, and a verdict says what became of every
record.

`python -m processor_host.demo` plays it. Nothing here is used by anything else; it is also an example of a processor
(`processor_host.demo.journal`) and of a check that believes nobody (`processor_host.demo.verdict`).
"""

from __future__ import annotations

__all__: list[str] = []
