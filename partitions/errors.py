"""
The errors of the library: what happened, which value, what was expected, what to do.

A lost race is a value (`partitions.verbs.Refused`), never one of these. An error here means that a store or a source
cannot be reached, is not what it should be, or that a lease has ended.
"""

from __future__ import annotations

__all__ = [
    "LeaseLost",
    "LockLost",
    "PartitionsError",
    "SourceError",
    "SourceMisconfigured",
    "SourceMismatch",
    "SourceUnavailable",
    "StartsDiffer",
    "StoreError",
    "StoreGone",
    "StoreMisconfigured",
    "StoreUnavailable",
]


class PartitionsError(Exception):
    """The base of every error that this library raises on purpose."""


class LeaseLost(PartitionsError):
    """
    The lease under which the caller works has ended; stop working on the partition and write nothing more for it.

    Raised by `Lease.ensure_held`, by the iteration of a batch and by a checkpoint. `found` and `owner` are what the
    store held instead, or None where the end was seen on this host's own clock.
    """

    def __init__(
        self, partition: str, *, held: int, reason: str, found: int | None = None, owner: str | None = None
    ) -> None:
        self.partition = partition
        self.held = held
        self.reason = reason
        self.found = found
        self.owner = owner
        if found is None:
            text = f"partition {partition!r}: token {held} has ended ({reason}); stop processing it"
        elif found == held:
            text = f"partition {partition!r}: token {held} is no longer owned here ({reason}); stop processing it"
        else:
            text = (
                f"partition {partition!r}: token {held} replaced by {found} (owner {owner!r}, {reason}); "
                "stop processing it"
            )
        super().__init__(text)


class LockLost(LeaseLost):
    """
    The lock under which the caller works has ended; stop what it protects and write nothing more under its token.

    Raised by `LockLease.ensure_held` and `LockLease.guard`.
    """

    def __init__(self, name: str, *, held: int, reason: str) -> None:
        super().__init__(name, held=held, reason=reason)
        self.name = name
        self.args = (f"lock {name!r}: token {held} has ended ({reason}); stop what it protects",)


class StoreError(PartitionsError):
    """The lease store failed; the subclass says whether trying again can help."""


class StoreUnavailable(StoreError):
    """
    A call of the store was not answered, or was answered with a passing fault.

    The write may or may not have been applied. Try again with a growing wait, as long as the session lives.
    """


class StoreMisconfigured(StoreError):
    """The store is missing, denied or of another make; no retry helps. The text names what to change."""


class StoreGone(StoreMisconfigured):
    """The table or the file is not there, or not the one that was opened: nothing that it granted is valid."""


class SourceError(PartitionsError):
    """The source failed; the subclass says whether trying again can help."""


class SourceUnavailable(SourceError):
    """A call of the source failed for now; try again with a growing wait."""


class SourceMisconfigured(SourceError):
    """The source is missing, denied or of another make; no retry helps. The text names what to change."""


class StartsDiffer(SourceMisconfigured):
    """The URL of a source and the settings of a host name different starts; leave one of them out."""


class SourceMismatch(SourceError):
    """The group has leases of another stream, or of one that was since recreated under the same name."""

    def __init__(self, group: str, *, found: str, expected: str) -> None:
        self.group = group
        self.found = found
        self.expected = expected
        super().__init__(
            f"group {group!r} belongs to the stream {expected!r}, but the source is {found!r}; "
            "use another --group, point --source at the group's own stream, "
            "or --adopt-stream if this one has the same records"
        )
