"""
What a mutation is: the rule it breaks, and one text of one module that becomes another.

It runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mutation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One wrong product, or one that is right for a reason that is given."""

    name: str
    """What it does wrong, in a few words."""
    rule: str
    """The rule of DESIGN section 5 that it breaks; "section 4" or "section 6" for what these promise."""
    file: str
    """Path of the module, from the root of the tree."""
    old: str
    """The text that is there, exactly once."""
    new: str
    also: tuple[tuple[str, str], ...] = ()
    """Further changes of the same module, as old and new, where one alone would not make sense."""
    likely: tuple[str, ...] = ()
    """Beginnings of the names of schedules that are played first: those that are about this."""
    needless: str = ""
    """Why nothing can catch it, where what it takes away is not needed."""

    def applied_to(self, text: str) -> str:
        """
        Return the module's text with the change.

        Raises:
            ValueError: `old` is not there exactly once, or nothing would change.
        """
        for old, new in ((self.old, self.new), *self.also):
            count = text.count(old)
            if count != 1 or old == new:
                raise ValueError(
                    f"mutation {self.name!r}: its text is {count} times in {self.file}, expected once; "
                    f"give it the words that stand there now: {old!r}"
                )
            text = text.replace(old, new)
        return text
