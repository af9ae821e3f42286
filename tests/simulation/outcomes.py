"""
What commands said, against the history: what one calls done was applied, and none fails in a way that nobody knows.

Reads the history and what was said, and no host. What a command did not say, because it was killed, is no promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from partitions.verbs import Drain, Fence, Leave, Pause, Release, Resume
from processor_host.operating.draining import Drained, Forgotten
from processor_host.operating.pausing import Paused, Resumed
from processor_host.operating.resetting import Released, Reset
from tests.simulation.checkers import Failure
from tests.simulation.commands import REFUSALS, Given
from tests.simulation.facts import Facts
from tests.world.network import Write
from tests.world.world import World

__all__ = ["judge_commands"]


def judge_commands(world: World, given: Iterable[Given]) -> list[Failure]:
    """Return what was said and was not so, and the errors that no command may end with."""
    facts = Facts(world)
    found = []
    for command in given:
        if not isinstance(command.outcome, Exception):
            found += [
                Failure(checker="commands say what is so", text=f"{each}: {command}")
                for each in _untrue(facts, command)
            ]
        elif not isinstance(command.outcome, REFUSALS):
            found.append(Failure(checker="commands fail as they may", text=f"{command}"))
    return found


def _untrue(facts: Facts, command: Given) -> Iterator[object]:
    """Yield the parts of an outcome for which no write speaks."""
    for part in command.outcome:
        if not _is_so(facts, command, part):
            yield part


def _is_so(facts: Facts, command: Given, part: Any) -> bool:
    match part:
        case Reset(partition=partition, done=True, position=position):
            mine = _of_partition(facts, command, partition, Release)
            return any(write.verb.position == position for write in mine if write.place == command.place)
        case Released(partition=partition, done=True, was_owned_by=str()):
            return any(write.place == command.place for write in _of_partition(facts, command, partition, Release))
        case Paused(partition=partition):
            return any(write.place == command.place for write in _of_partition(facts, command, partition, Pause))
        case Resumed(partition=partition, was_paused=True):
            # Perhaps by another, who was faster.
            return any(True for _ in _of_partition(facts, command, partition, Resume))
        case Drained(session_id=session_id, has_left=True) | Forgotten(session_id=session_id, fenced=False):
            return any(write.verb.session_id == session_id for write in _until(facts, command, Leave, Fence))
        case Drained(session_id=session_id):
            return any(write.verb.session_id == session_id for write in _since(facts, command, Drain))
        case Forgotten(session_id=session_id):
            fences = [write for write in _since(facts, command, Fence) if write.place == command.place]
            return any(write.verb.session_id == session_id for write in fences)
        case _:
            return True


def _of_partition(facts: Facts, command: Given, partition: str, kind: type) -> Iterator[Write]:
    return (write for write in _since(facts, command, kind) if write.verb.partition == partition)


def _since(facts: Facts, command: Given, *kinds: type) -> Iterator[Write]:
    """The writes of these kinds that were applied while the command went on."""
    return (write for write in _until(facts, command, *kinds) if write.at_s >= command.began_s)


def _until(facts: Facts, command: Given, *kinds: type) -> Iterator[Write]:
    return (write for write in facts.applied(*kinds) if write.at_s <= command.ended_s)
