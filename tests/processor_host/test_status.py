"""
The status of a group: what its items say to a person, as data, as JSON and as tables.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from partitions.items import LeaseItem, LockItem, SessionItem
from partitions.liveness import LiveView, observe
from partitions.rules import PAUSE_REASON
from processor_host.plurals import count_of
from processor_host.status import HostRow, PartitionRow, Status, status_of
from processor_host.status_table import printable, shortened, status_tables
from tests.builders import SOURCE, a_group, a_lease, a_session

__all__: list[str] = []

A = a_session("a:11aa", owned=1, asks={"p-0@7": "b:22bb"}, max_leases=4, extra={"pid": 41})
B = a_session("b:22bb", beat=5)


def status(leases: list[LeaseItem], sessions: list[SessionItem], **more: Any) -> Status:
    return status_of("orders", a_group(), leases, sessions, **more)


def row(**changes: Any) -> PartitionRow:
    """What is shown of a lease that nobody has had."""
    values: dict[str, Any] = {
        "partition": "p-0",
        "state": "free",
        "paused": False,
        "owner": None,
        "host": None,
        "token": 0,
        "position": "@earliest",
        "last_host": None,
        "asker": None,
        "asker_host": None,
        "lag_s": None,
        "parents": (),
        "reason": None,
    }
    return PartitionRow(**(values | changes))


def shown(value: Status, width: int = 160) -> list[str]:
    """The lines as a file gets them."""
    stream = io.StringIO()
    Console(file=stream, width=width).print(status_tables(value))
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("lease", "expected"),
    [
        (a_lease(), row()),
        (a_lease(owner="b:22bb", token=3), row(state="owned", owner="b:22bb", host="b", token=3)),
        (
            a_lease(owner="a:11aa", token=7),
            row(state="asked", owner="a:11aa", host="a", token=7, asker="b:22bb", asker_host="b"),
        ),
        # An ask of an earlier term means nothing.
        (a_lease(owner="a:11aa", token=8), row(state="owned", owner="a:11aa", host="a", token=8)),
        # An owner whose session is gone owns nothing (DESIGN section 2).
        (a_lease(owner="gone:1", token=3, last_host="gone"), row(token=3, last_host="gone")),
        (a_lease(paused=True, token=3), row(state="paused", paused=True, token=3)),
        (
            a_lease(paused=True, token=3, extra={PAUSE_REASON: "poison at 4711"}),
            row(state="paused", paused=True, token=3, reason="poison at 4711"),
        ),
        # Left behind by whoever resumed it.
        (a_lease(token=3, extra={PAUSE_REASON: "poison at 4711"}), row(token=3)),
        (
            a_lease(paused=True, owner="b:22bb", token=3),
            row(state="owned", paused=True, owner="b:22bb", host="b", token=3),
        ),
        (
            a_lease(finished=True, position="@end", token=3, parents=("p-9",)),
            row(state="ended", position="@end", token=3, parents=("p-9",)),
        ),
    ],
)
def test_partition_is_shown_as_its_lease_and_the_sessions_say(lease: LeaseItem, expected: PartitionRow) -> None:
    """Who reads it decides whom to stop and what to start."""
    assert status([lease], [A, B]).partitions == (expected,)


@pytest.mark.parametrize(
    ("asker", "expected"), [("", ("", None)), ("gone:1", ("gone:1", "gone:1")), ("b:22bb", ("b:22bb", "b"))]
)
def test_asker_is_shown_also_where_it_is_nobody_or_gone(asker: str, expected: tuple[str, str | None]) -> None:
    """Every ask is honoured, so that the owner lets go also of these."""
    owner = a_session("a:11aa", asks={"p-0@1": asker})

    (found,) = status([a_lease(owner="a:11aa", token=1)], [owner, B]).partitions

    assert (found.state, found.asker, found.asker_host) == ("asked", *expected)


def test_host_is_shown_with_what_the_leases_say_it_owns() -> None:
    """What a host published may be a beat old; the leases are the truth."""
    leases = [a_lease("p-0", owner="a:11aa", token=7), a_lease("p-1", owner="a:11aa", token=1), a_lease("p-2")]

    assert status(leases, [A]).hosts == (
        HostRow(
            session_id="a:11aa",
            host_id="a",
            beat=0,
            alive=None,
            unchanged_s=None,
            owned=2,
            asks=1,
            capacity=1.0,
            max_leases=4,
            load=0.0,
            draining=False,
            duration_s=10.0,
            about={"pid": 41},
        ),
    )


@pytest.mark.parametrize("changes", [{"draining": True}, {"drain_asked": True}])
def test_host_is_draining_when_it_says_so_or_was_asked_to(changes: dict[str, bool]) -> None:
    """The wish of an operator counts before the host's next beat confirms it."""
    assert status([], [a_session(**changes)]).hosts[0].draining


@pytest.mark.parametrize(
    ("beats", "at_s", "expected"),
    [
        ([(0, 100.0)], 109.0, (True, 9.0)),
        ([(0, 100.0)], 110.2, (False, 10.2)),
        ([(0, 100.0), (1, 109.0)], 112.0, (True, 3.0)),
    ],
)
def test_host_is_alive_while_its_beat_moves(
    beats: list[tuple[int, float]], at_s: float, expected: tuple[bool, float]
) -> None:
    """Only watching tells; no host's wall clock is read."""
    view = LiveView.empty()
    for beat, seen_s in [*beats, (beats[-1][0], at_s)]:
        view = observe(view, [a_session(beat=beat)], seen_s)

    (host,) = status([], [a_session(beat=beats[-1][0])], view=view).hosts

    assert host.alive is expected[0]
    assert host.unchanged_s == pytest.approx(expected[1])


def test_rows_are_in_the_order_of_numbers() -> None:
    """`p-10` before `p-9` is where an eye looks in vain."""
    names = ["p-10", "p-9", "p-1", "q", "p", "9" * 5000]

    assert [found.partition for found in status([a_lease(name) for name in names], []).partitions] == [
        "9" * 5000,
        "p",
        "p-1",
        "p-9",
        "p-10",
        "q",
    ]


def test_status_counts_partitions_by_state_and_hosts() -> None:
    """One line that says whether anything is left alone."""
    leases = [
        a_lease("p-0", owner="a:11aa", token=7),
        a_lease("p-1", owner="b:22bb", token=1),
        a_lease("p-2"),
        a_lease("p-3", owner="gone:1", token=1),
        a_lease("p-4", paused=True),
        a_lease("p-5", finished=True),
    ]

    assert status(leases, [A, B]).counts() == {
        "owned": 1,
        "asked": 1,
        "free": 2,
        "paused": 1,
        "ended": 1,
        "hosts": 2,
    }


def test_json_has_the_documented_shape() -> None:
    """Scripts rely on it; it may grow and must not change."""
    value = status([a_lease(owner="a:11aa", token=7, parents=("p-8", "p-9"))], [A, B], lags_s={"p-0": 1.5})

    assert json.loads(json.dumps(value.as_json())) == {
        "group": "orders",
        "source": SOURCE,
        "start": "@earliest",
        "counts": {"owned": 0, "asked": 1, "free": 0, "paused": 0, "ended": 0, "hosts": 2},
        "partitions": [
            {
                "partition": "p-0",
                "state": "asked",
                "paused": False,
                "owner": "a:11aa",
                "host": "a",
                "token": 7,
                "position": "@earliest",
                "last_host": None,
                "asker": "b:22bb",
                "asker_host": "b",
                "lag_s": 1.5,
                "parents": ["p-8", "p-9"],
                "reason": None,
            }
        ],
        "hosts": [
            {
                "session_id": "a:11aa",
                "host_id": "a",
                "beat": 0,
                "alive": None,
                "unchanged_s": None,
                "owned": 1,
                "asks": 1,
                "capacity": 1.0,
                "max_leases": 4,
                "load": 0.0,
                "draining": False,
                "duration_s": 10.0,
                "about": {"pid": 41},
            },
            {
                "session_id": "b:22bb",
                "host_id": "b",
                "beat": 5,
                "alive": None,
                "unchanged_s": None,
                "owned": 0,
                "asks": 0,
                "capacity": 1.0,
                "max_leases": None,
                "load": 0.0,
                "draining": False,
                "duration_s": 10.0,
                "about": {},
            },
        ],
        "locks": [],
    }


def test_tables_show_who_owns_what_and_who_waits_for_whom() -> None:
    """The whole page, as a file or a pipe gets it."""
    leases = [
        a_lease("p-0", owner="a:11aa", token=7, position="4957" + "0" * 46 + "588898"),
        a_lease("p-1", token=2, position="12"),
    ]

    assert shown(status(leases, [A, B], lags_s={"p-0": 12.34})) == [
        "group orders on local:s.db@1700000000: 2 hosts; 0 owned, 1 asked, 1 free",
        "host  state  owned  asked  beat  moved  capacity  max",
        "a                1      1     0                1    4",
        "b                0      0     5                1",
        "partition  state  owner  token  position         lag  asked by",
        "p-0        asked  a          7  …00000588898  12.3 s  b",
        "p-1        free              2  12",
    ]


def test_tables_end_with_the_locks_where_there_are_any() -> None:
    """Who runs a singleton is asked as often as who has a partition."""
    locks = [
        LockItem(name="nightly", owner="a:11aa", token=3, holder="a"),
        LockItem(name="hourly", owner="gone:1", token=4, holder="gone"),
    ]
    found = status([a_lease()], [A], locks=locks)

    assert [line.split() for line in shown(found)[-3:]] == [
        ["lock", "state", "holder", "token"],
        ["hourly", "free", "4"],
        ["nightly", "held", "a", "3"],
    ]
    assert [each["holder"] for each in found.as_json()["locks"]] == [None, "a"]


def test_tables_tell_sessions_of_one_host_apart_where_there_are_several() -> None:
    """It is allowed, rarely meant, and the reason for an odd count of hosts."""
    lines = shown(status([], [A, a_session("a:33cc")]))

    assert [line.split()[-1] for line in lines[1:4]] == ["session", "11aa", "33cc"]


def test_tables_fit_a_usual_terminal() -> None:
    """Cells that end in dots hide what somebody looks for in a hurry."""
    host = a_session("orders-12345:1", beat=123456, draining=True, max_leases=100)
    view = observe(observe(LiveView.empty(), [host], 0.0), [host], 999.0)
    lease = a_lease("shardId-000000000012", owner=host.session_id, token=12345, position="9" * 56)

    lines = shown(status([lease], [host], view=view, lags_s={"shardId-000000000012": 12.3}), width=80)

    assert lines[-1].split() == ["shardId-000000000012", "owned", "orders-12345", "12345", "…99999999999", "12.3", "s"]
    assert not any("…" in line for line in lines[:-1])


def test_tables_show_who_is_dead() -> None:
    """It is the first thing that somebody watches for."""
    view = observe(observe(LiveView.empty(), [A, B], 100.0), [A, a_session("b:22bb", beat=6)], 112.0)

    states = [line.split()[1:2] + line.split()[5:8] for line in shown(status([], [A, B], view=view))[2:4]]

    assert states == [["dead", "12.0", "s", "ago"], ["alive", "0.0", "s", "ago"]]


def test_tables_take_nothing_in_a_name_for_markup_or_control() -> None:
    """Whoever names a partition must not be able to colour a terminal or forge a row."""
    name = "[red]p[/red]\n\x1b[31m\ud800"

    lines = shown(status([a_lease(name, owner=name, position=name)], [a_session(name, host_id=name)]))

    assert sum(r"[red]p[/red]\n\x1b[31m\ud800" in line for line in lines) == 2
    assert not any(sign in line for line in lines for sign in ("\x1b", "\ud800"))


def test_printable_leaves_other_scripts_as_they_are() -> None:
    """Names are in the language of who gives them."""
    assert printable("ñandú 駅") == "ñandú 駅"


def test_shortened_keeps_the_end_of_a_position() -> None:
    """Only its last digits move."""
    assert shortened("1" * 12) == "1" * 12
    assert shortened("1" + "2" * 12) == "…" + "2" * 11


def test_reason_of_a_pause_is_a_column_only_where_there_is_one() -> None:
    """Who looks for why nothing happens needs it, and a usual terminal has 80 columns."""
    paused = a_lease("p-1", paused=True, token=3, extra={PAUSE_REASON: "poison\nat 4711 " + "x" * 200})

    plain, with_reason = shown(status([a_lease()], [A])), shown(status([a_lease(), paused], [A]), width=240)
    assert not any("because" in line for line in plain)
    assert next(line for line in with_reason if line.startswith("p-1")).endswith(r"poison\nat 4711 " + "x" * 104 + "…")


@pytest.mark.parametrize(("number", "text"), [(0, "0 records"), (1, "1 record"), (2, "2 records")])
def test_count_of_one_has_no_plural(number: int, text: str) -> None:
    """One with a plural reads like a fault of the program."""
    assert count_of(number, "record") == text
