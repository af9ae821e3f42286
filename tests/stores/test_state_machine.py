"""
Any sequence of verbs: each store answers, and holds, what the pure rules say.

The model is `rules.apply` over a plain dict, written here once more; it knows no store.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from partitions import rules
from partitions.items import Known, LeaseItem, LockItem, Prepared, SessionItem
from partitions.lock_verbs import AcquireLock, LockVerb, RaiseLock, ReleaseLock
from partitions.stores.base import Store
from partitions.verbs import (
    Acquire,
    Adopt,
    Applied,
    Ask,
    Attempt,
    Beat,
    Child,
    Complete,
    Create,
    Delete,
    Drain,
    Fence,
    LeaseVerb,
    Leave,
    NoteRestore,
    Pause,
    Prepare,
    Raise,
    Refused,
    Register,
    Release,
    Result,
    Resume,
    SaveCheckpoint,
    SessionVerb,
    SetUp,
    Verb,
)
from tests.builders import a_group, a_lease, a_lock, a_register
from tests.stores.kinds import KINDS, Kind

__all__: list[str] = []

GROUPS = ("g", "g.2")
PARTITIONS = ("p", "q")
SESSIONS = ("a:1", "b:1")
LOCKS = ("nightly", "p")
KEYS = st.sampled_from([("p@1",), ("p@2",), ("q@1", "p@1"), ("p@2", "q@1", "q@2")])
POSITIONS = st.sampled_from(["", "1", "49579292999999999999999999999999999999999999999999888898", "ü"])
STATES = st.sampled_from(["", "debit 7", '{"ä\'"\\\\🙂'])
WEIGHTS = st.sampled_from([0.0, 0.1, 1 / 3, 1e9])
EXTRA = st.sampled_from([{}, {"pid": 7, "host": "ä'\"\\🙂"}, {"yes": True, "nothing": None, "real": -0.5}])

LOCK_IDS = tuple(f"lock {name}" for name in LOCKS)
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
        if isinstance(verb, LockVerb):
            return group, LockVerb, verb.name
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

    def copy(self) -> Model:
        other = type(self)()
        other.items = dict(self.items)
        return other

    def all(self, group: str, kind: type[Any]) -> dict[str, Any]:
        return {
            key: item
            for (of, each, key), item in self.items.items()
            if (of, each) == (group, kind) and item is not None
        }


EVERY_LEASE_VERB: list[type[LeaseVerb]] = [
    Create,
    Acquire,
    SaveCheckpoint,
    Attempt,
    Prepare,
    Release,
    Complete,
    Pause,
    Resume,
    Raise,
    Delete,
]


def fitting_verbs(lease: LeaseItem | None) -> list[type[LeaseVerb]]:
    if lease is None:
        return [Create, Create, Create]
    if lease.finished:
        return [Delete, Complete]
    if lease.owner is not None:
        return [SaveCheckpoint, SaveCheckpoint, Attempt, Attempt, Prepare, Acquire, Release, Complete, Pause]
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
        return Acquire(
            partition=partition,
            seen_owner=seen,
            seen_token=token,
            session_id=owner,
            host_id=owner[0],
            is_suspect=draw(st.booleans()),
        )
    if kind is SaveCheckpoint:
        seq = max(0, lease.seq + draw(st.sampled_from([1, 1, 2, 0, -1])))
        weight = draw(st.none() | WEIGHTS)
        position = draw(POSITIONS)
        return SaveCheckpoint(
            partition=partition,
            owner=owner,
            token=token,
            position=position,
            seq=seq,
            weight=weight,
            advances=draw(st.booleans()),
            keeps_prepared=draw(st.booleans()),
        )
    if kind is Attempt:
        seq, done = lease.seq + draw(st.sampled_from([1, 2, 0])), draw(st.none() | POSITIONS)
        return Attempt(partition=partition, owner=owner, token=token, seq=seq, position=done)
    if kind is Prepare:
        seq, prepared = (
            lease.seq + draw(st.sampled_from([1, 2, 0])),
            Prepared(state=draw(STATES), position=draw(POSITIONS)),
        )
        return Prepare(partition=partition, owner=owner, token=token, seq=seq, prepared=prepared)
    if kind is Release:
        position, seq = draw(st.sampled_from([(None, None), ("last", lease.seq + 1)]))
        return Release(
            partition=partition,
            owner=owner,
            token=token,
            position=position,
            seq=seq,
            attempts=draw(st.sampled_from([None, 0, 5])),
            keeps_prepared=draw(st.booleans()),
        )
    if kind is Complete:
        children = draw(st.lists(st.sampled_from(PARTITIONS), max_size=2))
        made = tuple(Child(partition=child, parents=(partition,), position="start") for child in children)
        return Complete(partition=partition, owner=owner, token=token, children=made)
    if kind is Pause:
        return Pause(partition=partition, seen_token=token, reason=draw(st.sampled_from([None, "poison"])))
    if kind is Resume:
        return Resume(partition=partition, seen_token=token)
    if kind is Raise:
        higher = lease.token + draw(st.sampled_from([1, 10**9, 0, -1]))
        return Raise(partition=partition, seen_token=token, token=higher)
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
        return Beat(
            session_id=session_id,
            owned=owned,
            load=load,
            draining=draining,
            known=known,
            sick=draw(st.booleans()),
            handled=handled,
        )
    if kind is Ask:
        return Ask(session_id=session_id, keys=draw(KEYS), asker=draw(st.sampled_from(["", *SESSIONS])))
    if kind is Fence:
        beat = 0 if session is None else session.beat
        return Fence(session_id=session_id, seen_beat=max(0, beat + draw(st.sampled_from([0, 0, 1, -1]))))
    return Leave(session_id=session_id) if kind is Leave else Drain(session_id=session_id)


def lock_verb(draw: Draw, lock: LockItem | None, name: str) -> Verb[Any]:
    """A write on one lock, mostly by one who knows it as it is."""
    fitting: list[type[LockVerb]] = [AcquireLock] if lock is None or lock.owner is None else [ReleaseLock, AcquireLock]
    kind = draw(st.sampled_from([*fitting * 4, AcquireLock, ReleaseLock, RaiseLock]))
    seen = draw(st.sampled_from([lock, lock, lock, None, a_lock(name, owner="b:1", token=2)]))
    session_id = draw(st.sampled_from(SESSIONS))
    if kind is AcquireLock:
        return AcquireLock(
            name=name,
            seen_owner=None if seen is None else seen.owner,
            seen_token=None if seen is None else seen.token,
            session_id=session_id,
            host_id=session_id[0],
            expires=draw(st.booleans()),
            extra=draw(EXTRA),
        )
    if kind is RaiseLock:
        token = draw(st.sampled_from([1, 10**9])) + (0 if seen is None else seen.token - 1)
        return RaiseLock(name=name, seen_token=None if seen is None else seen.token, token=token)
    if seen is not None and seen.owner is not None and draw(st.booleans()):
        session_id = seen.owner
    return ReleaseLock(name=name, owner=session_id, token=1 if seen is None else seen.token)


def group_verb(draw: Draw) -> Verb[Any]:
    """A write on the group's own item."""
    source = draw(st.sampled_from(["one", "other"]))
    kind = draw(st.sampled_from([SetUp, Adopt, NoteRestore]))
    if kind is SetUp:
        return SetUp(item=a_group(source=source, extra=draw(EXTRA)))
    if kind is NoteRestore:
        return NoteRestore(seen_count=draw(st.sampled_from([0, 0, 1, 2])))
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
        about = data.draw(st.sampled_from([*PARTITIONS * 3, *SESSIONS, *LOCK_IDS, ""]))
        verb: Verb[Any]
        if about in PARTITIONS:
            verb = lease_verb(data.draw, self.model.all(group, LeaseVerb).get(about), about)
        elif about in SESSIONS:
            verb = session_verb(data.draw, self.model.all(group, SessionVerb).get(about), about)
        elif about in LOCK_IDS:
            name = about.removeprefix("lock ")
            verb = lock_verb(data.draw, self.model.all(group, LockVerb).get(name), name)
        else:
            verb = group_verb(data.draw)
        if isinstance(verb, Complete) and not self.kind.has_transactions:
            verb = replace(verb, children=())
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
        """Several before the first is answered, so that a store may put them together: as if one after the other."""
        verbs = [self.drawn(data) for _ in range(count)]
        verbs += [data.draw(st.sampled_from(self.sent)) for _ in range(late)]

        async def together() -> list[Result[Any]]:
            return await asyncio.gather(*(self.store.submit(group, verb) for group, verb in verbs))

        answers = self.runner.run(together())
        if self.kind.keeps_order:
            assert answers == [self.model.submit(group, verb) for group, verb in verbs]
            return
        fitting = list(orders(self.model, list(zip(verbs, answers, strict=True))))
        assert fitting, f"no order of {verbs} explains {answers}"
        # The same answers may leave different items behind, as where the last one deletes.
        held = [self.held(group) for group in GROUPS]
        self.model = next(
            (model for model in fitting if [held_by(model, group) for group in GROUPS] == held), self.model
        )
        assert [held_by(self.model, group) for group in GROUPS] == held

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

        async def look() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
            leases = {partition: await self.store.read_lease(group, partition) for partition in PARTITIONS}
            sessions = {session_id: await self.store.read_session(group, session_id) for session_id in SESSIONS}
            return leases, sessions, {name: await self.store.read_lock(group, name) for name in LOCKS}

        leases, sessions, locks = self.runner.run(look())
        assert {key: item for key, item in locks.items() if item is not None} == self.model.all(group, LockVerb)
        assert {key: item for key, item in leases.items() if item is not None} == self.model.all(group, LeaseVerb)
        assert {key: item for key, item in sessions.items() if item is not None} == self.model.all(group, SessionVerb)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        """Every read shows it."""

        for group in GROUPS:
            some = self.runner.run(self.store.read_some_leases(group, PARTITIONS))
            assert {lease.partition: lease for lease in some} == self.model.all(group, LeaseVerb)
            locks = self.runner.run(self.store.read_some_locks(group, LOCKS))
            assert {lock.name: lock for lock in locks} == self.model.all(group, LockVerb)
            assert self.held(group) == held_by(self.model, group)

    def held(self, group: str) -> tuple[Any, ...]:
        """What the reads of a whole group show."""

        async def look() -> tuple[Any, ...]:
            leases = await self.store.read_leases(group)
            sessions = await self.store.read_sessions(group, consistent=True)
            return (
                {lease.partition: lease for lease in leases},
                {session.session_id: session for session in sessions},
                {lock.name: lock for lock in await self.store.read_locks(group)},
                await self.store.read_group(group),
            )

        return self.runner.run(look())

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        self.folder.cleanup()


def held_by(model: Model, group: str) -> tuple[Any, ...]:
    return (
        model.all(group, LeaseVerb),
        model.all(group, SessionVerb),
        model.all(group, LockVerb),
        model.all(group, SetUp).get(""),
    )


def orders(
    model: Model, answered: list[tuple[tuple[str, Verb[Any]], Result[Any]]], owed: tuple[tuple[Key, Any], ...] = ()
) -> Iterator[Model]:
    """
    Every model that some order of the verbs leaves, in which each is answered as it was.

    The item in an answer may have been read after the write was decided, where the contract allows it: then it is
    owed, until a later verb of the order leaves it like that.
    """
    owed = tuple((key, item) for key, item in owed if model.items.get(key) != item)
    if not answered and not owed:
        yield model
    for number, ((group, verb), answer) in enumerate(answered):
        after = model.copy()
        right = after.submit(group, verb)
        rest = [*answered[:number], *answered[number + 1 :]]
        if right == answer:
            yield from orders(after, rest, owed)
        elif isinstance(answer, Refused) and isinstance(right, Refused):
            yield from orders(after, rest, (*owed, (model.key(group, verb), answer.current)))
        elif (
            isinstance(answer, Applied) and isinstance(right, Applied) and isinstance(verb, Complete) and verb.children
        ):
            yield from orders(after, rest, (*owed, (model.key(group, verb), answer.item)))


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
    quickly = settings(max_examples=kind.machine_runs, stateful_step_count=30)

    run_state_machine_as_test(machine(kind), settings=quickly)


def test_orders_finds_the_one_that_explains_the_answers_and_none_where_none_does() -> None:
    """A store that does not keep the order of what is sent together is still held to some order."""
    first, second = (SetUp(item=a_group(start=start)) for start in ("1", "2"))
    won, lost = Applied(item=second.item), Refused(current=second.item)

    (found,) = orders(Model(), [(("g", first), lost), (("g", second), won)])

    assert held_by(found, "g") == ({}, {}, {}, second.item)
    assert list(orders(Model(), [(("g", first), won), (("g", second), won)])) == []
    assert list(orders(Model(), [(("g", first), Refused(current=a_group(start="3"))), (("g", second), won)])) == []


def test_orders_takes_an_item_that_was_read_after_the_refusal_and_no_other() -> None:
    """Where the server sends no item with a refusal, the store reads it, and others may have written meanwhile."""
    model = Model()
    model.submit("g", SetUp(item=a_group(source="one")))
    refused, adopted = SetUp(item=a_group()), Adopt(seen_source="one", source="other")
    after, never = a_group(source="other"), a_group(source="third")
    applied = (("g", adopted), Applied(item=after))

    assert len(list(orders(model, [(("g", refused), Refused(current=after)), applied]))) >= 1
    assert list(orders(model, [(("g", refused), Refused(current=never)), applied])) == []


def test_state_machine_finds_a_model_that_differs_in_one_condition() -> None:
    """Verbs that are all refused would find nothing."""
    quickly = settings(max_examples=1000, stateful_step_count=30, database=None, phases=[Phase.generate])

    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine(KINDS[0], Wrong), settings=quickly)
