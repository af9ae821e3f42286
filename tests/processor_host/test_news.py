"""What a balancer's round tells of the group: here, for how long partitions have had no owner."""

from __future__ import annotations

from collections.abc import Collection

from partitions.events import Event
from partitions.items import LeaseItem
from partitions.liveness import LiveView
from processor_host.events import GroupSeen
from processor_host.news import GroupNews
from tests.builders import a_lease, a_session

__all__: list[str] = []

OWNED, FREE = a_lease("p-0", owner="a:1", token=3), a_lease("p-0", token=3)


class Rounds:
    """Rounds of host a, which is alone."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._news = GroupNews(self._events.append)

    def unowned_s(self, now_s: float, *leases: LeaseItem, plannable: Collection[str] = ("p-0", "p-1")) -> float:
        """Do one, and return what it tells."""
        self._news.round_done(
            leases,
            [a_session("a:1")],
            LiveView.empty(),
            session_id="a:1",
            host_id="a",
            plannable=plannable,
            now_s=now_s,
        )
        event = self._events[-1]
        assert isinstance(event, GroupSeen)
        return event.unowned_s


def test_partition_without_an_owner_is_timed_until_it_has_one_and_anew_after_that() -> None:
    """Whoever is woken about three durations must not be woken about many short gaps."""
    rounds = Rounds()

    told = [
        rounds.unowned_s(at_s, lease)
        for at_s, lease in ((100.0, OWNED), (103.0, FREE), (106.0, FREE), (109.0, OWNED), (112.0, FREE), (115.0, FREE))
    ]

    assert told == [0.0, 0.0, 3.0, 0.0, 0.0, 3.0]


def test_longest_of_the_unowned_partitions_is_told() -> None:
    """Any one of them is enough to lag for ever."""
    rounds = Rounds()
    rounds.unowned_s(100.0, FREE, a_lease("p-1", owner="a:1", token=1))

    assert rounds.unowned_s(105.0, FREE, a_lease("p-1", token=1)) == 5.0


def test_partition_of_a_session_that_is_gone_has_no_owner() -> None:
    """The item still names it, and nobody processes the partition."""
    rounds = Rounds()
    left = a_lease("p-0", owner="b:1", token=3)
    rounds.unowned_s(100.0, left)

    assert rounds.unowned_s(104.0, left) == 4.0


def test_partition_that_nobody_should_have_is_not_timed() -> None:
    """What is paused, has ended or waits for its parents would wake somebody for nothing."""
    rounds = Rounds()
    rounds.unowned_s(100.0, FREE, plannable=())

    assert rounds.unowned_s(200.0, FREE, plannable=()) == 0.0
