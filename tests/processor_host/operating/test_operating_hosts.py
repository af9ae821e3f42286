"""
The operator's commands beside real hosts, in virtual time: what becomes of the group, not only of the items.
"""

from __future__ import annotations

from typing import Any

import pytest

from partitions.errors import StoreUnavailable
from partitions.positions import EARLIEST, END
from partitions.verbs import Acquire, Ask, Attempt, Create, Pause, Register, Release, SetUp
from processor_host.errors import UserError
from processor_host.operating.draining import Drained, Forgotten, drain, forget_host
from processor_host.operating.pausing import Paused, Resumed, pause, resume
from processor_host.operating.resetting import Released, Reset, release, reset
from processor_host.operating.restoring import note_restored
from tests.builders import a_group, an_acquire
from tests.cases.lone import begun
from tests.cases.virtual import virtual
from tests.simulation.operators import OperatorAt
from tests.world.checks import check_no_overlap, check_safety, lost
from tests.world.loop import Killed, result_of, running_loop
from tests.world.world import GROUP, World

__all__: list[str] = []

D = 6.0
B = 2.0
HANDOFF_S = 3 * D


async def at_work(world: World, *places: str, records: int = 20, **settings: Any) -> World:
    """Hosts that have handled everything there is, and have come to rest."""
    world.put(records)
    for place in places:
        world.start(place, **{"audit_interval_s": 1000.0, **settings})
    await world.until(lambda: world.is_balanced(len(places)), within_s=3 * D)
    await world.wait(2 * D)
    return world


def handled_from(world: World, partition: str, since_s: float) -> list[str]:
    """The positions of a partition's records that were begun after a time."""
    return [entry.position for entry in world.handled(partition) if entry.start_s > since_s]


# --- Pause and resume -------------------------------------------------------------------------------------------------


@virtual
async def test_pause_rests_the_partition_and_resume_wakes_the_hosts_long_before_their_audit() -> None:
    """Both act within the beats of the hosts, which read nothing of their own accord at rest."""
    world = await at_work(World(partitions=4), "a", "b")
    operator = OperatorAt(world)
    [owner] = {world.owners()["p0"]}

    began_s = world.now_s
    paused = await operator.do(pause, ["p0"], reason="poison")
    took_s = world.now_s - began_s
    world.put(5, partitions=["p0"])
    await world.wait(3 * D)
    rested = handled_from(world, "p0", began_s)
    again = await operator.do(pause, ["p0"])
    began_s = world.now_s
    resumed = await operator.do(resume, ["p0"])
    resume_s = world.now_s - began_s
    await world.wait(1.0)

    print(f"paused after {took_s:.2f} s, resumed after {resume_s:.2f} s")
    assert owner is not None
    assert paused == (Paused(partition="p0", was_paused=False, owner=None),)
    assert again == (Paused(partition="p0", was_paused=True, owner=None),)
    assert took_s <= B + 2 * 0.5 + 0.2
    assert rested == []
    assert resumed == (Resumed(partition="p0", was_paused=True, owner=world.owners()["p0"]),)
    assert resume_s <= B + 1.0
    assert handled_from(world, "p0", began_s) == ["21", "22", "23", "24", "25"]
    assert world.is_balanced(2)
    check_safety(world)


@virtual
async def test_pause_survives_the_fail_over_of_every_host() -> None:
    """It stands in the lease: whoever comes after keeps to it, also a host that was not there."""
    world = await at_work(World(partitions=3), "a", "b")
    await OperatorAt(world).do(pause, ["p1"])
    paused_s = world.now_s
    world.put(5)
    world.kill("a")
    world.start("c")
    await world.wait(D + 3 * B)
    world.kill("b")
    await world.until(lambda: set(world.running()) == {"p0", "p2"}, within_s=D + 4 * B)
    await world.wait(3 * D)

    assert set(world.running()) == {"p0", "p2"}
    assert handled_from(world, "p1", paused_s) == []
    assert world.leases()["p1"].paused
    check_safety(world)


@virtual
async def test_pause_tells_who_is_still_at_it_when_a_batch_outlasts_the_wait() -> None:
    """A pause is done when its owner has let go; one that does not must not look done."""
    world = World(partitions=2)
    world.put(20)
    world.start("a", record_s=100.0, stubborn=True)
    await world.until(lambda: len(world.running()) == 2, within_s=D)
    operator = OperatorAt(world)

    paused = await operator.do(pause, ["p0"])

    assert paused == (Paused(partition="p0", was_paused=False, owner="a"),)
    assert operator.told == ["waiting for the owners of 1 partition to end their running batches, at most 24 s"]


@virtual
async def test_pause_that_cannot_be_asked_for_is_seen_by_its_owner_all_the_same() -> None:
    """Sixty-four asks may stand already; the operator then shows itself, and the owner reads the pause."""
    world = await at_work(World(partitions=2), "a")
    [session_id] = world.sessions()
    keys = tuple(f"x{n}@1" for n in range(64))

    def fill() -> None:
        world.store.apply_now(GROUP, Ask(session_id=session_id, keys=keys, asker=""))

    # Right before the ask arrives, after the owner's last beat has removed what was there.
    world.network.on_write = lambda write: fill() if isinstance(write.verb, Pause) else None
    paused = await OperatorAt(world).do(pause, ["p0"])

    assert paused == (Paused(partition="p0", was_paused=False, owner=None),)
    assert [write.place for write in world.network.applied(Register)][-1] == "operator"


@virtual
async def test_pause_and_resume_refuse_what_is_not_there_and_change_nothing() -> None:
    """A slip in the second name must not leave the first one paused."""
    world = await at_work(World(partitions=2), "a")
    operator = OperatorAt(world)
    for command in (pause, resume):
        with pytest.raises(UserError, match="no partition 'p9'"):
            await operator.do(command, ["p0", "p9"])

    assert [lease.paused for lease in world.leases().values()] == [False, False]


# --- Drain and forget -------------------------------------------------------------------------------------------------


@virtual
async def test_drain_hands_everything_over_and_the_host_leaves() -> None:
    """The wish stands in the item: the host sees it with its next beat."""
    world = await at_work(World(partitions=6), "a", "b", "c")
    [session_id] = [name for name, each in world.sessions().items() if each.host_id == "a"]

    drained = await OperatorAt(world).do(drain, "a", wait_s=2 * D)

    assert drained == (Drained(session_id=session_id, host_id="a", has_left=True, owned=0),)
    assert world.is_balanced(2)
    assert await result_of(world.hosts["a"].task) == 0
    check_no_overlap(world)
    check_safety(world)


@virtual
async def test_drain_without_a_wait_tells_what_the_host_still_has() -> None:
    """Whoever waits elsewhere, as a script that rolls hosts, is not held up."""
    world = await at_work(World(partitions=4), "a", "b")
    [session_id] = [name for name, each in world.sessions().items() if each.host_id == "b"]

    drained = await OperatorAt(world).do(drain, session_id)

    assert drained == (Drained(session_id=session_id, host_id="b", has_left=False, owned=2),)
    assert world.sessions()[session_id].drain_asked


@virtual
async def test_forget_host_refuses_a_host_that_beats_and_fences_one_that_is_dead() -> None:
    """Two hosts that are cut off from each other must not be told apart by a person's guess."""
    world = await at_work(World(partitions=4), "a", "b")
    operator = OperatorAt(world)
    a, b = (next(name for name, each in world.sessions().items() if each.host_id == place) for place in "ab")

    began_s = world.now_s
    with pytest.raises(UserError, match=f"host 'a' is alive: the beat of its session '{a}' went from"):
        await operator.do(forget_host, "a")
    refused_s = world.now_s - began_s
    world.kill("a")
    world.kill("b")
    mine = sorted(lease.partition for lease in world.leases().values() if lease.owner == a)
    killed_s = world.now_s
    forgotten = await operator.do(forget_host, "a")

    assert refused_s <= B + 1.0
    assert forgotten == (Forgotten(session_id=a, host_id="a", fenced=True, freed=tuple(mine)),)
    assert D * 1.01 <= world.now_s - killed_s <= D * 1.01 + 1.0
    assert list(world.sessions()) == [b]


@virtual
async def test_forget_host_refuses_one_that_has_come_back_under_a_new_session() -> None:
    """Its old session is dead, the host is not; its own leave takes care of the old one."""
    world = await at_work(World(partitions=2), "a")
    world.kill("a")
    operator = OperatorAt(world)
    doing = operator.start(forget_host, "a")
    await world.wait(2.0)
    world.start("a2", host_id="a")

    with pytest.raises(UserError, match="host 'a' has begun a new session"):
        await result_of(doing)


@virtual
async def test_forget_host_lets_another_host_be_faster() -> None:
    """Hosts fence the dead themselves; to find it done is no failure."""
    world = await at_work(World(partitions=2), "a", "b")
    a = next(name for name, each in world.sessions().items() if each.host_id == "a")
    world.kill("a")
    await world.wait(2.0)

    forgotten = await OperatorAt(world).do(forget_host, "a")

    assert [(each.session_id, each.fenced) for each in forgotten] == [(a, False)]


@virtual
async def test_commands_name_the_hosts_that_are_there_when_one_is_not() -> None:
    """A slip in a name is the usual reason."""
    world = await at_work(World(partitions=2), "a", "b")
    for command in (drain, forget_host):
        with pytest.raises(UserError, match="group 'g' has no host 'c'; its hosts are: a, b"):
            await OperatorAt(world).do(command, "c")


# --- Reset and release ------------------------------------------------------------------------------------------------


@virtual
async def test_reset_of_an_owned_partition_lets_a_host_go_on_from_the_new_position() -> None:
    """Asked, acquired, released with the position as its last checkpoint; then the plan gives it to a host again."""
    world = await at_work(World(partitions=4), "a", "b")
    operator = OperatorAt(world)
    before = world.leases()["p0"]
    began_s = world.now_s

    [done] = await operator.do(reset, operator.source, ["p0"], "15")
    took_s = world.now_s - began_s
    await world.wait(2.0)

    print(f"reset after {took_s:.2f} s")
    assert done == Reset(
        partition="p0", done=True, before="20", position="15", owner=world.owners()["p0"], paused=False
    )
    assert done.owner is not None
    assert took_s <= B + B + 3.0
    assert handled_from(world, "p0", began_s) == ["16", "17", "18", "19", "20"]
    assert next(write.place for write in world.network.applied(Acquire) if write.at_s > began_s) == "operator"
    assert world.leases()["p0"].token == before.token + 2
    assert list(world.sessions().values()) == [each for each in world.sessions().values() if each.capacity]
    check_no_overlap(world)


@pytest.mark.parametrize(("to", "position"), [("earliest", EARLIEST), ("latest", "20"), ("1970-01-01T00:00:01Z", "0")])
@virtual
async def test_reset_takes_words_and_times(to: str, position: str) -> None:
    """The source says what they mean in each partition, once, before anything is asked for."""
    world = World(partitions=2)
    await at_work(world, "a")
    operator = OperatorAt(world)

    done = await operator.do(reset, operator.source, ["p0", "p1"], to)

    assert [(each.done, each.position) for each in done] == [(True, position)] * 2


@virtual
async def test_reset_to_the_stored_position_lets_its_records_begin_anew() -> None:
    """Who mended the record, or its handler, resets to where the lease stands: what was counted says nothing more."""
    world = await at_work(World(partitions=2), "a")
    world.stop("a")
    await world.until_ended("a", within_s=D)
    seen = world.leases()["p0"]
    world.store.apply_now(GROUP, an_acquire(seen, "z:1"))
    world.store.apply_now(GROUP, Attempt(partition="p0", owner="z:1", token=seen.token + 1, seq=1))
    operator = OperatorAt(world)

    [done] = await operator.do(reset, operator.source, ["p0"], seen.position)
    lease = world.leases()["p0"]

    assert (done.done, lease.position, lease.attempts, lease.suspects) == (True, seen.position, 0, 0)


@virtual
async def test_reset_without_any_host_is_done_at_once_and_waits_for_nobody() -> None:
    """All hosts are stopped, as for a change of the code: nobody is there to be woken."""
    world = await at_work(World(partitions=2), "a")
    world.stop("a")
    await world.until_ended("a", within_s=D)
    began_s = world.now_s
    operator = OperatorAt(world)

    [done] = await operator.do(reset, operator.source, ["p0"], "3")

    assert (done.done, done.owner, world.leases()["p0"].position) == (True, None, "3")
    assert world.now_s - began_s < 1.0
    assert world.sessions() == {}


@virtual
async def test_reset_of_a_paused_partition_leaves_it_paused() -> None:
    """The usual reset: over the record that somebody paused it for; it goes on once it is resumed, and not before."""
    world = await at_work(World(partitions=2), "a")
    operator = OperatorAt(world)
    await operator.do(pause, ["p0"], reason="poison")

    [done] = await operator.do(reset, operator.source, ["p0"], "10")
    lease = world.leases()["p0"]
    reset_s = world.now_s
    await world.wait(3 * D)
    rested = handled_from(world, "p0", reset_s)
    await operator.do(resume, ["p0"])
    await world.wait(1.0)

    assert (done.done, done.paused, done.owner) == (True, True, None)
    assert (lease.paused, lease.position, lease.owner, dict(lease.extra)) == (
        True,
        "10",
        None,
        {"paused_because": "poison"},
    )
    assert rested == []
    assert handled_from(world, "p0", reset_s) == [str(n) for n in range(11, 21)]


@virtual
async def test_reset_of_a_paused_partition_is_not_snatched_while_it_is_resumed_for_a_moment() -> None:
    """It counts as the operator's from before it is resumed, for it has asked itself for it."""
    world = await at_work(World(partitions=2), "a", audit_interval_s=0.3, balance_interval_s=0.3)
    operator = OperatorAt(world)
    await operator.do(pause, ["p0"])
    slow = world.network.disturb(
        lambda call: call.place == "operator" and call.operation == "Acquire", before_s=0.9, times=1
    )
    began_s = world.now_s

    [done] = await operator.do(reset, operator.source, ["p0"], "10")
    await world.wait(D)

    assert (slow.hits, done.done, done.paused) == (1, True, True)
    assert [write.place for write in world.network.applied(Acquire) if write.at_s > began_s] == ["operator"]
    assert handled_from(world, "p0", began_s) == []


@virtual
async def test_reset_gives_up_on_an_owner_whose_processor_does_not_end_and_changes_nothing() -> None:
    """
    Its host ends each term in time and takes the lease again, because its processor still runs.

    A position that was stored under it would be no help: the record in its hands is not to be stopped from here.
    """
    world = World(partitions=1)
    world.put(20)
    world.start("a", record_s=1000.0, stubborn=True)
    await world.until(lambda: len(world.running()) == 1, within_s=D)
    await world.wait(B)
    operator = OperatorAt(world)
    began_s = world.now_s

    [done] = await operator.do(reset, operator.source, ["p0"], "7")

    assert done == Reset(partition="p0", done=False, before="@earliest", position="7", owner="a", paused=False)
    assert world.now_s - began_s <= 2 * (HANDOFF_S + D) * 1.01 + 7.0
    assert world.leases()["p0"].position == "@earliest"
    assert world.overlaps == []


@virtual
async def test_reset_takes_by_force_from_an_owner_that_only_beats_after_its_whole_hand_off_time() -> None:
    """Rule 14: by then the old term has ended on its own clock, and nothing that is blocked can take it again."""
    world = World(partitions=1)
    world.put(20)
    world.store.apply_now(GROUP, SetUp(item=a_group(source=await world.source.identity())))
    owner = await begun(world, "a")
    await owner.acquire("p0")
    operator = OperatorAt(world)
    began_s = world.now_s

    [done] = await operator.do(reset, operator.source, ["p0"], "7")
    [taken] = [write for write in world.network.applied(Acquire) if write.place == "operator"]

    assert (done.done, world.leases()["p0"].position) == (True, "7")
    assert HANDOFF_S * 1.01 <= taken.at_s - began_s <= HANDOFF_S * 1.01 + 1.0
    assert world.overlaps == []


@virtual
async def test_reset_takes_from_a_dead_owner_once_its_session_was_watched() -> None:
    """Without other hosts nobody else would fence it; its hand-off time is not waited for."""
    world = await at_work(World(partitions=1), "a")
    world.kill("a")
    operator = OperatorAt(world)
    began_s = world.now_s

    [done] = await operator.do(reset, operator.source, ["p0"], "7")

    assert (done.done, world.leases()["p0"].position) == (True, "7")
    assert D * 1.01 <= world.now_s - began_s <= D * 1.01 + 3.0


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("soon", "--to 'soon' means nothing in partition 'p0'"),
        ("21", "after the last record '20'"),
        ("20260101", "after the last record '20'"),  # Digits alone are never a day.
        (END, "words that begin with @"),
    ],
)
@virtual
async def test_reset_refuses_a_position_that_is_none_before_it_asks_anybody(to: str, reason: str) -> None:
    """A partition that was taken for nothing would have rested for nothing."""
    world = await at_work(World(partitions=1), "a")
    operator = OperatorAt(world)
    writes = len(world.network.history)

    with pytest.raises(UserError, match=reason):
        await operator.do(reset, operator.source, ["p0"], to)

    assert [write.verb for write in world.network.history[writes:] if write.place == "operator"] == []


@virtual
async def test_reset_refuses_what_has_ended_and_what_waits_for_its_parents() -> None:
    """The first cannot be read again under the protocol, and the second would overtake its parents' last records."""
    world = await at_work(World(partitions=2), "a")
    world.source.close_partition("p1")
    await world.until(lambda: world.leases()["p1"].finished, within_s=D)
    world.stop("a")
    await world.until_ended("a", within_s=D)
    child, _ = world.source.split("p0")
    world.store.apply_now(GROUP, Create(partition=child, position="0", parents=("p0",)))
    operator = OperatorAt(world)

    for partition, reason in (("p1", "has ended"), (child, "waits for its parents")):
        with pytest.raises(UserError, match=reason):
            await operator.do(reset, operator.source, [partition], "earliest")
    assert [world.leases()[name].token for name in ("p1", child)] == [1, 0]


@virtual
async def test_release_makes_the_owner_let_go_and_the_plan_places_it_anew() -> None:
    """Nothing is lost or repeated: the owner's last checkpoint goes with its release."""
    world = await at_work(World(partitions=4), "a", "b")
    owner = world.owners()["p0"]
    token = world.leases()["p0"].token
    began_s = world.now_s

    [done] = await OperatorAt(world).do(release, ["p0"])
    await world.wait(2.0)

    assert done == Released(partition="p0", done=True, was_owned_by=owner, owner=world.owners()["p0"])
    assert done.owner is not None
    assert (world.leases()["p0"].token, world.leases()["p0"].position) == (token + 2, "20")
    assert handled_from(world, "p0", began_s) == []
    assert world.is_balanced(2)
    check_safety(world)


@virtual
async def test_release_of_what_is_free_does_nothing() -> None:
    """Also where its owner's session is gone."""
    world = await at_work(World(partitions=1), "a")
    world.stop("a")
    await world.until_ended("a", within_s=D)
    writes = len(world.network.history)

    done = await OperatorAt(world).do(release, ["p0"])

    assert done == (Released(partition="p0", done=True, was_owned_by=None, owner=None),)
    assert world.network.history[writes:] == []


# --- A store that was restored ----------------------------------------------------------------------------------------


@virtual
async def test_restored_refuses_a_host_that_begins_while_the_old_ones_are_watched() -> None:
    """What starts hosts was not stopped; under the new one no token may change."""
    world = await at_work(World(partitions=2), "a")
    world.kill("a")
    doing = OperatorAt(world).start(note_restored)
    await world.wait(1.0)
    world.start("b")
    await world.wait(1.0)

    with pytest.raises(UserError, match="host 'b' of group 'g' is alive"):
        await result_of(doing)
    assert [lease.token for lease in world.leases().values()] == [1, 1]


# --- Faults -----------------------------------------------------------------------------------------------------------


@virtual
async def test_reset_survives_calls_whose_answers_are_lost() -> None:
    """Whatever was applied without an answer is found and gone on from; nothing is done twice to the position."""
    world = await at_work(World(partitions=2), "a", "b")
    for operation in ("Register", "Ask", "Acquire", "Release", "read_some_leases", "read_leases"):
        world.network.disturb(
            lambda call, operation=operation: call.place == "operator" and call.operation == operation,  # type: ignore[misc]
            lose_answer=True,
            times=1,
        )
    operator = OperatorAt(world)
    began_s = world.now_s

    [done] = await operator.do(reset, operator.source, ["p0"], "12")
    await world.wait(3.0)

    stored = [write.verb.position for write in world.network.applied(Release) if write.place == "operator"]
    assert (done.done, set(stored) - {None}) == (True, {"12"})
    assert handled_from(world, "p0", began_s) == [str(n) for n in range(13, 21)]
    check_no_overlap(world)


@virtual
async def test_reset_whose_release_is_never_answered_takes_the_lease_once_more() -> None:
    """Whether it was applied nobody knows; the next term finds out, and only then is it done."""
    world = await at_work(World(partitions=2), "a", "b")
    silent = world.network.disturb(
        lambda call: call.place == "operator" and call.operation == "Release", lose_request=True
    )
    operator = OperatorAt(world)
    began_s = world.now_s

    doing = operator.start(reset, operator.source, ["p0"], "12")
    await world.until(
        lambda: [write.place for write in world.network.applied(Acquire)].count("operator") == 2, within_s=HANDOFF_S
    )
    silent.times = 0
    [done] = await result_of(doing)
    await world.wait(2.0)

    assert (done.done, done.position) == (True, "12")
    assert handled_from(world, "p0", began_s) == [str(n) for n in range(13, 21)]
    check_no_overlap(world)


@virtual
async def test_command_that_is_cut_off_tells_so_and_leaves_the_lease_free() -> None:
    """Its session runs out on its own clock, and the others fence it."""
    world = await at_work(World(partitions=2), "a", "b")
    cut = world.network.disturb(lambda call: call.place == "operator" and call.operation == "Acquire", lose_answer=True)
    operator = OperatorAt(world)
    doing = operator.start(reset, operator.source, ["p0"], "12")
    await world.until(lambda: cut.hits > 0, within_s=3 * B, every_s=0.01)
    world.network.cut_off.add("operator")

    with pytest.raises(StoreUnavailable, match="run"):
        await result_of(doing)
    await world.until(lambda: world.is_balanced(2), within_s=D + 4 * B)
    assert lost(world) == []


STEPS = ("Register", "Ask", "Acquire", "Release", "Leave")


@pytest.mark.parametrize("moment", ["lost", "unanswered"])
@pytest.mark.parametrize("step", STEPS)
@virtual
async def test_reset_that_is_killed_at_a_step_leaves_the_lease_free_and_loses_nothing(step: str, moment: str) -> None:
    """Wherever it dies, the lease is as before or at the new position, and hosts go on with it."""
    world = await at_work(World(partitions=3), "a", "b")
    what: dict[str, Any] = {"lose_request": True} if moment == "lost" else {"after_s": 0.5}
    fault = world.network.disturb(lambda call: call.place == "operator" and call.operation == step, **what)
    operator = OperatorAt(world)
    began_s = world.now_s
    doing = operator.start(reset, operator.source, ["p0"], "15")
    await world.until(lambda: fault.hits > 0, within_s=30.0, every_s=0.01)
    await world.wait(0.1)
    running_loop().kill("operator")
    world.kills["operator"] = world.now_s
    with pytest.raises(Killed):
        await result_of(doing)

    await world.until(lambda: world.is_balanced(2) and len(world.running()) == 3, within_s=HANDOFF_S + D + 4 * B)
    await world.wait(1.0)
    reached = STEPS.index(step) + (moment == "unanswered")
    assert handled_from(world, "p0", began_s) == (
        [str(n) for n in range(16, 21)] if reached > STEPS.index("Release") else []
    )
    assert lost(world) == []
    check_no_overlap(world)
