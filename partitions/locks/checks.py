"""
What must hold of what a user gives to a session for locks: its times, its names, and the store.

Pure: knows no clock and no store. A slip is refused where it is made, with the value, what was expected
and what to do, for behind it are other processes: what is refused here would be seen there as a lock that nobody gets.
"""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = [
    "CALLS",
    "DURATION_MIN_S",
    "NAME_BYTES_MAX",
    "check_id",
    "check_name",
    "check_named",
    "check_store",
    "check_times",
    "check_timeout",
]

NAME_BYTES_MAX: Final = 1024
"""What DynamoDB takes as a sort key."""

DURATION_MIN_S: Final = 0.3
"""As hosts have it: a call may then take 50 ms, about as long as a flush of a busy disk does."""

CALLS: Final = 6
"""The longest call, as a part of the duration (DESIGN rule 3)."""

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


def check_id(kind: str, value: object) -> None:
    """
    Check the name of a group or a host, which becomes part of keys; the command line takes no other.

    Raises:
        TypeError: it is no text.
        ValueError: it has other characters, or none, or too many.
    """
    if not isinstance(value, str):
        raise TypeError(f"{kind}={value!r} is not a text; give {kind} as a str")
    if not _ID.fullmatch(value):
        shown = repr(value) if len(value) <= 140 else f"{value[:140]!r}… ({len(value)} characters)"
        raise ValueError(f"{kind}={shown} is not an id; use 1 to 128 letters, digits, dots, underscores and hyphens")


def check_name(name: object) -> None:
    """
    Check that every store can keep a lock of this name, so that who uses another fails in any test.

    Raises:
        TypeError: it is no text.
        ValueError: it is empty, or too long, or no store can write it.
    """
    if not isinstance(name, str):
        raise TypeError(f"lock {name!r} is not a text; give the lock's name as a str")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"lock {name!r} cannot be written as UTF-8 ({error.reason}); use another name") from None
    if not 0 < size <= NAME_BYTES_MAX:
        raise ValueError(f"lock {name!r} has a name of {size} bytes, expected 1 to {NAME_BYTES_MAX}; use another one")


def check_named(name: str, host_id: str, *, is_named: bool) -> None:
    """
    Refuse a lock that does not expire to a host that was given no name of its own.

    Raises:
        ValueError: the lock would stay with a name that other processes have too, or that no later one has.
    """
    if is_named:
        return
    raise ValueError(
        f"lock {name!r} with expires=False stays with the host_id of who acquires it, and {host_id!r} is only made of "
        "the machine's name; give Session, or the HostSettings of a host, a host_id of its own that survives a restart"
    )


def check_store(store: object) -> None:
    """
    Check that a store was given, and not its URL.

    Raises:
        TypeError: it is something else.
    """
    # Any class may be one: the contract is a protocol.
    if hasattr(store, "read_lock"):
        return
    raise TypeError(
        f"store={store!r} is not a store; give an open one, such as partitions.stores.sqlite.SqliteStore('leases.db')"
    )


def check_timeout(timeout_s: float | None) -> None:
    """
    Check how long somebody wants to wait.

    Raises:
        TypeError: it is neither a number nor None.
        ValueError: it is negative, or not a number at all.
    """
    if timeout_s is None:
        return
    if not _is_number(timeout_s):
        raise TypeError(f"timeout_s={timeout_s!r} is not a number of seconds; give one, or None to wait for ever")
    # NaN is not.
    if not timeout_s >= 0:
        raise ValueError(f"timeout_s={timeout_s} is not a time; use 0 or more, or None to wait for ever")


def check_times(*, duration_s: float, poll_s: float, call_timeout_s: float | None) -> None:
    """
    Check the times of a session, one by one and against one another.

    Raises:
        TypeError: one is no number.
        ValueError: one cannot work.
    """
    for name, value in (("duration_s", duration_s), ("poll_s", poll_s), ("call_timeout_s", call_timeout_s)):
        if not _is_number(value) and not (value is None and name == "call_timeout_s"):
            raise TypeError(f"{name}={value!r} is not a number; give seconds")
    if not DURATION_MIN_S <= duration_s < math.inf:
        raise ValueError(
            f"duration_s={duration_s} is no time to live; use a finite number of seconds from {DURATION_MIN_S} on"
        )
    most_s = duration_s / CALLS
    if call_timeout_s is not None and not 0 < call_timeout_s <= most_s:
        raise ValueError(
            f"call_timeout_s={call_timeout_s} leaves no retry inside duration_s={duration_s}; "
            f"use {most_s:.3g} or less"
        )
    if not 0 < poll_s < math.inf:
        raise ValueError(f"poll_s={poll_s} would never let the store rest, or never look; use 0.25 or so")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
