"""
What holds a server that is written in Python: it ends when its standard input does, and has bounded memory.

Also a script that runs another package's `main` so: `python lifeline.py ministack.app`. It must import nothing
beside the standard library, since that package lives in an environment of its own.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import threading

__all__ = ["hold"]

# Private memory. The servers need a tenth of it for what the tests store.
DATA_BYTES_MAX = 3 * 1024**3


def hold() -> None:
    """Bound the memory of this process; if the variable SERVERS_LIFELINE is `stdin`, end it with its input."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = DATA_BYTES_MAX if hard == resource.RLIM_INFINITY else min(DATA_BYTES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    if os.environ.get("SERVERS_LIFELINE") == "stdin":
        threading.Thread(target=end_with_input, name="lifeline", daemon=True).start()


def end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    hold()
    module = sys.argv.pop(1)
    sys.exit(importlib.import_module(module).main())
