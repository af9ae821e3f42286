"""
Any sequence of verbs: each store answers, and holds, what the pure rules say.

The model is `rules.apply` over a plain dict, written here once more; it knows no store.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from partitions import rules
from partitions.items import Known, LeaseItem, SessionItem
from partitions.stores.base import Store
from partitions.verbs import (
    Acquire,
    Adopt,
    Applied,
    Ask,
    Beat,
    Child,
    Complete,
    Create,
    Delete,
    Drain,
    Fence,
    LeaseVerb,
    Leave,
    Pause,
    Register,
    Release,
    Result,
    Resume,
    SaveCheckpoint,
    SessionVerb,
    SetUp,
    Verb,
)
from tests.builders import a_group, a_lease, a_register
from tests.stores.kinds import KINDS, Kind

__all__: list[str] = []

GROUPS = ("g", "g.2")
PARTITIONS = ("p", "q")
SESSIONS = ("a:1", "b:1")
KEYS = st.sampled_from([("p@1",), ("p@2",), ("q@1", "p@1"), ("p@2", "q@1", "q@2")])
POSITIONS = st.sampled_from(["", "1", "49579292999999999999999999999999999999999999999999888898", "ü"])
WEIGHTS = st.sampled_from([0.0, 0.1, 1 / 3, 1e9])
EXTRA = st.sampled_from([{}, {"pid": 7, "host": "ä'\"\\🙂"}, {"yes": True, "nothing": None, "real": -0.5}])

Draw = Callable[[st.SearchStrategy[Any]], Any]
Key = tuple[str, type[Any], str]


class Model:
    """What the store should hold."""

    def __init__(self) -> None:
        self.items: dict[Key, Any] = {}

    def key(self, group: str, verb: Verb[Any]) -> Key:
        if isinstance(verb, LeaseVerb):
            return group, LeaseVerb, verb.partition
        if isinstance(verb, SessionVerb):
            return group, SessionVerb, verb.session_id
        return group, SetUp, ""

    def submit(self, group: str, verb: Verb[Any]) -> Result[Any]:
        key = self.key(group, verb)
        result = rules.apply(self.items.get(key), verb)
        if isinstance(result, Applied):
            self.items[key] = result.item
            if isinstance(verb, Complete):
                for child in verb.children:
                    born = (group, LeaseVerb, child.partition)
                    self.items[born] = self.items.get(born) or rules.born(child)
        return result

    def all(self, group: str, kind: type[Any]) -> dict[str, Any]:
        return {
            key: item
            for (of, each, key), item in self.items.items()
            if (of, each) == (group, kind) and item is not None
        }


EVERY_LEASE_VERB: list[type[LeaseVerb]] = [Create, Acquire, SaveCheckpoint, Release, Complete, Pause, Resume, Delete]


def fitting_verbs(lease: LeaseItem | None) -> list[type[LeaseVerb]]:
    if lease is None:
        return [Create, Create, Create]
    if lease.finished:
        return [Delete, Complete]
    if lease.owner is not None:
        return [SaveCheckpoint, SaveCheckpoint, SaveCheckpoint, Acquire, Release, Complete, Pause]
    return [Resume, Resume] if lease.paused else [Acquire, Acquire, Pause]


def lease_verb(draw: Draw, lease: LeaseItem | None, partition: str) -> Verb[Any]:
    """
    A write on one lease.

    Mostly one that fits, by one who knows the lease as it is, so that sequences get far; else any, by anybody.
    """
    fitting = fitting_verbs(lease)
    lease = lease or a_lease(partition)
    kind = draw(st.sampled_from([*fitting * 4, *EVERY_LEASE_VERB]))
    late = draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    token = max(0, lease.token + late)
    owner = draw(st.sampled_from(SESSIONS)) if lease.owner is None or late > 0 else lease.owner
    if kind is Create:
        return Create(partition=partition, position=draw(POSITIONS), parents=draw(st.sampled_from([(), ("o", "n")])))
    if kind is Acquire:
        seen = draw(st.sampled_from([lease.owner, lease.owner, lease.owner, *SESSIONS]))
        return Acquire(partition=partition, seen_owner=seen, seen_token=token, session_id=owner, host_id=owner[0])
    if kind is SaveCheckpoint:
        seq = max(0, lease.seq + draw(st.sampled_from([1, 1, 2, 0, -1])))
        weight = draw(st.none() | WEIGHTS)
        position = draw(POSITIONS)
        return SaveCheckpoint(partition=partition, owner=owner, token=token, position=position, seq=seq, weight=weight)
    if kind is Release:
        position, seq = draw(st.sampled_from([(None, None), ("last", lease.seq + 1)]))
        return Release(partition=partition, owner=owner, token=token, position=position, seq=seq)
    if kind is Complete:
        children = draw(st.lists(st.sampled_from(PARTITIONS), max_size=2))
        made = tuple(Child(partition=child, parents=(partition,), position="start") for child in children)
        return Complete(partition=partition, owner=owner, token=token, children=made)
    if kind is Pause:
        return Pause(partition=partition, seen_token=token, reason=draw(st.sampled_from([None, "poison"])))
    if kind is Resume:
        return Resume(partition=partition, seen_token=token)
    return Delete(partition=partition, seen_token=token)


def session_verb(draw: Draw, session: SessionItem | None, session_id: str) -> Verb[Any]:
    """A write on one session, by its host, an observer, an asker or an operator."""
    fitting: list[type[SessionVerb]] = [Register] * 12 if session is None else [Beat, Beat, Ask, Ask]
    kind = draw(st.sampled_from([*fitting, Register, Beat, Ask, Fence, Leave, Drain]))
    if kind is Register:
        return a_register(session_id, extra=draw(EXTRA), max_leases=draw(st.sampled_from([None, 0, 9])))
    if kind is Beat:
        known = draw(st.sampled_from([None, Known(count=3, checksum=2**32 - 1)]))
        handled = draw(st.just(()) | KEYS)
        owned, load, draining = draw(st.integers(0, 9)), draw(WEIGHTS), draw(st.booleans())
        return Beat(session_id=session_id, owned=owned, load=load, draining=draining, known=known, handled=handled)
    if kind is Ask:
        return Ask(session_id=session_id, keys=draw(KEYS), asker=draw(st.sampled_from(["", *SESSIONS])))
    if kind is Fence:
        beat = 0 if session is None else session.beat
        return Fence(session_id=session_id, seen_beat=max(0, beat + draw(st.sampled_from([0, 0, 1, -1]))))
    return Leave(session_id=session_id) if kind is Leave else Drain(session_id=session_id)


def group_verb(draw: Draw) -> Verb[Any]:
    """A write on the group's own item."""
    source = draw(st.sampled_from(["one", "other"]))
    if draw(st.booleans()):
        return SetUp(item=a_group(source=source, extra=draw(EXTRA)))
    return Adopt(seen_source=source, source=draw(st.sampled_from(["one", "other"])))


class Machine(RuleBasedStateMachine):
    """One store beside the model; every verb goes to both."""

    kind: ClassVar[Kind]
    model_kind: ClassVar[type[Model]] = Model

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.model = self.model_kind()
        self.sent: list[tuple[str, Verb[Any]]] = []
        self.store: Store = self.runner.run(self.opened())

    async def opened(self) -> Store:
        store = await self.kind.absent(Path(self.folder.name))
        await store.create()
        await store.open()
        return store

    def drawn(self, data: st.DataObject) -> tuple[str, Verb[Any]]:
        group = data.draw(st.sampled_from([*GROUPS, GROUPS[0], GROUPS[0]]))
        about = data.draw(st.sampled_from([*PARTITIONS, *PARTITIONS, *SESSIONS, ""]))
        verb: Verb[Any]
        if about in PARTITIONS:
            verb = lease_verb(data.draw, self.model.all(group, LeaseVerb).get(about), about)
        elif about in SESSIONS:
            verb = session_verb(data.draw, self.model.all(group, SessionVerb).get(about), about)
        else:
            verb = group_verb(data.draw)
        self.sent.append((group, verb))
        return group, verb

    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        """One new verb."""
        group, verb = self.drawn(data)

        assert self.runner.run(self.store.submit(group, verb)) == self.model.submit(group, verb)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def deliver_late(self, data: st.DataObject) -> None:
        """A duplicate of any earlier one."""
        group, verb = data.draw(st.sampled_from(self.sent))

        assert self.runner.run(self.store.submit(group, verb)) == self.model.submit(group, verb)

    @rule(data=st.data(), count=st.integers(2, 4), late=st.integers(0, 2))
    def submit_together(self, data: st.DataObject, count: int, late: int) -> None:
        """Several before the first is answered, so that a store may put them together; in their order."""
        verbs = [self.drawn(data) for _ in range(count)]
        verbs += [data.draw(st.sampled_from(self.sent)) for _ in range(late)]

        async def together() -> list[Result[Any]]:
            return await asyncio.gather(*(self.store.submit(group, verb) for group, verb in verbs))

        assert self.runner.run(together()) == [self.model.submit(group, verb) for group, verb in verbs]

    @precondition(lambda self: self.kind.name != "memory")
    @rule()
    def open_again(self) -> None:
        """What was answered is still there for the next process."""
        self.runner.run(self.store.close())
        self.store = self.runner.run(self.reopened())

    async def reopened(self) -> Store:
        store = await self.kind.absent(Path(self.folder.name))
        await store.open()
        return store

    @rule(group=st.sampled_from(GROUPS))
    def read_one_by_one(self, group: str) -> None:
        """The reads of single items show what the reads of all do."""

        async def look() -> tuple[dict[str, Any], dict[str, Any]]:
            leases = {partition: await self.store.read_lease(group, partition) for partition in PARTITIONS}
            return leases, {session_id: await self.store.read_session(group, session_id) for session_id in SESSIONS}

        leases, sessions = self.runner.run(look())
        assert {key: item for key, item in leases.items() if item is not None} == self.model.all(group, LeaseVerb)
        assert {key: item for key, item in sessions.items() if item is not None} == self.model.all(group, SessionVerb)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        """Every read shows it."""

        async def look(group: str) -> tuple[Any, ...]:
            return (
                await self.store.read_leases(group),
                await self.store.read_some_leases(group, PARTITIONS),
                await self.store.read_sessions(group, consistent=True),
                await self.store.read_group(group),
            )

        for group in GROUPS:
            leases, some, sessions, own = self.runner.run(look(group))
            assert {lease.partition: lease for lease in leases} == self.model.all(group, LeaseVerb)
            assert {lease.partition: lease for lease in some} == self.model.all(group, LeaseVerb)
            assert {session.session_id: session for session in sessions} == self.model.all(group, SessionVerb)
            assert own == self.model.all(group, SetUp).get("")

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        self.folder.cleanup()


def machine(of: Kind, model: type[Model] = Model) -> type[Machine]:
    class OfKind(Machine):
        kind = of
        model_kind = model

    return OfKind


class Wrong(Model):
    """Differs in one condition of one verb: a checkpoint that is delivered late is taken."""

    def submit(self, group: str, verb: Verb[Any]) -> Result[Any]:
        lease = self.items.get(self.key(group, verb))
        if isinstance(verb, SaveCheckpoint) and lease is not None:
            verb = replace(verb, seq=max(verb.seq, lease.seq + 1))
        return super().submit(group, verb)


def test_store_answers_any_sequence_of_verbs_as_the_rules_do(kind: Kind) -> None:
    """Scenarios are what somebody thought of; a sequence that nobody did must not tell two stores apart."""
    run_state_machine_as_test(machine(kind), settings=settings(max_examples=30, stateful_step_count=30))


def test_state_machine_finds_a_model_that_differs_in_one_condition() -> None:
    """Verbs that are all refused would find nothing."""
    quickly = settings(max_examples=1000, stateful_step_count=30, database=None, phases=[Phase.generate])

    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine(KINDS[0], Wrong), settings=quickly)
