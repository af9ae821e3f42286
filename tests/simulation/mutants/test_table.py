"""The table of mutations itself: each still finds the text that it changes, and the rules all have one."""

from __future__ import annotations

import pytest

from tests.simulation.directed.schedules import load_all
from tests.simulation.mutants.copies import check_applies
from tests.simulation.mutants.mutation import Mutation
from tests.simulation.mutants.table import MUTATIONS

__all__: list[str] = []

IN_SIMULATION = {str(number) for number in range(1, 17)}
"""Rule 17 is about SQLite, which no simulated host runs on; the tests of that store hold it."""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_finds_the_one_text_that_it_changes(mutation: Mutation) -> None:
    """One that no longer applies would look caught, or be left out, and prove nothing."""
    check_applies(mutation)


def test_mutations_cover_every_rule_and_differ() -> None:
    """A rule that no mutation breaks may be one that no checker sees."""
    names = [mutation.name for mutation in MUTATIONS]
    changes = {(mutation.file, mutation.old, mutation.new, mutation.also) for mutation in MUTATIONS}

    assert {mutation.rule for mutation in MUTATIONS if not mutation.needless} >= IN_SIMULATION
    assert len(set(names)) == len(changes) == len(MUTATIONS)


def test_schedules_that_mutations_name_are_there() -> None:
    """A name that is no schedule's costs every schedule before the one that catches."""
    schedules = load_all()
    beginnings = {name for mutation in MUTATIONS for name in mutation.likely}

    assert [name for name in beginnings if not any(schedule.startswith(name) for schedule in schedules)] == []


@pytest.mark.parametrize("text", ["", "x = 1\nx = 1\n"])
def test_mutation_whose_text_is_not_there_once_is_an_error(text: str) -> None:
    """Twice is as bad as never: which of them is the rule?"""
    mutation = Mutation(name="twice", rule="1", file="partitions/rules.py", old="x = 1\n", new="x = 2\n")

    with pytest.raises(ValueError, match="expected once"):
        mutation.applied_to(text)
