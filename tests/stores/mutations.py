"""
Wrong rules, each by one change to the text of `partitions.rules`, to prove that the suite would see it.

Nothing is listed by hand: every condition, effect and answer that is written in a rule is taken out in turn, so a rule
that is added later is covered too. Knows no store and runs nothing but the changed text of the module.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from partitions import rules
from partitions.verbs import Verb

__all__ = ["Mutation", "module_of", "mutations_of_rules", "same_rules"]

SHARED = "_is_owner"
"""The condition that several rules call. It is written out in each of them first, so that it is taken out of one."""

MAKERS = {"LeaseItem", "LockItem", "SessionItem"}
"""Calls that make an item: a field that is left out takes its default."""

REQUIRED = {"partition", "position", "name", "session_id", "host_id", "duration_s", "handoff_s"}
"""Fields without a default get another value instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change: the rule's name and what was changed in it, the verb that the rule is for, and the whole text."""

    name: str
    verb: type[Verb[Any]] | None
    """None for `born`, which makes the children of a complete."""
    text: str


Change = tuple[str, Callable[[], None]]


def mutations_of_rules(source: str) -> list[Mutation]:
    """Return every mutation of the text of `partitions.rules`, in the order of the text."""
    tree = _shared_written_out(ast.parse(source))
    verbs = {rule.__name__: verb for verb, rule in rules._RULES.items()}
    # Only what a change is in is copied and written anew: every run of pytest that reads the tests makes them all.
    texts = [ast.unparse(node) for node in tree.body]
    found = []
    for name in (*verbs, "born"):
        function = _function(tree, name)
        place = tree.body.index(function)
        number = 0
        while True:
            changed = copy.deepcopy(function)
            changes = list(_changes(changed))
            if number == len(changes):
                break
            told, change = changes[number]
            change()
            text = "\n".join([*texts[:place], ast.unparse(ast.fix_missing_locations(changed)), *texts[place + 1 :]])
            title = f"{name.lstrip('_')} {number + 1}: {told}"
            found.append(Mutation(name=title, verb=verbs.get(name), text=text))
            number += 1
    return found


def same_rules(source: str) -> str:
    """Return the text that every mutation starts from: another wording of the same rules."""
    return ast.unparse(_shared_written_out(ast.parse(source)))


def module_of(text: str) -> ModuleType:
    """Run the text as a module of its own; `partitions.rules` is untouched."""
    module = ModuleType("partitions_rules_changed")
    exec(compile(text, "changed rules", "exec"), vars(module))
    return module


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return found


def _shared_written_out(tree: ast.Module) -> ast.Module:
    shared = _function(tree, SHARED)
    (returned,) = (node.value for node in shared.body if isinstance(node, ast.Return))
    assert returned is not None
    written_out = returned

    class WriteOut(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            if isinstance(node.func, ast.Name) and node.func.id == SHARED:
                # The same names on both sides, or the text would mean something else.
                assert [ast.unparse(argument) for argument in node.args] == [each.arg for each in shared.args.args]
                return copy.deepcopy(written_out)
            return node

    changed = WriteOut().visit(tree)
    assert isinstance(changed, ast.Module)
    return changed


def _changes(function: ast.FunctionDef) -> Iterator[Change]:
    """Yield every change of one rule: what it is, and a function that makes it in the tree."""
    stored = function.args.args[0].arg
    for node in (inner for statement in function.body for inner in ast.walk(statement)):
        if isinstance(node, ast.BoolOp):
            yield from _terms(node)
        elif isinstance(node, ast.If | ast.IfExp) and not isinstance(node.test, ast.BoolOp):
            for truth in (True, False):
                yield f"`{_text(node.test)}` is {truth}", _setting(node, "test", ast.Constant(truth))
        elif isinstance(node, ast.comprehension) and node.ifs:
            yield f"without `if {_text(node.ifs[0])}`", _setting(node, "ifs", [])
        elif isinstance(node, ast.BinOp):
            for kept in ("left", "right"):
                yield f"`{_text(node)}` is its {kept} half", _becoming(function, node, getattr(node, kept))
        elif isinstance(node, ast.Compare) and (other := _shifted(node.ops[0])) is not None:
            yield f"`{_text(node)}` with the other bound", _setting(node, "ops", [other])
        elif isinstance(node, ast.Call):
            yield from _fields(node, stored)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            yield f"without `{_text(node)}`", _setting(node, "targets", [ast.Name("_", ast.Store())])


def _terms(node: ast.BoolOp) -> Iterator[Change]:
    neutral = isinstance(node.op, ast.And)
    for number, term in enumerate(node.values):
        values: list[ast.expr] = [*node.values]
        values[number] = ast.Constant(neutral)
        yield f"without `{_text(term)}`", _setting(node, "values", values)


def _fields(node: ast.Call, stored: str) -> Iterator[Change]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    for keyword in node.keywords:
        others = [each for each in node.keywords if each is not keyword]
        told = f"`{keyword.arg}={_text(keyword.value)}`"
        nothing = isinstance(keyword.value, ast.Constant) and keyword.value.value is None
        if name in MAKERS and keyword.arg in REQUIRED:
            yield f"{told} is another", _setting(keyword, "value", ast.Constant("another"))
        elif name in MAKERS or name == "replace":
            yield f"without {told}", _setting(node, "keywords", others)
        elif name == "Applied" and nothing:
            yield "deletes nothing", _setting(keyword, "value", ast.Name(stored, ast.Load()))
        elif name == "Refused" and not nothing:
            yield "refuses without the item", _setting(keyword, "value", ast.Constant(None))


def _shifted(op: ast.cmpop) -> ast.cmpop | None:
    """Return the comparison that differs in the bound alone."""
    shifted: dict[type[ast.cmpop], type[ast.cmpop]] = {
        ast.Gt: ast.GtE,
        ast.GtE: ast.Gt,
        ast.Lt: ast.LtE,
        ast.LtE: ast.Lt,
    }
    kind = shifted.get(type(op))
    return None if kind is None else kind()


def _setting(node: ast.AST, field: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, field, value)


def _becoming(function: ast.FunctionDef, old: ast.expr, new: ast.expr) -> Callable[[], None]:
    class Become(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
            if node is old:
                return new
            self.generic_visit(node)
            return node

    return lambda: setattr(function, "body", [Become().visit(statement) for statement in function.body])


def _text(node: ast.AST) -> str:
    return ast.unparse(node)
