"""
What a user names with a URL: sources and stores. The one place that knows which kinds there are.

Knows no host. The module of a source or store is loaded only when one of its kind is named, so that a host on SQLite
loads no client of another database.
"""

from __future__ import annotations

import os
from pathlib import Path

from partitions.sources.base import Source
from partitions.stores.base import Store
from processor_host.errors import UserError

__all__ = ["open_source", "open_store", "parse_file_url", "scheme_of"]


def open_source(url: str) -> Source:
    """
    Return the source that a URL names; its `open` connects.

    Raises:
        UserError: the URL names no kind of source, or is malformed.
    """
    if scheme_of(url) == "local":
        from partitions.sources.local import LocalSource

        return LocalSource(parse_file_url(url, "local"))
    raise UserError(f"{url!r} names no source; {_expected('local', 's.db', url)}")


def open_store(url: str, *, call_timeout_s: float) -> Store:
    """
    Return the store that a URL names; its `open` connects.

    Args:
        url: Names the store.
        call_timeout_s: When callers give up a call, seconds: nothing may be written later.

    Raises:
        UserError: the URL names no kind of store, or is malformed.
    """
    if scheme_of(url) == "sqlite":
        from partitions.stores.sqlite import SqliteStore

        return SqliteStore(parse_file_url(url, "sqlite"), call_timeout_s=call_timeout_s)
    raise UserError(f"{url!r} names no store; {_expected('sqlite', 'leases.db', url)}")


def scheme_of(url: str) -> str:
    """Return what stands before the first colon; empty if there is none."""
    scheme, colon, _ = url.partition(":")
    return scheme if colon else ""


def parse_file_url(url: str, scheme: str) -> Path:
    """
    Return the file that `<scheme>:///absolute/path` or `<scheme>:relative/path` names, as an absolute path.

    A relative one is in the current folder. Nothing in a path is special: no `%20`, no `~`, no `?`.

    Raises:
        UserError: the URL is of another scheme, names no file or one in memory, has two slashes, after which a host
            would stand, or begins with a `~` that a shell would have replaced in another place.
    """
    if scheme_of(url) != scheme:
        raise UserError(f"{url!r} is not a {scheme}: URL; {_expected(scheme, 'file.db', url)}")
    rest = url.removeprefix(f"{scheme}:")
    if rest.startswith("//") and not rest.startswith("///"):
        name = rest.removeprefix("//") or "file.db"
        raise UserError(
            f"{url!r} has two slashes; use '{scheme}:{name}' for a file in the current folder, "
            f"or three slashes for a path from the root: '{scheme}:///{name}'"
        )
    if rest == ":memory:":
        raise UserError(
            f"{url!r} would be in the memory of one process, where no other one finds it; "
            + _expected(scheme, "file.db", "")
        )
    if (whole := os.path.expanduser(rest)) != rest:
        raise UserError(f"{url!r}: `~` is not expanded; write the whole path: '{scheme}://{whole}'")
    path = rest.removeprefix("//")
    if Path(path).name in ("", "..") or path.endswith("/") or "\0" in path:
        raise UserError(f"{url!r} names no file; {_expected(scheme, 'file.db', '')}")
    return Path.cwd() / path


def _expected(scheme: str, example: str, given: str) -> str:
    """Say what to write; of a plain path, how to write that very one."""
    if given and ":" not in given:
        path = given.lstrip("/")
        return f"did you mean '{scheme}:///{path}'?" if given.startswith("/") else f"did you mean '{scheme}:{given}'?"
    return f"use '{scheme}:{example}' for a file in the current folder or '{scheme}:///folder/{example}'"
