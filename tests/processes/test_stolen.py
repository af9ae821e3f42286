"""A partition goes from a host that has read ahead to one that joins, politely or by force."""

from __future__ import annotations

import time

import pytest

from tests.processes import journal
from tests.processes.dynamodb.tables import repeated
from tests.processes.harness import Group, Host, at_s
from tests.processes.histories import overlaps, stale_starts
from tests.processes.scaling import figure, scaled, tell_factor

__all__: list[str] = []

pytestmark = pytest.mark.processes

D_S = scaled(6.0)
BEAT_S = D_S / 3
RECORD_S = scaled(0.05)
ALONE_S = scaled(repeated(60.0, 12.0))
PREFETCHED = 500
BATCH = 20
HELD_AT = str(int(ALONE_S / RECORD_S) // BATCH * BATCH + BATCH // 2)
"""Where A is by then, or soon after: in the middle of a batch, the rest of which must not follow."""


@pytest.mark.parametrize("end", ["asked", "forced"])
def test_c02_old_owner_hands_out_no_buffered_record_after_its_lease_was_stolen(end: str, any_group: Group) -> None:
    """What was read ahead belongs to the next owner from the end of the term on."""
    group = any_group
    group.create(2)
    group.put(2 * int(HELD_AT) + 2 * PREFETCHED)
    flags = ("--batch-records-max", str(BATCH), "--prefetch-records-max", str(PREFETCHED), "--handoff-s", repr(D_S))
    # A record that cannot be cancelled outlasts the hand-over. On both, for nobody knows which one B will ask for.
    hold, env = group.folder / journal.HOLD, {journal.HELD: HELD_AT} if end == "forced" else {}
    hold.touch()
    first = group.start("a", *flags, lease_duration_s=D_S, record_s=RECORD_S, env=env, log_level="debug")
    group.wait_until(
        "both are handled", lambda: len({each.partition for each in group.journals.ended()}) == 2, group.ready_s
    )
    time.sleep(ALONE_S)
    if end == "forced":
        group.wait_until("both are held", lambda: in_hand(group) == 2, 20)
    other = group.start("b", *flags, lease_duration_s=D_S, record_s=RECORD_S)
    [stolen] = group.wait_until("b has acquired one", lambda: other.named("lease.acquired"), 40)
    hold.unlink()
    name = stolen["partition"]
    group.wait_until("both go on", lambda: is_going_on(group, first, other, name, at_s(stolen)), 20)

    [ended] = [line for line in first.named("lease.ended") if line["partition"] == name]
    after = [
        each
        for each in group.journals.started()
        if (each.pid, each.partition) == (first.pid, name) and each.at_s > at_s(ended)
    ]
    tell_factor()
    figure(
        f"{end}: a's term ended {at_s(ended) - at_s(stolen):+.2f} s after b's acquire (bound {BEAT_S + 1:.2f} s), "
        f"by {ended['reason']}; then a started {len(after)} records"
    )
    assert stolen["reason"] == end
    assert ended["reason"] == ("released" if end == "asked" else "ask deadline")
    assert at_s(ended) <= at_s(stolen) + BEAT_S + 1
    assert after == []
    assert [pair for pair in overlaps(group.intervals()) if pair[0].position != HELD_AT] == []
    assert stale_starts(group.journals.read()) == []


def in_hand(group: Group) -> int:
    """Return how many processors are held."""
    return sum(each.value == HELD_AT for each in group.journals.started())


def is_going_on(group: Group, first: Host, other: Host, name: str, since_s: float) -> bool:
    """Say whether each of them has handled some records of its own since then."""
    done = [(each.pid, each.partition == name) for each in group.journals.ended() if each.at_s > since_s + BEAT_S]
    return min(done.count((first.pid, False)), done.count((other.pid, True))) >= 40
