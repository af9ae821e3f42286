"""
Groups in any state for the tests of the planner, and hosts that act on them, each for itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.lineage import is_eligible
from partitions.planner import plan
from partitions.rules import apply
from partitions.verbs import Acquire, Applied, Ask, Beat, Release
from partitions.weights import LoadRule
from tests.builders import a_lease, a_session

__all__ = [
    "GONE",
    "HOSTS",
    "Crowd",
    "Group",
    "carried_out",
    "groups",
    "is_bound_to_an_operator",
    "is_draining",
    "is_operator",
    "is_taker",
    "owned",
    "steps_of",
]

HOSTS = ("a", "b", "c", "d")
GONE = "gone:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A snapshot."""

    leases: tuple[LeaseItem, ...]
    sessions: tuple[SessionItem, ...]
    listed: frozenset[str] | None = None
    load: LoadRule | None = None

    def targets(self) -> Mapping[str, str | None]:
        return plan(self.leases, self.sessions, listed=self.listed, load=self.load).targets

    def plannable(self) -> tuple[LeaseItem, ...]:
        by_partition = {lease.partition: lease for lease in self.leases}
        return tuple(
            lease
            for lease in self.leases
            if not lease.finished and not lease.paused and is_eligible(lease, by_partition, self.listed)
        )

    def session(self, session_id: str | None) -> SessionItem | None:
        return next((session for session in self.sessions if session.session_id == session_id), None)

    def takers(self) -> tuple[SessionItem, ...]:
        return tuple(session for session in self.sessions if is_taker(session))

    def asked(self, lease: LeaseItem) -> bool:
        return any(ask_key(lease.partition, lease.token) in session.asks for session in self.sessions)


def is_draining(session: SessionItem) -> bool:
    return session.draining or session.drain_asked


def is_taker(session: SessionItem) -> bool:
    return session.capacity > 0 and not is_draining(session)


def is_operator(session: SessionItem) -> bool:
    return session.capacity == 0 and not is_draining(session)


def owned(session_id: str, *numbers: int, token: int = 1) -> list[LeaseItem]:
    """Leases `p-00`, `p-01`, … that the session owns."""
    host_id = session_id.rpartition(":")[0]
    return [a_lease(f"p-{number:02}", owner=session_id, token=token, last_host=host_id) for number in numbers]


@st.composite
def sessions_of_a_group(draw: st.DrawFn) -> tuple[SessionItem, ...]:
    """Up to five sessions, two of which may be lives of one host."""
    names = draw(
        st.lists(st.sampled_from([f"{host}:{life}" for host in HOSTS for life in (1, 2)]), max_size=5, unique=True)
    )
    return tuple(
        a_session(
            name,
            capacity=draw(st.sampled_from([1.0, 1.0, 1.0, 0.1, 0.3, 0.5, 2.0, 0.0])),
            max_leases=draw(st.sampled_from([None, None, None, 0, 1, 2, 4])),
            draining=draw(st.sampled_from([False, False, False, False, True])),
            drain_asked=draw(st.sampled_from([False, False, False, False, True])),
        )
        for name in names
    )


WEIGHTS = st.sampled_from([0.0, 1.0, 1.0, 1.0, 2.0, 3.0, 5.0, 0.5, 0.01, 30.0, 7e9, 1e-9, math.inf, math.nan, -1.0])


@st.composite
def load_rules(draw: st.DrawFn) -> LoadRule:
    """Any threshold, none at all among them, and any number of moves at once."""
    return LoadRule(
        threshold=draw(st.sampled_from([0.0, 0.0, 0.05, 0.1, 0.3, 1.0])), moves_max=draw(st.sampled_from([1, 2, 10]))
    )


@st.composite
def groups(draw: st.DrawFn, *, asks: bool = True, load: bool = False) -> Group:
    """A group in any state."""
    sessions = draw(sessions_of_a_group())
    names = [session.session_id for session in sessions]
    leases: list[LeaseItem] = []
    for number in range(draw(st.integers(min_value=0, max_value=12))):
        owner = draw(st.sampled_from([*names, *names, GONE, None]))
        token = draw(st.integers(min_value=0 if owner is None else 1, max_value=3))
        lease = a_lease(
            f"p-{number:02}",
            owner=owner,
            token=token,
            last_host=draw(st.sampled_from([*HOSTS, "elsewhere"])) if token else None,
            weight=draw(WEIGHTS) if load else 0.0,
        )
        state = draw(st.sampled_from(["open"] * 6 + ["paused", "finished", "child", "child"]))
        if state == "child":
            possible = [*(earlier.partition for earlier in leases), "no-item"]
            parents = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=2, unique=True))
            lease = replace(lease, parents=tuple(parents))
        elif state == "finished":
            lease = replace(lease, owner=None, finished=True)
        else:
            lease = replace(lease, paused=state == "paused")
        leases.append(lease)
    if asks and leases and names:
        sessions = draw(with_asks(sessions, leases))
    listed = draw(st.sampled_from([None, frozenset({"no-item"}), frozenset({"p-00"})]))
    rule = draw(load_rules()) if load else None
    return Group(leases=tuple(leases), sessions=sessions, listed=listed, load=rule)


@st.composite
def with_asks(
    draw: st.DrawFn, sessions: tuple[SessionItem, ...], leases: Sequence[LeaseItem]
) -> tuple[SessionItem, ...]:
    """Let asks stand: for present and past terms, in owners' items and in others', by anybody and by nobody."""
    standing: dict[str, dict[str, str]] = {session.session_id: {} for session in sessions}
    askers = [*standing, *standing, GONE, ""]
    for lease in draw(st.lists(st.sampled_from(leases), max_size=6)):
        at = lease.owner if lease.owner in standing and draw(st.booleans()) else draw(st.sampled_from([*standing]))
        token = max(0, lease.token - draw(st.sampled_from([0, 0, 0, 1])))
        assert at is not None
        standing[at][ask_key(lease.partition, token)] = draw(st.sampled_from(askers))
    return tuple(replace(session, asks=standing[session.session_id]) for session in sessions)


def is_bound_to_an_operator(group: Group, lease: LeaseItem) -> bool:
    session = group.session(lease.owner)
    return session is not None and is_operator(session)


def carried_out(group: Group, partitions: Iterable[str]) -> Group:
    """The group after these leases have gone to their targets, and every ask for their terms was honoured."""
    targets = group.targets()
    leases = {lease.partition: lease for lease in group.leases}
    done: set[str] = set()
    for partition in partitions:
        lease, target = leases[partition], targets[partition]
        asked = group.asked(lease)
        done.add(ask_key(partition, lease.token))
        session = group.session(target)
        if session is not None and (asked or lease.owner != target):
            leases[partition] = replace(lease, owner=target, token=lease.token + 1, last_host=session.host_id)
        elif session is None and asked:
            leases[partition] = replace(lease, owner=None)
    sessions = (
        replace(session, asks={key: asker for key, asker in session.asks.items() if key not in done})
        for session in group.sessions
    )
    return replace(group, leases=tuple(leases.values()), sessions=tuple(sessions))


def steps_of(group: Group) -> list[str]:
    """The partitions that anybody has something to do for."""
    targets = group.targets()
    owners = {lease.partition: lease.owner for lease in group.leases}
    return [partition for partition, target in targets.items() if target is not None and target != owners[partition]]


class Crowd:
    """Hosts that act one after the other on a store, each for itself, as a host's rounds and beats do."""

    def __init__(self, group: Group) -> None:
        self.leases = {lease.partition: lease for lease in group.leases}
        self.sessions = {session.session_id: session for session in group.sessions}
        self._group = group
        self._acquires = Counter({lease.partition: -1 for lease in group.leases if group.session(lease.owner) is None})

    def group(self) -> Group:
        return replace(self._group, leases=tuple(self.leases.values()), sessions=tuple(self.sessions.values()))

    def moves(self) -> int:
        """Acquires, without the first of each lease that was free at the start."""
        return sum(max(0, count) for count in self._acquires.values())

    def take(self, name: str) -> None:
        """A round of the balancer: acquire what is free and mine, ask the owner for the rest of it."""
        for partition, target in self.group().targets().items():
            lease = self.leases[partition]
            if target != name or lease.owner == name:
                continue
            if lease.owner is None or lease.owner not in self.sessions:
                acquire = Acquire(
                    partition=partition,
                    seen_owner=lease.owner,
                    seen_token=lease.token,
                    session_id=name,
                    host_id=self.sessions[name].host_id,
                )
                self._put(apply(lease, acquire))
                self._acquires[partition] += 1
            else:
                ask = Ask(session_id=lease.owner, keys=(ask_key(partition, lease.token),), asker=name)
                self._put(apply(self.sessions[lease.owner], ask))

    def honour(self, name: str) -> None:
        """Release the first of the leases that somebody has asked this owner for."""
        for lease in self.leases.values():
            if lease.owner == name and ask_key(lease.partition, lease.token) in self.sessions[name].asks:
                self._put(apply(lease, Release(partition=lease.partition, owner=name, token=lease.token)))
                return

    def beat(self, name: str) -> None:
        """Remove the asks whose term has ended here."""
        held = {ask_key(one.partition, one.token) for one in self.leases.values() if one.owner == name}
        session = self.sessions[name]
        beat = Beat(
            session_id=name,
            owned=len(held),
            load=0.0,
            draining=session.draining,
            known=None,
            handled=tuple(key for key in session.asks if key not in held),
        )
        self._put(apply(session, beat))

    def _put(self, result: object) -> None:
        if isinstance(result, Applied):
            if isinstance(result.item, LeaseItem):
                self.leases[result.item.partition] = result.item
            elif isinstance(result.item, SessionItem):
                self.sessions[result.item.session_id] = result.item
