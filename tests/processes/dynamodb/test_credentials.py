"""Credentials that run out while a host runs: C38."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.processes.dynamodb.lives import ShortLives, short_lives
from tests.processes.dynamodb.tables import TableGroup, losses, repeated
from tests.processes.scaling import figure, scaled, tell_factor
from tests.proxy import Effect, Fault

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

D_S = scaled(6.0)
LIFE_S = scaled(60.0)
LIVES = repeated(10, 3)
"""Ten minutes in full; a fifth of that would leave no room for one refresh that fails."""
RUN_S = LIVES * LIFE_S
REFRESH = "AssumeRoleWithWebIdentity"


@pytest.fixture
def lives(moto_group: TableGroup) -> Iterator[ShortLives]:
    """STS, through the proxy."""
    with short_lives(moto_group.proxy.url, LIFE_S) as made:
        yield made


def test_c38_credentials_that_are_refreshed_lose_nothing_and_those_that_are_not_end_all_with_a_word(
    moto_group: TableGroup, lives: ShortLives
) -> None:
    """Keys that were copied once end with their life; a refresh that failed once must be tried again."""
    group = moto_group
    group.create(4)
    group.put(int(RUN_S / 0.5))
    group.proxy.rules.add(Fault(effect=Effect.EXPIRE, when=lives.is_expired))
    host = group.start("a", lease_duration_s=D_S, record_s=0.5, log_level="debug", env=lives.environment(group.folder))
    group.wait_balanced([host])
    group.wait_until("every processor is at work", lambda: len({e.partition for e in group.journals.ended()}) == 4, 20)
    tokens = {name: held.token for name, held in group.leases.held().items()}
    time.sleep(RUN_S / 2)
    failed = Fault(effect=Effect.DENY, operation=REFRESH, times=1)
    with group.proxy.rules.applied(failed):
        time.sleep(RUN_S / 2)
        assert group.proxy.rules.hits(failed) == 1
    after = group.leases.held()
    opened = [each for each in group.journals.read() if each.act in ("opened", "closed")]
    lost = losses(host)
    given, calls = lives.given, group.proxy.count() - group.proxy.count(REFRESH)

    with group.proxy.rules.applied(Fault(effect=Effect.EXPIRE, operation=REFRESH)):
        stopped_s = time.monotonic()
        group.wait_until("every term has ended", lambda: len(host.named("lease.ended")) == 4, LIFE_S + D_S + 5)
        # Those that it has are good to their end.
        ended_s = time.monotonic() - max(stopped_s, lives.last_until_s)

    tell_factor()
    figure(f"{given} credentials for {calls} calls in {RUN_S:.0f} s, each with a life of {LIFE_S:.0f} s")
    figure(f"every term ended {ended_s:.2f} s after the last credentials had expired (bound {D_S:.2f} s)")
    assert lost == []
    assert len(opened) == 4
    assert {name: (held.host, held.token) for name, held in after.items()} == {n: ("a", t) for n, t in tokens.items()}
    assert ended_s <= D_S
    assert [line for line in host.named("beat.failed") if "the credentials have expired" in line["error"]]
