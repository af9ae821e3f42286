"""When temporary credentials are refreshed: by the SDK's own objects, on a clock of the tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from aiobotocore.credentials import (  # type: ignore[import-untyped]  # It has no types.
    AioCredentials,
    AioDeferredRefreshableCredentials,
    AioRefreshableCredentials,
)

from partitions.aws.credentials import pace

__all__: list[str] = []


class Provider:
    """Gives out credentials, numbered, and may fail or never answer."""

    def __init__(self, life_s: float) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.life_s = life_s
        self.asked_at_s: list[float] = []
        self.error: Exception | None = None
        self.hangs = False
        self._began = self.now

    @property
    def now_s(self) -> float:
        return (self.now - self._began).total_seconds()

    def metadata(self) -> dict[str, str]:
        until = self.now + timedelta(seconds=self.life_s)
        number = str(len(self.asked_at_s))
        return {"access_key": number, "secret_key": "s", "token": "t", "expiry_time": until.isoformat()}

    async def fetch(self) -> dict[str, str]:
        self.asked_at_s.append(self.now_s)
        if self.hangs:
            await anyio.sleep_forever()
        if self.error is not None:
            raise self.error
        return self.metadata()

    def credentials(self) -> Any:
        made = AioDeferredRefreshableCredentials(self.fetch, "test", time_fetcher=lambda: self.now)
        pace(made)
        return made

    async def call_each(self, every_s: float, until_s: float, credentials: Any) -> list[str]:
        """Sign a call every so often; return the key of each, or the error's text."""
        used: list[str] = []
        while self.now_s < until_s:
            try:
                used.append((await credentials.get_frozen_credentials()).access_key)
            except RuntimeError as error:
                used.append(str(error))
            self.now += timedelta(seconds=every_s)
        return used


@pytest.mark.parametrize(("life_s", "expected"), [(60.0, [0.0, 46.0, 92.0]), (3600.0, [0.0, 2702.0, 5404.0])])
async def test_credentials_are_fetched_once_in_three_quarters_of_their_life(
    life_s: float, expected: list[float]
) -> None:
    """The SDK fetches those that live for less than a quarter of an hour anew for each call."""
    provider = Provider(life_s)

    used = await provider.call_each(2.0, 2 * life_s, provider.credentials())

    assert provider.asked_at_s == expected
    assert sorted(set(used), key=int) == ["1", "2", "3"]


async def test_credentials_whose_refresh_fails_are_used_to_their_end_and_asked_for_after_pauses() -> None:
    """A provider that does not answer is no reason to stop with credentials in hand that are good."""
    provider = Provider(60.0)
    credentials = provider.credentials()
    await provider.call_each(0.25, 1.0, credentials)
    provider.error = RuntimeError("no answer")

    used = await provider.call_each(0.25, 62.0, credentials)

    # One second between two tries, until the last second, in which every call waits for new ones.
    good = [key for key in used if key == "1"]
    assert len(good) == (59 - 1) * 4 + 1
    assert set(used[len(good) :]) == {"no answer"}
    tries = [at_s for at_s in provider.asked_at_s if 0.0 < at_s <= 59.0]
    assert tries == [45.25 + 1.25 * number for number in range(len(tries))]


async def test_call_that_gives_up_while_a_refresh_hangs_holds_up_no_other() -> None:
    """Each beat in turn would wait for the same provider, until the session is lost."""
    provider = Provider(60.0)
    credentials = provider.credentials()
    await provider.call_each(1.0, 46.0, credentials)
    provider.hangs = True
    with anyio.move_on_after(0.01) as waited:
        await credentials.get_frozen_credentials()
    asked = len(provider.asked_at_s)

    with anyio.fail_after(5):
        frozen = await credentials.get_frozen_credentials()

    assert waited.cancelled_caught
    assert (frozen.access_key, len(provider.asked_at_s)) == ("1", asked)


async def test_refresh_that_succeeds_after_a_failure_brings_new_credentials() -> None:
    """One failure is no verdict."""
    provider = Provider(60.0)
    credentials = provider.credentials()
    await provider.call_each(1.0, 45.0, credentials)
    provider.error = RuntimeError("once")
    await provider.call_each(1.0, 47.0, credentials)
    provider.error = None

    used = await provider.call_each(1.0, 50.0, credentials)

    assert int(used[-1]) == len(provider.asked_at_s) > 1


async def test_credentials_that_come_with_their_first_keys_are_paced_from_these_on() -> None:
    """Those of a container or a process are read before anybody signs."""
    provider = Provider(60.0)
    made = AioRefreshableCredentials.create_from_metadata(provider.metadata(), provider.fetch, "test")
    made._time_fetcher = lambda: provider.now
    pace(made)

    await provider.call_each(1.0, 44.0, made)

    assert provider.asked_at_s == []


async def test_credentials_that_never_expire_are_left_as_they_are() -> None:
    """Static ones have nothing to refresh."""
    made = AioCredentials("key", "secret")

    pace(made)

    assert (await made.get_frozen_credentials()).access_key == "key"
