"""
The verbs about locks as conditional writes; see `partitions.codecs.encoding`, which has all the others.

Knows no client. A lock's item is made by an update, as its first acquire: there is no verb that only makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from partitions.codecs.drafts import Draft
from partitions.codecs.items import LOCK, extra_to
from partitions.codecs.keys import lock_key
from partitions.codecs.values import to_flag, to_number, to_text
from partitions.codecs.writes import Operation, Write
from partitions.lock_verbs import AcquireLock, RaiseLock, ReleaseLock

__all__ = ["LOCK_ENCODERS"]


def _acquire(group: str, verb: AcquireLock) -> Write:
    draft = Draft(lock_key(group, verb.name))
    if verb.seen_token is None:
        draft.is_absent()
    else:
        if verb.seen_owner is None:
            draft.needs(f"attribute_not_exists({draft.name('owner')})")
        else:
            draft.equals("owner", to_text(verb.seen_owner))
            if verb.seen_owner != verb.session_id:
                draft.equals("expires", to_flag(True))
        draft.equals("token", to_number(verb.seen_token))
    draft.sets("owner", to_text(verb.session_id))
    draft.sets("token", to_number((verb.seen_token or 0) + 1))
    draft.sets("expires", to_flag(verb.expires))
    draft.sets("holder", to_text(verb.host_id))
    # Numbered, because a placeholder may not have every letter that a name may have.
    for number, (name, value) in enumerate(extra_to(verb.extra, LOCK.fields).items()):
        draft.sets_path(draft.name(name, f"x{number}"), draft.value(f"x{number}", value))
    return draft.done(Operation.UPDATE)


def _release(group: str, verb: ReleaseLock) -> Write:
    draft = Draft(lock_key(group, verb.name))
    draft.is_owner(verb.owner, verb.token)
    draft.removes(draft.name("owner"))
    draft.removes(draft.name("holder"))
    return draft.done(Operation.UPDATE)


def _raise(group: str, verb: RaiseLock) -> Write:
    draft = Draft(lock_key(group, verb.name))
    if verb.seen_token is None:
        draft.is_absent()
    else:
        draft.equals("token", to_number(verb.seen_token))
        draft.needs(f"{draft.name('token')} < {draft.value('token', to_number(verb.token))}")
    draft.sets("token", to_number(verb.token))
    return draft.done(Operation.UPDATE)


LOCK_ENCODERS: Final[Mapping[type, Callable[[str, Any], Write]]] = MappingProxyType(
    {AcquireLock: _acquire, ReleaseLock: _release, RaiseLock: _raise}
)
