"""The asked: rules 10, 11 and 16. What an owner may believe of a lease that somebody asks for."""

from __future__ import annotations

import math

from partitions.events import LeaseAcquired
from partitions.items import ask_key
from partitions.verbs import Acquire, Ask, Beat, Release
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import DRIFTING, Stage, of
from tests.world.clocks import PlaceClock
from tests.world.loop import result_of

__all__: list[str] = []

D = 6.0
HANDOFF_S = 3 * D


@schedule(
    partitions=1,
    cases={
        "usual": {"handoff_s": HANDOFF_S, "sent_after_s": 0.1, "freezes": False},
        "hand-off as short as may be, answered just before the time-out": {
            "handoff_s": D,
            "sent_after_s": 4.95,
            "freezes": False,
        },
        "the same, and the host sleeps meanwhile": {"handoff_s": D, "sent_after_s": 4.95, "freezes": True},
    },
)
async def test_ask_arrives_while_the_answer_of_the_acquire_is_on_its_way(
    stage: Stage, handoff_s: float, sent_after_s: float, freezes: bool
) -> None:
    """The term is not known here yet; an ask that is forgotten lets it go on while the asker takes it by force."""
    world = stage.world
    stage.make_leases()
    world.put(400)
    began_s = world.now_s
    a = await stage.puppet("a", handoff_s=handoff_s)
    b = await stage.puppet("b")
    failing = stage.disturb(of("a", "Beat"), fail_before=True)
    await world.wait(began_s + sent_after_s - world.now_s)
    stage.disturb(of("a", "Acquire"), after_s=0.975)
    taking = a.taking("p0")
    await world.wait(0.01)
    assert world.leases()["p0"].owner == "a:1"
    assert await b.ask("p0") == 1
    failing.times = 0
    # One beat is shown the ask, and the next one could remove it.
    assert await a.beat()
    removing = stage.disturb(of("a", "Beat"), after_s=0.8, times=1)
    a.beating()
    await world.wait(0.5)
    assert (removing.hits, taking.done()) == (1, False)
    if freezes:
        # Both answers arrive while it sleeps; the deadline is past when it sees them.
        world.freeze("a")
        await world.wait(1.5)
        world.thaw("a")
    await world.wait(handoff_s + D)

    assert [write.place for write in world.network.applied(Acquire)] == ["a", "b"]


@schedule(partitions=2, cases={f"{phase:.1f} s after a beat": {"phase_s": phase} for phase in (0.1, 0.7, 1.3, 1.9)})
async def test_owner_ignores_an_ask_and_is_robbed(stage: Stage, phase_s: float) -> None:
    """Nobody can cancel its processor and its batch outlasts the hand-off: it stops by its own clock, before force."""
    world = stage.world
    world.put(250)
    slow, fast = (PlaceClock(rate=rate, offset_s=7.0) for rate in DRIFTING)
    stage.host("a", record_s=0.2, stubborn=True, clock=slow, batch_records_max=1000)
    stage.disturb(of("a", "Release"), lose_request=True)
    await world.wait(4.0 + phase_s)
    stage.host("b", record_s=0.2, clock=fast)
    await world.until(lambda: bool(world.network.applied(Ask)), within_s=D)
    await world.wait(HANDOFF_S + D)

    assert [write.verb.seen_token for write in world.network.applied(Acquire) if write.place == "b"] == [1]
    assert [event.reason for event in world.events(LeaseAcquired, place="b")] == ["forced"]


@schedule(partitions=1)
async def test_ask_is_written_while_a_beat_is_on_its_way_and_the_answer_of_the_ask_is_late(stage: Stage) -> None:
    """The owner's deadline counts from a beat sent after the ask was; the asker's wait must not."""
    world = stage.world
    stage.make_leases()
    world.put(400)
    a = await stage.puppet("a", handoff_s=D, record_s=0.2, stubborn=True, batch_records_max=1000)
    b = await stage.puppet("b")
    await a.take("p0")
    stage.disturb(of("a", "Release"), lose_request=True)
    stage.disturb(of("b", "Ask"), before_s=0.95)
    asking = b.start(b.ask, "p0")
    await world.wait(0.9)
    # Applied right before the ask is, so that it does not show it.
    assert await a.beat()
    assert await result_of(asking) == 1
    [sent] = world.network.applied(Ask)
    beat = world.network.applied(Beat)[-1]
    assert sent.sent_s < beat.sent_s < beat.at_s < sent.at_s
    await world.wait(2 * D)

    assert [write.place for write in world.network.applied(Acquire)] == ["a", "b"]


@schedule(partitions=1)
async def test_beat_whose_answer_is_late_shows_an_ask(stage: Stage) -> None:
    """The deadline counts from the last answered beat that did not show it, not from the answer that does."""
    world = stage.world
    stage.make_leases()
    world.put(400)
    a = await stage.puppet("a", handoff_s=D, record_s=0.2, stubborn=True, batch_records_max=1000)
    b = await stage.puppet("b")
    await a.take("p0")
    stage.disturb(of("a", "Release"), lose_request=True)
    assert await a.beat()
    assert await b.ask("p0") == 1
    late = stage.disturb(of("a", "Beat"), lose_answer=True, times=2)
    await world.wait(2 * D)
    assert late.hits == 2
    shows = next(w for w in world.network.applied(Beat) if w.result.item.asks and w.answered_s < math.inf)
    [sent] = world.network.applied(Ask)
    # Two that would have shown it were lost before.
    assert len([w for w in world.network.applied(Beat) if w.place == "a" and sent.at_s < w.at_s < shows.at_s]) == 2

    assert [write.place for write in world.network.applied(Acquire)] == ["a", "b"]


@schedule(
    partitions=1,
    cases={
        "it comes twice, the next term is asked for": {"comes": {"repeat_after_s": 1.5}, "same_term": False},
        "it comes twice, the same term is asked for": {"comes": {"repeat_after_s": 1.5}, "same_term": True},
        "it comes late, the next term is asked for": {"comes": {"before_s": 2.6}, "same_term": False},
        "it comes late, the same term is asked for": {"comes": {"before_s": 2.6}, "same_term": True},
    },
)
async def test_beat_that_removed_an_ask_arrives_again_while_a_second_asker_asks(
    stage: Stage, comes: dict[str, float], same_term: bool
) -> None:
    """What a late duplicate removes is what it was sent for; a newer ask stands until the owner has seen it."""
    world = stage.world
    stage.make_leases()
    world.put(400)
    a = await stage.puppet("a")
    b = await stage.puppet("b")
    await a.take("p0")
    if same_term:
        stage.disturb(of("a", "Release"), lose_request=True, times=3)
    await stage.write_ask("p0", asker="")
    assert await a.beat()
    await world.until(lambda: not a.session.is_busy("p0"), within_s=D)
    # Where it is late it is given up and sent again, and the second one removes the ask.
    again = stage.disturb(of("a", "Beat"), times=1, **comes)
    assert await a.beat()
    assert (again.hits, world.sessions()["a:1"].asks) == (1, {})
    if not same_term:
        await a.take("p0")
    assert await b.ask("p0") == 1
    # It does not see the new ask before the old beat is there.
    blind = stage.disturb(of("a", "Beat"), fail_before=True)
    await world.wait(1.6)
    blind.times = 0
    removals = [write for write in world.network.applied(Beat) if write.verb.handled == (ask_key("p0", 1),)]
    assert len(removals) == 2
    if same_term:
        # Its acquire under the token that the store has; b sees the term it asked for gone.
        await a.take("p0", reason="resolved")
        assert await b.ask("p0") == 1
    await world.wait(HANDOFF_S + D)

    assert world.leases()["p0"].owner == "b:1"


@schedule(partitions=1, cases={"nobody": {"asker": ""}, "one who is gone": {"asker": "gone:1"}})
async def test_ask_by_nobody_or_by_one_who_is_gone_stands_when_another_follows_it(stage: Stage, asker: str) -> None:
    """Whoever wrote it, the owner drains; who finds it standing waits as if it had asked, and may use force."""
    world = stage.world
    stage.make_leases()
    world.put(200)
    a = await stage.puppet("a", record_s=0.2, stubborn=True, batch_records_max=1000)
    b = await stage.puppet("b")
    await a.take("p0")
    stage.disturb(of("a", "Release"), lose_request=True)
    await stage.write_ask("p0", asker=asker)
    assert await b.ask("p0") == 0
    await world.wait(HANDOFF_S + D)

    assert world.leases()["p0"].owner == "b:1"
    assert [event.reason for event in world.events(LeaseAcquired, place="b")] == ["forced"]


@schedule(partitions=2)
async def test_asker_dies_and_another_follows_its_ask(stage: Stage) -> None:
    """The ask outlives its asker; an owner that kept the lease after all would be robbed by whoever follows."""
    world = stage.world
    world.put(250)
    stage.host("a", record_s=0.2, stubborn=True, batch_records_max=1000)
    stage.disturb(of("a", "Release"), lose_request=True)
    await world.wait(4.0)
    stage.host("b")
    await world.until(lambda: bool(world.network.applied(Ask)), within_s=D)
    await world.wait(1.0)
    stage.kill("b")
    await world.wait(2 * D)
    assert world.network.applied(Release) == []
    [key] = [key for write in world.network.applied(Ask) for key in write.verb.keys]
    assert all(item.host_id == "a" and key in item.asks for item in world.sessions().values())
    stage.host("c", record_s=0.02)
    await world.wait(HANDOFF_S + 2 * D)
    assert "forced" in [event.reason for event in world.events(LeaseAcquired, place="c")]
