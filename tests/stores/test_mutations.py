"""
The suite sees every wrong rule: each condition and each effect of each verb, taken out in turn, turns it red.

The stores run from copies of their modules whose `rules` is the wrong module, so the code around the rules is the very
code of the product.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from partitions import rules
from partitions.stores import memory, sqlite
from partitions.stores.base import Store
from partitions.verbs import Complete, Verb
from tests.stores.mutations import Mutation, module_of, mutations_of_rules, same_rules
from tests.stores.scenarios import ABOUT, About

__all__: list[str] = []

MUTATIONS = mutations_of_rules(inspect.getsource(rules))

# What the stores themselves do beside the rules: module, the text, and what it becomes.
OF_STORES = {
    "memory: children are not made": (memory, "isinstance(verb, Complete)", "False"),
    "memory: children are made anew": (memory, "child.partition not in items.leases", "True"),
    "memory: nothing is deleted": (memory, "held.pop(key, None)", "pass"),
    "memory: groups are not kept apart": (memory, "self._groups.get(group)", "next(iter(self._groups.values()), None)"),
    "memory: nothing is written": (memory, "held[key] = result.item", "pass"),
    "sqlite: children are not made": (sqlite, "isinstance(verb, Complete)", "False"),
    "sqlite: children are made anew": (sqlite, "LEASES.write_if_absent", "LEASES.write"),
    "sqlite: nothing is deleted": (sqlite, "connection.execute(table.delete, key)", "pass"),
    "sqlite: nothing is written": (sqlite, "connection.execute(table.write, table.to_row(group, result.item))", "pass"),
    "sqlite: groups are not kept apart": (sqlite, "table.to_row(group, result.item)", 'table.to_row("", result.item)'),
}


def copied(module: ModuleType, text: str | None = None) -> ModuleType:
    """A module of its own from the text of another one, or from a changed text."""
    spec = importlib.util.spec_from_loader(f"{module.__name__}_copied", loader=None)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    exec(compile(text or inspect.getsource(module), module.__name__, "exec"), vars(made))
    return made


def memory_of(module: ModuleType, _: Path) -> Store:
    store: Store = module.MemoryStore()
    return store


def sqlite_of(module: ModuleType, folder: Path) -> Store:
    store: Store = module.SqliteStore(folder / "leases.db")
    return store


Make = Callable[[ModuleType, Path], Store]
STORES: dict[str, tuple[ModuleType, Make]] = {"memory": (memory, memory_of), "sqlite": (sqlite, sqlite_of)}


def likeliest_first(verb: type[Verb[Any]] | None) -> Iterator[tuple[str, About]]:
    """Every scenario, those about the verb first: a wrong rule is then seen soon."""
    yield from sorted(ABOUT.items(), key=lambda entry: entry[1].verb is not verb)


async def first_red(store: Store, prefix: str, verb: type[Verb[Any]] | None) -> str | None:
    """Run the suite until the first scenario that fails; return its name, or None where all hold."""
    for number, (name, about) in enumerate(likeliest_first(verb)):
        if await fails(about.scenario, store, f"{prefix}-{number}-group"):
            return name
    return None


async def fails(scenario: Callable[[Store, str], Awaitable[None]], store: Store, group: str) -> bool:
    try:
        await scenario(store, group)
    except Exception:  # Containment: whatever a scenario raises, it is red.
        return True
    return False


def table(seen: dict[str, str | None]) -> str:
    return "\n".join(f"{'STAYS GREEN' if red is None else 'red'}  {name}  {red or ''}" for name, red in seen.items())


@pytest.mark.parametrize("name", STORES)
async def test_suite_turns_red_when_any_condition_or_effect_of_a_rule_is_taken_out(name: str, tmp_path: Path) -> None:
    """A scenario that holds without the rule it names proves nothing about a store that lacks the rule."""
    module, make = STORES[name]
    copy = copied(module)
    store = make(copy, tmp_path)
    await store.create()
    await store.open()
    copy.rules = module_of(same_rules(inspect.getsource(rules)))  # type: ignore[attr-defined]
    assert await first_red(store, "right", None) is None, "the suite is red without any change"

    seen: dict[str, str | None] = {}
    for number, mutation in enumerate(MUTATIONS):
        copy.rules = module_of(mutation.text)  # type: ignore[attr-defined]
        seen[mutation.name] = await first_red(store, str(number), mutation.verb or Complete)
    await store.close()

    assert [mutation for mutation, red in seen.items() if red is None] == [], table(seen)


@pytest.mark.parametrize("name", OF_STORES)
async def test_suite_turns_red_when_a_store_leaves_out_what_it_does_beside_the_rules(name: str, tmp_path: Path) -> None:
    """Children, deletion and the groups are each store's own code."""
    module, old, new = OF_STORES[name]
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} is not once in {module.__name__}; name what stands there now"
    _, make = STORES[name.partition(":")[0]]
    store = make(copied(module, source.replace(old, new)), tmp_path)
    await store.create()
    await store.open()

    red = await first_red(store, "wrong", Complete)
    await store.close()

    assert red is not None


def test_mutations_cover_every_rule_and_are_all_different() -> None:
    """The table is made by a program; one that finds nothing in a rule would prove nothing about it."""
    by_rule: dict[type[Verb[Any]] | None, list[Mutation]] = {}
    for mutation in MUTATIONS:
        by_rule.setdefault(mutation.verb, []).append(mutation)
    texts = [mutation.text for mutation in MUTATIONS]

    assert set(by_rule) == {*rules._RULES, None}
    assert min(len(of_rule) for of_rule in by_rule.values()) >= 2
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    assert len(set(texts)) == len(texts)
    assert inspect.getsource(rules) not in texts
