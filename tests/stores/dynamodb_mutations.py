"""
Wrong writes, each by one change to what `partitions.codecs` makes of a verb, to prove that the suite would see it.

Nothing is listed by hand: the suite is run once and every condition and every change that it makes of any verb is noted
by its text; then each is taken out in turn. What stands for the keys of asks is one text, however many there are.
Conditions whose bound matters also get the other bound. Knows no server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from partitions.codecs.encoding import writes_of
from partitions.codecs.writes import Write
from partitions.verbs import Verb

__all__ = ["Mutation", "Recorder", "mutations_of", "mutated"]

Encode = Callable[[str, Verb[Any]], tuple[Write, ...]]

PARTS = ("conditions", "sets", "removes")

BOUNDS = {" < ": " <= ", " <= ": " < "}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change to one text of the writes of one verb."""

    verb: type[Verb[Any]]
    part: str
    """One of `PARTS`, or "children" for the writes beside the verb's own."""
    old: str
    new: str
    """Empty where the text is taken out."""

    @property
    def name(self) -> str:
        change = f"`{self.old}` becomes `{self.new}`" if self.new else f"without `{self.old}`"
        return f"{self.verb.__name__} {self.part}: {change}"


class Recorder:
    """Passes verbs to the codec and notes every text that comes of them."""

    def __init__(self) -> None:
        self.seen: dict[tuple[type[Verb[Any]], str, str], None] = {}

    def __call__(self, group: str, verb: Verb[Any]) -> tuple[Write, ...]:
        own, *children = writes_of(group, verb)
        for part in PARTS:
            for text in getattr(own, part):
                self.seen[type(verb), part, shape(text)] = None
        for child in children:
            assert child.conditions == ()
            assert child.removes == ()
            for text in child.sets:
                self.seen[type(verb), "children", shape(text)] = None
        return own, *children


def shape(text: str) -> str:
    """The text with one name for every key of an ask."""
    return re.sub(r"#k\d+", "#k", text)


def mutations_of(recorder: Recorder) -> Iterator[Mutation]:
    """Every mutation of what was noted; the fields of a child change together, for most of them are a default."""
    with_children = {verb for verb, part, _ in recorder.seen if part == "children"}
    for verb, part, text in recorder.seen:
        if part == "children":
            continue
        yield Mutation(verb=verb, part=part, old=text, new="")
        if part == "conditions":
            for bound, other in BOUNDS.items():
                if bound in text:
                    yield Mutation(verb=verb, part=part, old=text, new=text.replace(bound, other))
    for verb in with_children:
        yield Mutation(verb=verb, part="children", old="all of them", new="")
        yield Mutation(verb=verb, part="children", old="if_not_exists(x, y)", new="y")


def mutated(mutation: Mutation) -> Encode:
    """The codec with one change in it."""

    def encode(group: str, verb: Verb[Any]) -> tuple[Write, ...]:
        own, *children = writes_of(group, verb)
        if type(verb) is not mutation.verb:
            return own, *children
        if mutation.part == "children":
            return own, *([set_anew(child) for child in children] if mutation.new else [])
        conditions, sets, removes = (
            tuple(changed(getattr(own, part), mutation)) if part == mutation.part else getattr(own, part)
            for part in PARTS
        )
        return pruned(replace(own, conditions=conditions, sets=sets, removes=removes)), *children

    return encode


def changed(texts: Iterable[str], mutation: Mutation) -> Iterator[str]:
    for text in texts:
        if shape(text) != mutation.old:
            yield text
        elif mutation.new:
            yield mutation.new


def set_anew(child: Write) -> Write:
    """The child written over one that is there."""
    return replace(child, sets=tuple(re.sub(r"if_not_exists\(.*, (.*)\)", r"\1", text) for text in child.sets))


def pruned(write: Write) -> Write:
    """Without the names and values that no text uses: the request would be refused for them, not for the change."""
    used = set(re.findall(r"[#:]\w+", f"{write.condition} {write.update}"))

    def kept(placeholders: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in placeholders.items() if name in used}

    return replace(write, names=kept(write.names), values=kept(write.values))
