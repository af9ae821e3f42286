"""The picture of a group: what of it a browser is given, from a host's looks and from its own events."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from partitions.events import CheckpointSaved, Event, LeaseAcquired, LeaseReleased, SessionBegan
from partitions.items import LeaseItem, SessionItem
from partitions.rules import PAUSE_REASON
from processor_host.events import LagSeen, ProcessorFailed, PumpStarted
from processor_host.page import GroupWatch
from processor_host.page.picture import PARTITIONS_MAX, REASON_MAX, STATUS_URL, picture_of
from processor_host.stuck import Stuck
from tests.builders import a_lease, a_session
from tests.stage import HandClock

__all__: list[str] = []

URL = "http://127.0.0.1:9400/"
A = a_session("a:1", beat=1, extra={STATUS_URL: URL, "pid": 41})
B = a_session("b:1", beat=7, asks={"p-1@4": "a:1"})
P0 = a_lease("p-0", owner="a:1", token=3, last_host="a")
P1 = a_lease("p-1", owner="b:1", token=4, last_host="b")


class Watched:
    """The watch of host `a`, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = HandClock(100.0)
        self.stuck = Stuck(host_id="a", clock=self.clock)
        self.watch = GroupWatch(group="g", source="local:s.db", host_id="a", clock=self.clock.now_s, stuck=self.stuck)
        self.tell(SessionBegan(session_id="a:1"))

    def tell(self, *events: Event) -> None:
        for event in events:
            self.stuck.on_event(event)
            self.watch.on_event(event)

    def look(self, leases: list[LeaseItem], *sessions: SessionItem) -> None:
        self.watch.look(leases, sessions)

    def shown(self) -> dict[str, Any]:
        """What a browser is given."""
        found: dict[str, Any] = json.loads(json.dumps(picture_of(self.watch.material()).as_json()))
        return found

    def owners(self) -> dict[str, str | None]:
        return {row["partition"]: row["host"] for row in self.shown()["partitions"]}


def acquired(partition: str = "p-1", token: int = 5, reason: str = "asked") -> LeaseAcquired:
    return LeaseAcquired(
        partition=partition, token=token, reason=reason, previous_owner="b:1", position="7", duration_s=0.1
    )


def saved(partition: str, token: int, position: str) -> CheckpointSaved:
    return CheckpointSaved(partition=partition, token=token, position=position, duration_s=0.1)


def released(partition: str, token: int) -> LeaseReleased:
    return LeaseReleased(partition=partition, token=token, position=None, duration_s=0.1)


def test_picture_has_hosts_partitions_and_counts_as_the_status_command_has_them() -> None:
    """Who reads one can read the other; the page adds what only a host that runs can know."""
    of = Watched()
    of.look([P0, P1], A, B)
    of.tell(acquired("p-0", 3), LagSeen(partition="p-0", lag_s=2.5))
    of.clock.at_s = 101.5

    assert of.shown() == {
        "group": "g",
        "source": "local:s.db",
        "host_id": "a",
        "session_id": "a:1",
        "looked_before_s": 1.5,
        "counts": {"owned": 1, "asked": 1, "free": 0, "paused": 0, "ended": 0, "hosts": 2, "stalled": 0},
        "hosts": [
            host("a:1", beat=1, here=True, url=URL, about={STATUS_URL: URL, "pid": 41}),
            host("b:1", beat=7, asks=1),
        ],
        "partitions": [
            row("p-0", token=3, host="a", lag_s=2.5, here=True),
            row("p-1", token=4, host="b", state="asked", asker="a:1", asker_host="a"),
        ],
        "left_out": 0,
        "changes": [],
    }


def host(session_id: str, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "session_id": session_id,
        "host_id": session_id.rpartition(":")[0],
        "alive": True,
        "unchanged_s": 1.5,
        "owned": 1,
        "asks": 0,
        "capacity": 1.0,
        "max_leases": None,
        "load": 0.0,
        "draining": False,
        "duration_s": 10.0,
        "about": {},
        "here": False,
        "url": None,
    }
    return values | changes


def row(partition: str, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "partition": partition,
        "state": "owned",
        "paused": False,
        "owner": f"{changes['host']}:1",
        "position": "@earliest",
        "last_host": changes["host"],
        "asker": None,
        "asker_host": None,
        "lag_s": None,
        "parents": [],
        "here": False,
        "stalled_s": None,
        "failed_in": None,
        "reason": None,
    }
    return values | changes


def test_picture_before_the_first_look_is_empty_and_says_so() -> None:
    """The port answers while the store is still being opened."""
    shown = Watched().shown()

    assert (shown["looked_before_s"], shown["hosts"], shown["partitions"]) == (None, [], [])


def test_own_terms_are_shown_before_the_next_look() -> None:
    """A hand-off takes less time than there is between two looks."""
    of = Watched()
    of.look([P0, P1], A, B)
    of.tell(acquired("p-1", 5), released("p-0", 3))

    assert of.owners() == {"p-0": None, "p-1": "a"}


def test_look_that_is_older_than_an_own_term_does_not_undo_it() -> None:
    """A read may have begun before the acquire was applied."""
    of = Watched()
    of.tell(acquired("p-1", 5), released("p-0", 3))
    of.look([P0, P1], A, B)

    assert of.owners() == {"p-0": None, "p-1": "a"}


def test_look_that_is_newer_than_an_own_term_is_believed() -> None:
    """The store decides who owns what."""
    of = Watched()
    of.tell(acquired("p-1", 5))
    of.look([P0, a_lease("p-1", owner="b:1", token=6)], A, B)

    assert of.owners() == {"p-0": "a", "p-1": "b"}


def test_own_checkpoints_are_shown_before_the_next_look_and_only_under_their_token() -> None:
    """Looks may be an audit apart; and what another host has gone on from is another position."""
    of = Watched()
    of.look([P0, P1], A, B)

    def positions() -> dict[str, str]:
        return {each["partition"]: each["position"] for each in of.shown()["partitions"]}

    of.tell(acquired("p-0", 3), saved("p-0", 3, "12"), saved("p-1", 3, "99"))
    at_once = positions()
    of.look([P0, P1], A, B)
    after_an_older_look = positions()
    of.tell(LeaseReleased(partition="p-0", token=3, position="13", duration_s=0.1))
    released_at = positions()
    of.look([replace(P0, owner="b:1", token=4, position="40"), P1], A, B)

    assert at_once == after_an_older_look == {"p-0": "12", "p-1": "@earliest"}
    assert (released_at["p-0"], positions()["p-0"]) == ("13", "40")


def test_changes_are_shown_with_the_newest_first_and_how_long_ago() -> None:
    """The strip is read from its start."""
    of = Watched()
    of.look([P0, P1], A, B)
    of.tell(acquired("p-1", 5))
    of.clock.at_s = 103.0
    of.look([a_lease("p-0", owner="b:1", token=4), a_lease("p-1", owner="a:1", token=5)], A, B)

    assert of.shown()["changes"] == [
        {"before_s": 0.0, "kind": "taken", "partition": "p-0", "token": 4, "before": "a", "after": "b", "how": None},
        {"before_s": 3.0, "kind": "taken", "partition": "p-1", "token": 5, "before": "b", "after": "a", "how": "asked"},
    ]


def test_host_that_no_longer_beats_is_shown_as_not_alive_without_another_look() -> None:
    """Looks end where the store is away; the page must not go on calling everybody alive."""
    of = Watched()
    of.look([P0, P1], A, B)
    of.clock.at_s = 111.0

    assert [(each["alive"], each["unchanged_s"]) for each in of.shown()["hosts"]] == [(False, 11.0), (False, 11.0)]


def test_stalled_partition_is_marked_counted_and_told_to_the_health_check() -> None:
    """A processor that hangs looks like an idle one in every other figure."""
    of = Watched()
    of.look([P0, P1], A, B)
    of.tell(acquired("p-0", 3), LagSeen(partition="p-0", lag_s=0.5, records=2))
    of.clock.at_s = 175.0

    first = of.shown()["partitions"][0]
    assert (first["stalled_s"], of.shown()["counts"]["stalled"]) == (75.0, 1)
    assert of.watch.without_progress() == [
        {"partition": "p-0", "stalled_s": 75.0, "lag_s": 0.5, "stage": "open", "failed_in": None}
    ]


def test_failing_partition_names_the_stage_and_no_text_of_the_error() -> None:
    """What user code raises may quote a payload, and this page is read by whoever reaches the port."""
    of = Watched()
    of.look([P0], A)
    failed = ProcessorFailed(
        partition="p-0", token=3, stage="decode", error="card 4111", traceback="card 4111", attempt=1, pause_s=1.0
    )
    started = PumpStarted(partition="p-0", token=3, position="7", since_acquired_s=0.1)
    of.tell(acquired("p-0", 3), started, failed)

    shown = of.shown()
    assert shown["partitions"][0]["failed_in"] == "decode"
    assert "4111" not in json.dumps(shown)


def test_paused_partition_says_why_and_no_more_than_fits() -> None:
    """Somebody has written it there for whoever looks."""
    of = Watched()
    of.look([a_lease(paused=True, extra={PAUSE_REASON: "x" * 999})], A)

    assert of.shown()["partitions"][0]["reason"] == "x" * REASON_MAX


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/", "https://a.example/"),
        ("javascript:alert(1)", None),
        ("data:text/html,<script>alert(1)</script>", None),
        ("http://[", None),
        (7, None),
        (None, None),
    ],
)
def test_only_web_addresses_become_links(url: Any, expected: str | None) -> None:
    """Whoever may write to the store chooses this text, and who follows the link runs it."""
    of = Watched()
    of.look([], a_session("b:1", extra={STATUS_URL: url}))

    assert of.shown()["hosts"][0]["url"] == expected


def test_list_is_bounded_and_keeps_what_somebody_may_look_for() -> None:
    """A browser cannot draw tens of thousands of rows each second; the counts are still those of all."""
    of = Watched()
    many = [a_lease(f"p-{n}", owner="b:1", token=1) for n in range(PARTITIONS_MAX + 50)]
    many[-1] = a_lease(many[-1].partition, token=1)
    of.look(many, A, B)
    of.tell(acquired(many[-2].partition, 2), LagSeen(partition=many[-2].partition, lag_s=0.0, records=1))
    of.clock.at_s = 200.0

    shown = of.shown()
    names = [row["partition"] for row in shown["partitions"]]
    assert (len(names), shown["left_out"]) == (PARTITIONS_MAX, 50)
    assert names == [f"p-{n}" for n in [*range(PARTITIONS_MAX - 2), PARTITIONS_MAX + 48, PARTITIONS_MAX + 49]]
    assert shown["counts"] == {
        "owned": PARTITIONS_MAX + 49,
        "asked": 0,
        "free": 1,
        "paused": 0,
        "ended": 0,
        "hosts": 2,
        "stalled": 1,
    }
