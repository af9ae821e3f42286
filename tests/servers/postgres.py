"""
PostgreSQL of Debian's packages: a cluster of its own in a temporary folder, for the length of a block.

It listens on a socket in that folder alone. As PostgreSQL refuses to run as root, it runs as the packages' own user
there. It ends with its starter, also where that was killed.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["postgres_conninfo", "started_postgres"]

MISSING = "PostgreSQL was not found: install it (Debian: apt-get install postgresql)"
PROGRAMS = Path("/usr/lib/postgresql")
USER = "postgres"
START_S_MAX = 60.0
STOP_S_MAX = 10.0
POLL_S = 0.05

# Nothing here outlives the tests, so nothing has to outlive a crash of the machine.
SETTINGS = ("listen_addresses=", "fsync=off", "full_page_writes=off", "synchronous_commit=off", "shared_buffers=8MB")


def programs() -> Path:
    """The folder of the newest version's programs; none fails the test."""
    found = [path.parent for path in PROGRAMS.glob("*/bin/initdb")]
    if not found:
        pytest.fail(MISSING, pytrace=False)
    return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", str(path))])


@contextmanager
def started_postgres() -> Iterator[str]:
    """A server for the length of the block; yields what a client needs to connect (libpq's conninfo)."""
    bin_folder = programs()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    as_user: list[str] = []
    user = pwd.getpwuid(os.getuid()).pw_name
    if os.getuid() == 0:
        user, owner = USER, pwd.getpwnam(USER)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={owner.pw_gid}", "--clear-groups", "--"]
    try:
        data, log = folder / "data", folder / "log"
        made = ["initdb", "--pgdata", str(data), "--auth=trust", "--no-sync", "--no-instructions", "--locale=C.UTF-8"]
        subprocess.run(
            [*as_user, str(bin_folder / made[0]), *made[1:]], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        dies_too = ["setpriv", "--pdeathsig", "QUIT", "--"] if shutil.which("setpriv") else []
        flags = [part for setting in SETTINGS for part in ("-c", setting)]
        command = [str(bin_folder / "postgres"), "-D", str(data), "-k", str(folder), *flags]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*as_user, *dies_too, *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            ready = [str(bin_folder / "pg_isready"), "-q", "-h", str(folder)]
            until_s = time.monotonic() + START_S_MAX
            while subprocess.run(ready, check=False).returncode != 0:
                if process.poll() is not None or time.monotonic() > until_s:
                    raise AssertionError(f"PostgreSQL has not started; its log:\n{log.read_text()[-3000:]}")
                time.sleep(POLL_S)
            yield f"host={folder} user={user} dbname=postgres"
        finally:
            process.send_signal(signal.SIGQUIT)
            try:
                process.wait(STOP_S_MAX)
            finally:
                # A second signal to a process that has ended is none.
                process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_conninfo() -> Iterator[str]:
    """Where a PostgreSQL is that runs until the session's end. Marker `servers`."""
    with started_postgres() as conninfo:
        yield conninfo
