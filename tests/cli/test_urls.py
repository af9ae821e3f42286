"""What a user names with a URL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from partitions.sources.local import LocalSource
from partitions.stores.sqlite import SqliteStore
from processor_host.errors import UserError
from processor_host.urls import open_source, open_store, parse_file_url

__all__: list[str] = []


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("local:///data/s.db", "/data/s.db"),
        ("local:/data/s.db", "/data/s.db"),
        ("local:s.db", "HERE/s.db"),
        ("local:data/s.db", "HERE/data/s.db"),
        ("local:./s.db", "HERE/s.db"),
        ("local:./~/s.db", "HERE/~/s.db"),
        ("local:s~.db", "HERE/s~.db"),
        ("local:a b%20?#:é.db", "HERE/a b%20?#:é.db"),
    ],
)
def test_file_url_names_an_absolute_path_and_nothing_in_it_is_special(
    url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that two parts of a program read differently is two files."""
    monkeypatch.chdir(tmp_path)

    assert parse_file_url(url, "local") == Path(path.replace("HERE", str(tmp_path)))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("local://s.db", "has two slashes; use 'local:s.db' for a file in the current folder, or three slashes"),
        ("local://data/s.db", "use 'local:data/s.db' for a file in the current folder, or three slashes for a path"),
        ("local://", "has two slashes; use 'local:file.db'"),
        ("local:", "names no file; use 'local:file.db' for a file in the current folder or 'local:///folder/file.db'"),
        ("local:///", "names no file"),
        ("local:data/", "names no file"),
        ("local:..", "names no file"),
        ("local:a\0b", "names no file"),
        ("local::memory:", "would be in the memory of one process, where no other one finds it; use 'local:file.db'"),
        ("local:~/s.db", "`~` is not expanded; write the whole path: 'local:///home/me/s.db'"),
        ("local:~", "`~` is not expanded; write the whole path: 'local:///home/me'"),
        ("sqlite:s.db", "is not a local: URL; use 'local:file.db'"),
        ("s.db", "is not a local: URL; did you mean 'local:s.db'?"),
        ("/data/s.db", "is not a local: URL; did you mean 'local:///data/s.db'?"),
        ("", "is not a local: URL; use 'local:file.db'"),
    ],
)
def test_file_url_that_is_malformed_is_told_with_the_remedy(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`local://s.db` is what everybody writes first; its path would be the root's."""
    monkeypatch.setenv("HOME", "/home/me")
    with pytest.raises(UserError, match="^" + re.escape(repr(url)) + ".*" + re.escape(says)) as refused:
        parse_file_url(url, "local")
    assert refused.value.exit_status == 2


def test_urls_open_what_they_name() -> None:
    """Each kind by its own scheme."""
    source = open_source("local:///data/s.db")
    store = open_store("sqlite:///data/leases.db", call_timeout_s=1.0)

    assert (type(source), source.url) == (LocalSource, "local:///data/s.db")
    assert (type(store), store.url) == (SqliteStore, "sqlite:///data/leases.db")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:leases.db", "names no source; use 'local:s.db'"),
        ("s.db", "names no source; did you mean 'local:s.db'?"),
        ("kafka://x/y", "names no source; use 'local:s.db'"),
    ],
)
def test_url_of_no_source_is_told_with_the_remedy(url: str, says: str) -> None:
    """The two options of `run` are easily mixed up."""
    with pytest.raises(UserError, match=re.escape(f"{url!r} {says}")):
        open_source(url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("local:s.db", "names no store; use 'sqlite:leases.db'"),
        ("/data/leases.db", "names no store; did you mean 'sqlite:///data/leases.db'?"),
    ],
)
def test_url_of_no_store_is_told_with_the_remedy(url: str, says: str) -> None:
    """The two options of `run` are easily mixed up."""
    with pytest.raises(UserError, match=re.escape(f"{url!r} {says}")):
        open_store(url, call_timeout_s=1.0)
