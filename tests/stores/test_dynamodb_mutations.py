"""
The suite sees every wrong write, on each server: each condition and each change of each verb, taken out in turn.

A server that is wrong about a kind of condition would hide that the store does not send it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from partitions.stores.base import Store
from partitions.stores.dynamodb import _store
from partitions.verbs import Verb
from tests.stores.dynamodb_mutations import Mutation, Recorder, mutated, mutations_of
from tests.stores.kinds import SERVERS, Kind, dynamodb_at, marks_of
from tests.stores.scenarios import ABOUT, About

__all__: list[str] = []

ON_SERVERS = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name, marks=marks_of(kind)) for kind in SERVERS], indirect=True
)


@pytest.fixture
async def plain(kind: Kind) -> AsyncIterator[Store]:
    """A store on a table of its own."""
    made = dynamodb_at(kind.url, "mutations")
    await made.create()
    await made.open()
    yield made
    await made.delete()


def likeliest_first(kind: Kind, verb: type[Verb[Any]] | None) -> list[tuple[str, About]]:
    """What the kind can show, and first what is about the verb; the long ones about reads come last."""
    can = [(name, about) for name, about in ABOUT.items() if kind.has_transactions or not about.needs_transactions]
    return sorted(can, key=lambda entry: (entry[1].verb is not verb, entry[1].verb is None))


async def first_red(store: Store, kind: Kind, prefix: str, verb: type[Verb[Any]] | None) -> str | None:
    for number, (name, about) in enumerate(likeliest_first(kind, verb)):
        try:
            await about.scenario(store, f"{prefix}-{number}-group")
        except Exception:  # Containment: whatever a scenario raises, it is red.
            return name
    return None


@ON_SERVERS
async def test_suite_turns_red_when_any_condition_or_change_of_a_write_is_taken_out(
    kind: Kind, plain: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scenario that holds without the condition proves nothing about a server that ignores it."""
    recorder = Recorder()
    monkeypatch.setattr(_store, "writes_of", recorder)
    for name, about in likeliest_first(kind, None):
        if about.verb is not None:
            await about.scenario(plain, f"right-{name}")

    seen: dict[Mutation, str | None] = {}
    for number, mutation in enumerate(mutations_of(recorder)):
        monkeypatch.setattr(_store, "writes_of", mutated(mutation))
        seen[mutation] = await first_red(plain, kind, str(number), mutation.verb)

    of_conditions = [mutation for mutation in seen if mutation.part == "conditions"]
    print(f"{kind.name}: {len(of_conditions)} changes of conditions and {len(seen) - len(of_conditions)} of effects")
    assert [mutation.name for mutation, red in seen.items() if red is None] == [], table(seen)


def table(seen: dict[Mutation, str | None]) -> str:
    lines = (f"{'STAYS GREEN' if red is None else 'red'}  {each.name}  {red or ''}" for each, red in seen.items())
    return "\n".join(lines)
