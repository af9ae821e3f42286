"""
What moves the metrics of locks and singletons; `processor_host.metrics` has the rest, `metrics_list` defines them.

Knows no host. Locks are named by users, in any number, so no series has their names; singletons are few, and known when
the host is put together.
"""

from __future__ import annotations

from collections.abc import Iterable

from partitions.events import Event
from partitions.locks.events import LockAcquired, LockEnd, LockEnded, LockReleased, LockReleaseFailed
from processor_host.events import SingletonEnded, SingletonFailed, SingletonStarted
from processor_host.metrics_list import Families, label_of, word_of

__all__ = ["count_lock", "fill_locks"]

CHANGES = (("acquire", "applied"), ("release", "applied"), ("release", "failed"))


def fill_locks(of: Families, singletons: Iterable[str]) -> None:
    """Make every series, so that a rate can be taken of its first step."""
    for verb, outcome in CHANGES:
        of.lock_changes.labels(of.group, verb, outcome)
    for ended in LockEnd:
        of.locks_ended.labels(of.group, word_of(ended.value))
    for name in singletons:
        of.singleton_running.labels(of.group, label_of(name))
        of.singleton_failures.labels(of.group, label_of(name))


def count_lock(of: Families, event: Event) -> bool:
    """Count an event of a lock or a singleton; False where it is none."""
    group = of.group
    match event:
        case LockAcquired():
            of.lock_changes.labels(group, "acquire", "applied").inc()
            of.locks_held.inc()
        case LockEnded(reason=reason):
            # Each end was preceded by its beginning.
            of.locks_held.dec()
            of.locks_ended.labels(group, word_of(reason.value)).inc()
        case LockReleased():
            of.lock_changes.labels(group, "release", "applied").inc()
        case LockReleaseFailed():
            of.lock_changes.labels(group, "release", "failed").inc()
        case SingletonStarted(singleton=name):
            of.singleton_running.labels(group, label_of(name)).set(1)
        case SingletonEnded(singleton=name):
            of.singleton_running.labels(group, label_of(name)).set(0)
        case SingletonFailed(singleton=name):
            of.singleton_failures.labels(group, label_of(name)).inc()
        case _:
            return False
    return True
