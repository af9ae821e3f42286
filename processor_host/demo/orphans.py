"""
The demo's children end by themselves where the demo is gone without having ended them, as after a SIGKILL.

Knows neither hosts nor streams.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import cache
from typing import Final

__all__ = ["PARENT", "end_without_parent"]

PARENT: Final = "PROCESSOR_HOST_DEMO_PARENT"
"""The environment variable with the process id of the demo; without it nobody is watched."""

LOOK_S: Final = 0.5


@cache
def end_without_parent() -> None:
    """Send this process a SIGTERM once the demo that started it is gone. Later calls do nothing more."""
    if parent := os.environ.get(PARENT, ""):
        threading.Thread(target=_watch, args=(int(parent),), name="watch parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
