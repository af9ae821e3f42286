"""
Every verb as the conditional writes that carry it out: `partitions.rules` once more, in DynamoDB's expressions.

Knows no client. One write for each verb but `Complete` with children, which is one transaction: the end of the
partition under its condition, and each child by an update that fills in only what the item lacks. A child that is
there, as after the other half of a merge, lacks nothing and stays as it is.

Every condition here has a test that fails without it; none is there twice. That an item exists is seen by comparing
one of its attributes wherever one is compared anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from partitions import rules
from partitions.codecs.drafts import Draft
from partitions.codecs.items import GROUP, LEASE, LOCK, SESSION, Codec, known_to, prepared_to
from partitions.codecs.keys import Key, group_key, lease_key, lock_key, session_key
from partitions.codecs.lock_encoding import LOCK_ENCODERS
from partitions.codecs.values import to_flag, to_number, to_text
from partitions.codecs.writes import Operation, Write
from partitions.items import ASKS_MAX
from partitions.lock_verbs import LockVerb
from partitions.positions import END
from partitions.verbs import (
    Acquire,
    Adopt,
    Applied,
    Ask,
    Attempt,
    Beat,
    Child,
    Complete,
    Create,
    Delete,
    Drain,
    Fence,
    LeaseVerb,
    Leave,
    NoteRestore,
    Pause,
    Prepare,
    Raise,
    Register,
    Release,
    Resume,
    SaveCheckpoint,
    SessionVerb,
    SetUp,
    Verb,
)

__all__ = ["codec_of", "key_of", "writes_of"]


def writes_of(group: str, verb: Verb[Any]) -> tuple[Write, ...]:
    """
    Return the writes of a verb: the one on its own item first, then those that belong into one transaction with it.

    Args:
        group: The group whose items are meant.
        verb: What is wanted and on which condition.

    Raises:
        ValueError: a value that DynamoDB cannot hold; the text names it.
    """
    encode: Callable[[str, Any], tuple[Write, ...] | Write] = _ENCODERS[type(verb)]
    written = encode(group, verb)
    return written if isinstance(written, tuple) else (written,)


def codec_of(verb: Verb[Any]) -> Codec[Any]:
    """Return the codec of the kind of item that a verb is about."""
    if isinstance(verb, LeaseVerb):
        return LEASE
    if isinstance(verb, LockVerb):
        return LOCK
    return SESSION if isinstance(verb, SessionVerb) else GROUP


def key_of(group: str, verb: Verb[Any]) -> Key:
    """Return the key of the item that a verb is about."""
    if isinstance(verb, LeaseVerb):
        return lease_key(group, verb.partition)
    if isinstance(verb, LockVerb):
        return lock_key(group, verb.name)
    return session_key(group, verb.session_id) if isinstance(verb, SessionVerb) else group_key(group)


# --- Leases ---------------------------------------------------------------------------------------------------------


def _create(group: str, verb: Create) -> Write:
    child = Child(partition=verb.partition, parents=verb.parents, position=verb.position)
    return _put_if_absent(LEASE, group, rules.born(child))


def _acquire(group: str, verb: Acquire) -> Write:
    draft = Draft(lease_key(group, verb.partition))
    if verb.seen_owner is None:
        draft.needs(f"attribute_not_exists({draft.name('owner')})")
    else:
        draft.equals("owner", to_text(verb.seen_owner))
    draft.equals("token", to_number(verb.seen_token))
    draft.equals("finished", to_flag(False))
    draft.equals("paused", to_flag(False))
    draft.sets("owner", to_text(verb.session_id))
    draft.sets("token", to_number(verb.seen_token + 1))
    draft.sets("seq", to_number(0))
    draft.sets("last_host", to_text(verb.host_id))
    if verb.is_suspect:
        draft.counts("suspects")
    return draft.done(Operation.UPDATE)


def _save_checkpoint(group: str, verb: SaveCheckpoint) -> Write:
    draft = Draft(lease_key(group, verb.partition))
    _next_of_term(draft, verb)
    draft.sets("position", to_text(verb.position))
    if verb.weight is not None:
        draft.sets("weight", to_number(verb.weight))
    if verb.advances:
        draft.removes(draft.name("attempts"))
        draft.removes(draft.name("suspects"))
    if not verb.keeps_prepared:
        draft.removes(draft.name("prepared"))
    return draft.done(Operation.UPDATE)


def _attempt(group: str, verb: Attempt) -> Write:
    draft = Draft(lease_key(group, verb.partition))
    _next_of_term(draft, verb)
    if verb.position is None:
        draft.counts("attempts")
    else:
        draft.sets("position", to_text(verb.position))
        draft.sets("attempts", to_number(1))
        draft.removes(draft.name("suspects"))
        draft.removes(draft.name("prepared"))
    return draft.done(Operation.UPDATE)


def _prepare(group: str, verb: Prepare) -> Write:
    draft = Draft(lease_key(group, verb.partition))
    _next_of_term(draft, verb)
    draft.sets("prepared", prepared_to(verb.prepared))
    return draft.done(Operation.UPDATE)


def _next_of_term(draft: Draft, verb: SaveCheckpoint | Attempt | Prepare) -> None:
    """Need the term to be the sender's, and its last number to be lower; set this one."""
    draft.is_owner(verb.owner, verb.token)
    # The sequence number keeps a duplicate that is delivered late from moving the position back (rule 7).
    draft.needs(f"{draft.name('seq')} < {draft.value('seq', to_number(verb.seq))}")
    draft.sets("seq", to_number(verb.seq))


def _release(group: str, verb: Release) -> Write:
    draft = Draft(lease_key(group, verb.partition))
    draft.is_owner(verb.owner, verb.token)
    draft.removes(draft.name("owner"))
    if verb.position is not None and verb.seq is not None:
        draft.sets("position", to_text(verb.position))
        draft.sets("seq", to_number(verb.seq))
        draft.removes(draft.name("suspects"))
        if not verb.keeps_prepared:
            draft.removes(draft.name("prepared"))
        if verb.attempts is None:
            draft.removes(draft.name("attempts"))
    if verb.attempts is not None:
        draft.sets("attempts", to_number(verb.attempts))
    return draft.done(Operation.UPDATE)


def _complete(group: str, verb: Complete) -> tuple[Write, ...]:
    draft = Draft(lease_key(group, verb.partition))
    draft.is_owner(verb.owner, verb.token)
    draft.removes(draft.name("owner"))
    draft.sets("position", to_text(END))
    draft.sets("finished", to_flag(True))
    for name in ("attempts", "suspects", "prepared"):
        draft.removes(draft.name(name))
    # A transaction has each item once. The first of two children of one name stands, and the parent is there already.
    children = {child.partition: child for child in reversed(verb.children) if child.partition != verb.partition}
    return draft.done(Operation.UPDATE), *(_born(group, child) for child in reversed(children.values()))


def _born(group: str, child: Child) -> Write:
    """Fill in what the child's item lacks: everything or nothing."""
    key = lease_key(group, child.partition)
    draft = Draft(key)
    for name, value in LEASE.to_attributes(group, rules.born(child)).items():
        if name not in key.attributes():
            draft.fills_in(name, value)
    return draft.done(Operation.UPDATE)


def _pause(group: str, verb: Pause) -> Write:
    draft = Draft(lease_key(group, verb.partition))
    draft.equals("token", to_number(verb.seen_token))
    draft.sets("paused", to_flag(True))
    if verb.reason is not None:
        draft.sets(rules.PAUSE_REASON, to_text(verb.reason))
    return draft.done(Operation.UPDATE)


def _resume(group: str, verb: Resume) -> Write:
    draft = Draft(lease_key(group, verb.partition))
    draft.equals("token", to_number(verb.seen_token))
    draft.sets("paused", to_flag(False))
    for name in (rules.PAUSE_REASON, "attempts", "suspects"):
        draft.removes(draft.name(name))
    return draft.done(Operation.UPDATE)


def _raise(group: str, verb: Raise) -> Write:
    draft = Draft(lease_key(group, verb.partition))
    draft.equals("token", to_number(verb.seen_token))
    draft.needs(f"{draft.name('token')} < {draft.value('token', to_number(verb.token))}")
    draft.sets("token", to_number(verb.token))
    return draft.done(Operation.UPDATE)


def _delete(group: str, verb: Delete) -> Write:
    draft = Draft(lease_key(group, verb.partition))
    draft.equals("finished", to_flag(True))
    draft.equals("token", to_number(verb.seen_token))
    return draft.done(Operation.DELETE)


# --- Sessions -------------------------------------------------------------------------------------------------------


def _register(group: str, verb: Register) -> Write:
    registered = rules.apply(None, verb)
    # A session that is not there is always begun; that it is not is the condition of the put.
    assert isinstance(registered, Applied)
    return _put_if_absent(SESSION, group, registered.item)


def _beat(group: str, verb: Beat) -> Write:
    draft = Draft(session_key(group, verb.session_id))
    # A beat never makes the item: a session that was fenced stays dead.
    draft.is_there()
    draft.raises("beat")
    draft.sets("owned", to_number(verb.owned))
    draft.sets("load", to_number(verb.load))
    draft.sets("draining", to_flag(verb.draining))
    draft.sets("sick", to_flag(verb.sick))
    if verb.known is None:
        draft.removes(draft.name("known"))
    else:
        draft.sets("known", known_to(verb.known))
    for path in _ask_paths(draft, dict.fromkeys(verb.handled)):
        draft.removes(path)
    return draft.done(Operation.UPDATE)


def _fence(group: str, verb: Fence) -> Write:
    draft = Draft(session_key(group, verb.session_id))
    draft.equals("beat", to_number(verb.seen_beat))
    return draft.done(Operation.DELETE)


def _leave(group: str, verb: Leave) -> Write:
    draft = Draft(session_key(group, verb.session_id))
    draft.is_there()
    return draft.done(Operation.DELETE)


def _drain(group: str, verb: Drain) -> Write:
    draft = Draft(session_key(group, verb.session_id))
    draft.is_there()
    draft.sets("drain_asked", to_flag(True))
    return draft.done(Operation.UPDATE)


def _ask(group: str, verb: Ask) -> Write:
    draft = Draft(session_key(group, verb.session_id))
    asks = draft.name("asks")
    room = draft.value("room", to_number(ASKS_MAX - len(verb.keys)))
    # One condition in two halves: what the size of nothing is, where there is no session, servers do not agree about.
    draft.needs(f"attribute_exists({asks}) AND size({asks}) <= {room}")
    asker = draft.value("asker", to_text(verb.asker))
    for path in _ask_paths(draft, verb.keys):
        draft.needs(f"attribute_not_exists({path})")
        draft.sets_path(path, asker)
    return draft.done(Operation.UPDATE)


def _ask_paths(draft: Draft, keys: Iterable[str]) -> list[str]:
    # Short names, because 64 of them have to fit into one expression.
    return [f"{draft.name('asks')}.{draft.name(key, f'k{number}')}" for number, key in enumerate(keys)]


# --- The group ------------------------------------------------------------------------------------------------------


def _set_up(group: str, verb: SetUp) -> Write:
    return _put_if_absent(GROUP, group, verb.item)


def _adopt(group: str, verb: Adopt) -> Write:
    draft = Draft(group_key(group))
    draft.equals("source", to_text(verb.seen_source))
    draft.sets("source", to_text(verb.source))
    return draft.done(Operation.UPDATE)


def _note_restore(group: str, verb: NoteRestore) -> Write:
    draft = Draft(group_key(group))
    draft.equals("restore_count", to_number(verb.seen_count))
    draft.raises("restore_count")
    return draft.done(Operation.UPDATE)


def _put_if_absent(codec: Codec[Any], group: str, item: Any) -> Write:
    draft = Draft(codec.key_of(group, item))
    draft.is_absent()
    return draft.done(Operation.PUT, codec.to_attributes(group, item))


_ENCODERS: Final[dict[type, Callable[[str, Any], tuple[Write, ...] | Write]]] = {
    Create: _create,
    Acquire: _acquire,
    SaveCheckpoint: _save_checkpoint,
    Attempt: _attempt,
    Prepare: _prepare,
    Release: _release,
    Complete: _complete,
    Pause: _pause,
    Resume: _resume,
    Raise: _raise,
    Delete: _delete,
    Register: _register,
    Beat: _beat,
    Fence: _fence,
    Leave: _leave,
    Drain: _drain,
    Ask: _ask,
    SetUp: _set_up,
    Adopt: _adopt,
    NoteRestore: _note_restore,
    **LOCK_ENCODERS,
}
