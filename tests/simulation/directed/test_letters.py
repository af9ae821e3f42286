"""Narrow windows of records that fail or kill: a death between letter and checkpoint, or attempt and record; an ask."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import anyio

from partitions.events import LeaseReleased
from partitions.transactions import Commit
from partitions.verbs import Attempt
from processor_host import DeadLetter
from processor_host.events import OneAtATime, RecordsGivenUp
from tests.simulation.directed.checks import demand
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage, of
from tests.simulation.facts import Facts
from tests.simulation.handlers import LETTER, Letters
from tests.simulation.modes import JOINED, LETTERS, PLAIN, Modes
from tests.world.network import Call, Fault
from tests.world.processors import Handled, WorldProcessor
from tests.world.world import World

__all__: list[str] = []

D = 6.0
BAD = "3"


class _Bad(WorldProcessor):
    """Fails at one record, on every host."""

    async def _work(self, handled: Handled) -> None:
        if handled.position == BAD:
            raise ValueError("bad record")
        await super()._work(handled)


def start(stage: Stage, place: str, policy: str, *, bad: bool = True, attempts: int = 1, **more: Any) -> None:
    """Start a host with a policy of dead letters."""
    modes = Modes(**{name: getattr(PLAIN, name) for name in PLAIN.__slots__} | {"policy": policy})
    sink = Letters(stage.world, place, modes)
    made = (lambda: _Bad(stage.world, place, 0.05)) if bad else None
    stage.host(place, processor=made, handling={"on_failure": DeadLetter(sink, attempts=attempts, bisect=bad)}, **more)


def letters(world: World) -> list[tuple[int, str]]:
    """Token and position of each letter in the sink of its own."""
    return [(what[2], what[3]) for _, _, what in world.notes if what[0] == LETTER]


def _has_struck(fault: Fault) -> bool:
    return fault.hits > 0


def with_letters(place: str) -> Any:
    """Match what stores letters with the checkpoint."""

    def matches(call: Call) -> bool:
        return call.place == place and isinstance(call.verb, Commit) and bool(call.verb.operations)

    return matches


@schedule(partitions=1)
async def test_host_killed_between_letter_and_checkpoint_writes_the_letter_once_in_each_term(stage: Stage) -> None:
    """At least once: nobody can tell that the sink has it, so the next owner writes its own."""
    world = stage.world
    world.put(5)
    of_a = of("a", "SaveCheckpoint")
    stage.disturb(lambda call: of_a(call) and bool(letters(world)), lose_request=True)
    start(stage, "a", LETTERS)
    await world.until(lambda: len(letters(world)) == 1, within_s=2 * D, every_s=0.001)
    stage.kill("a")
    start(stage, "b", LETTERS)
    await world.until(lambda: Facts(world).done_to_s("p0", 5) < float("inf"), within_s=4 * D)
    await world.until(lambda: len(letters(world)) == 2, within_s=D)
    await world.wait(D)

    demand("one letter in each term", letters(world) == [(1, BAD), (2, BAD)], letters(world))


@schedule(partitions=1, cases={"applied": {"what": "lose_answer"}, "not applied": {"what": "lose_request"}})
async def test_host_killed_with_letter_and_checkpoint_in_one_write_leaves_one_letter(stage: Stage, what: str) -> None:
    """There is nothing between them: the next owner goes on behind the record, or gives it up itself."""
    world = stage.world
    world.put(5)
    fault = stage.disturb(with_letters("a"), **{what: True})
    start(stage, "a", JOINED)
    await world.until(lambda: fault.hits > 0, within_s=2 * D, every_s=0.001)
    await world.wait(world.latency_s)
    stage.kill("a")
    start(stage, "b", JOINED)
    await world.until(lambda: Facts(world).done_to_s("p0", 5) < float("inf"), within_s=4 * D)
    await world.wait(D)

    given_up = [(partition, number) for partition, number, _ in Facts(world).given_up]
    demand("one letter with the checkpoint", given_up == [("p0", int(BAD))], given_up)


@schedule(partitions=1)
async def test_host_killed_between_attempt_and_record_counts_as_an_attempt_and_gives_nothing_up(stage: Stage) -> None:
    """The count cannot tell whether the record began; with a limit of three a healthy one is past it in time."""
    world = stage.world
    world.put(20)
    start(stage, "a", LETTERS, bad=False, attempts=3)
    await world.until(lambda: len(world.journal) >= 2, within_s=2 * D, every_s=0.001)
    stage.kill("a")
    for place in ("b", "c"):
        fault = stage.disturb(of(place, "Attempt"), lose_answer=True)
        start(stage, place, LETTERS, bad=False, attempts=3)
        await world.until(partial(_has_struck, fault), within_s=4 * D, every_s=0.001)
        await world.wait(world.latency_s)
        stage.kill(place)
    start(stage, "d", LETTERS, bad=False, attempts=3)
    await world.until(lambda: Facts(world).done_to_s("p0", 20) < float("inf"), within_s=4 * D)

    told = [(event.suspects, event.attempts) for event in world.events(OneAtATime)]
    demand("each death is counted", told == [(1, 0), (2, 1), (3, 2)], told)
    demand("nothing is given up", not letters(world) and not world.events(RecordsGivenUp), world.events(RecordsGivenUp))


@schedule(partitions=2)
async def test_ask_while_records_come_one_at_a_time_is_honoured_after_the_record(stage: Stage) -> None:
    """A hand-off waits for one record, not for the batch; what was counted goes on, and nothing is given up."""
    world = stage.world
    world.put(40)
    start(stage, "a", LETTERS, bad=False, attempts=3, record_s=0.5)
    await world.until(lambda: len(world.journal) >= 2, within_s=2 * D, every_s=0.001)
    stage.kill("a")
    start(stage, "b", LETTERS, bad=False, attempts=3, record_s=1.0)
    await world.until(lambda: len(world.network.applied(Attempt)) >= 2, within_s=4 * D)
    asked_s = world.now_s
    start(stage, "c", LETTERS, bad=False, attempts=3, record_s=0.1)
    await world.until(lambda: "c" in world.owners().values(), within_s=2 * D)
    await world.wait(D)

    [(released_s, place), *_] = [(at, by) for at, by, event in world.diary if isinstance(event, LeaseReleased)]
    handed = Counter(entry.position for entry in world.journal if entry.place == "b" and entry.start_s < released_s)
    demand("released by its owner", place == "b" and released_s - asked_s < D + 1.0, (released_s - asked_s, handed))
    demand("nothing is given up", not letters(world), letters(world))


class _Killer(WorldProcessor):
    """Kills its host at one record, every time."""

    def __init__(self, stage: Stage, place: str) -> None:
        super().__init__(stage.world, place, 0.05)
        self._stage = stage
        self._at = place

    async def _work(self, handled: Handled) -> None:
        if handled.position == BAD:

            async def kill() -> None:
                self._stage.kill(self._at)

            self._stage.start(kill)
            await anyio.sleep_forever()
        await super()._work(handled)


@schedule(partitions=1)
async def test_record_that_kills_every_host_is_given_up_alone_after_its_limit(stage: Stage) -> None:
    """It costs at most two deaths more than its attempts, and its neighbours are handled."""
    world = stage.world
    world.put(12)
    deaths = 0
    while not letters(world):
        demand("at most two deaths more than its attempts", deaths <= 5, deaths)
        place = f"k{deaths}"
        sink = Letters(world, place, PLAIN)
        made = partial(_Killer, stage, place)
        stage.host(place, processor=made, handling={"on_failure": DeadLetter(sink, attempts=3)})
        await world.until(partial(_is_over, world, place), within_s=6 * D)
        deaths += place in world.kills
    await world.until(lambda: Facts(world).done_to_s("p0", 12) < float("inf"), within_s=4 * D)

    demand("one record is given up", [position for _, position in letters(world)] == [BAD], letters(world))
    demand("for the deaths", world.events(RecordsGivenUp)[0].error.startswith("HostDied"), world.events(RecordsGivenUp))


def _is_over(world: World, place: str) -> bool:
    return place in world.kills or bool(letters(world))
