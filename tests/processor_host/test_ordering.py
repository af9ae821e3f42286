"""
Records side by side: one at a time of each key, in order, and a checkpoint that never passes an unfinished one.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from partitions.sources.base import Record
from processor_host.ordering import SideBySide

__all__: list[str] = []

KEYS = st.sampled_from([None, "a", "b", "c"])


def record(number: int, key: str | None) -> Record:
    return Record(partition="p0", position=f"at-{number}", key=key, data=b"")


def taken(*keys: str | None, at_once: int = 10) -> SideBySide:
    """The records 0, 1, … of these keys."""
    order = SideBySide(at_once=at_once, window_max=20)
    for number, key in enumerate(keys):
        assert order.add(record(number, key)) == number
    return order


def begun(order: SideBySide) -> list[int]:
    """Begin all that may, and return their numbers in the order of their beginning."""
    found = []
    while (next_one := order.begin()) is not None:
        number, which = next_one
        assert which.position == f"at-{number}"
        found.append(number)
    return found


def test_records_of_one_key_begin_one_after_the_other() -> None:
    """The order within a key is what its writer counts on."""
    order = taken("a", "a", "a")
    seen = [begun(order)]
    for number in (0, 1, 2):
        order.end(number)
        seen.append(begun(order))

    assert seen == [[0], [1], [2], []]


def test_records_of_different_keys_and_of_none_begin_together_and_the_earliest_first() -> None:
    """What holds the checkpoint back comes first; a record without a key waits for nobody."""
    assert begun(taken("a", None, "a", "b", None, "c", at_once=4)) == [0, 1, 3, 4]


def test_checkpoint_is_the_highest_below_which_all_is_done() -> None:
    """One position higher, and a crash would lose the record that is still at work."""
    order = taken("a", "b", "c", "d")
    begun(order)
    seen = [(order.done, order.position)]
    for number in (2, 1, 0, 3):
        order.end(number)
        seen.append((order.done, order.position))

    assert seen == [(0, None), (0, None), (0, None), (3, "at-2"), (4, "at-3")]


def test_failed_record_holds_back_its_key_and_the_checkpoint_but_no_other_key() -> None:
    """A failing record blocks what must wait for it, and nothing else."""
    order = taken("a", "b", "a", "b")
    begun(order)
    order.fail(0)
    order.end(1)
    after_failure = begun(order)
    order.end(3)
    order.again(0)
    after_again = begun(order)
    held = order.done
    order.end(0)

    assert (after_failure, after_again, held, begun(order), order.done) == ([3], [0], 0, [2], 2)


@pytest.mark.parametrize("call", ["end", "fail", "again"])
def test_record_that_is_not_at_work_can_neither_end_nor_fail(call: str) -> None:
    """Two ends of one record would let a later one of its key begin beside it."""
    order = taken("a", "a")
    begun(order)

    with pytest.raises(ValueError, match="record 1 "):
        getattr(order, call)(1)


def test_no_more_is_taken_in_than_the_window_has_room_for() -> None:
    """One stuck record would else let the memory of everything behind it grow without bound."""
    order = SideBySide(at_once=1, window_max=2)
    order.add(record(0, "a"))
    order.add(record(1, "b"))

    with pytest.raises(ValueError, match="window_max=2 records are taken in already"):
        order.add(record(2, "c"))
    assert order.room == 0


@pytest.mark.parametrize(("at_once", "window_max"), [(0, 5), (3, 2)])
def test_bounds_that_cannot_work_are_refused(at_once: int, window_max: int) -> None:
    """Such a partition would stand still without a word."""
    with pytest.raises(ValueError, match="expected 1 <= at_once <= window_max"):
        SideBySide(at_once=at_once, window_max=window_max)


class Machine(RuleBasedStateMachine):
    """Any interleaving of taking in, beginning, ending and failing, against a model that keeps everything in lists."""

    def __init__(self) -> None:
        super().__init__()
        self.order = SideBySide(at_once=3, window_max=8)
        self.keys: list[str | None] = []
        self.state: list[str] = []

    def of(self, state: str) -> list[int]:
        return [number for number, each in enumerate(self.state) if each == state]

    def may_begin(self) -> list[int]:
        """From the rules alone: waiting, and no earlier record of the same key that is not done."""
        return [
            number
            for number in self.of("waiting")
            if self.keys[number] is None
            or all(self.state[at] == "done" for at in range(number) if self.keys[at] == self.keys[number])
        ]

    @precondition(lambda self: self.order.room > 0)
    @rule(key=KEYS)
    def add(self, key: str | None) -> None:
        self.order.add(record(len(self.keys), key))
        self.keys.append(key)
        self.state.append("waiting")

    @rule()
    def begin(self) -> None:
        can = self.may_begin() if len(self.of("at work")) < 3 else []
        found = self.order.begin()
        assert (None if found is None else found[0]) == (can[0] if can else None)
        if found is not None:
            self.state[found[0]] = "at work"

    @precondition(lambda self: self.of("at work"))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.of("at work")))
        self.order.end(number)
        self.state[number] = "done"

    @precondition(lambda self: self.of("at work"))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.of("at work")))
        self.order.fail(number)
        self.state[number] = "failed"

    @precondition(lambda self: self.of("failed"))
    @rule(data=st.data())
    def again(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.of("failed")))
        self.order.again(number)
        self.state[number] = "waiting"

    @invariant()
    def checkpoint_is_right(self) -> None:
        done = next((at for at, each in enumerate(self.state) if each != "done"), len(self.state))
        counts = (self.order.done, self.order.position, self.order.at_work, self.order.unfinished)
        unfinished = len(self.state) - len(self.of("done"))
        assert counts == (done, f"at-{done - 1}" if done else None, len(self.of("at work")), unfinished)
        assert self.order.room == 8 - (len(self.state) - done)


TestSideBySide = Machine.TestCase


@given(keys=st.lists(KEYS, max_size=20), at_once=st.integers(1, 4), data=st.data())
def test_every_record_ends_whatever_the_order(keys: list[str | None], at_once: int, data: st.DataObject) -> None:
    """Nothing may be left that nobody begins: that partition would stand still."""
    order = taken(*keys, at_once=at_once)
    running: list[int] = []
    while order.unfinished:
        running += begun(order)
        assert running, "something is unfinished, and nothing is at work"
        order.end(running.pop(data.draw(st.integers(0, len(running) - 1))))

    assert order.done == len(keys)
