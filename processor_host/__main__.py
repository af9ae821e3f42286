"""
`python -m processor_host`: the command line, also where its script is not on the path.
"""

from __future__ import annotations

from processor_host.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main(prog_name="processor-host")
