"""
When temporary credentials are refreshed: early, seldom, and never at the cost of a beat.

Knows no client. The SDK tries to refresh within the last fifteen minutes of a life, and lets every call wait for it
within the last ten, however long the life is. So credentials of a shorter life, which some brokers and chained roles
give, are fetched anew for each and every call; and while their provider does not answer, calls fail with credentials in
hand that are good for minutes. Either ends sessions, whose beats have a sixth of a lease duration.

- A quarter of the life before its end the first call that comes refreshes; the others go on with what there is.
- What fails, or is cut off because its call has run out of time, is tried again after a pause, not by the next call.
- Only at the very end, a sixtieth of the life, do calls wait for new ones, and fail without them.

Source: `RefreshableCredentials` of botocore and `AioRefreshableCredentials` of aiobotocore; the names of theirs that
are set here are not public, and the tests of this module fail with a version that changes them.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any, Final

import aioboto3  # type: ignore[import-untyped]  # It has no types.
from aiobotocore.credentials import AioRefreshableCredentials  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]

__all__ = ["pace", "paced_session"]

EARLY_S_MAX: Final = 900.0
"""How long before the end a refresh is first tried, at most: the SDK's own figure."""
EARLY: Final = 1 / 4
PAUSE: Final = 1 / 60
LAST: Final = 1 / 60
"""Parts of the life: from when on it is tried, how long after a try that failed, and from when on calls wait."""
LAST_S_MAX: Final = 60.0
"""Room for clocks that differ: the service decides by its own when a life is over."""


async def paced_session() -> Any:
    """Return a new session of the SDK that finds its credentials as the SDK does, and refreshes them as told here."""
    core = get_session()
    pace(await core.get_credentials())
    return aioboto3.Session(botocore_session=core)


def pace(credentials: Any) -> None:
    """Let credentials refresh as told here; those that never do are left as they are."""
    if not isinstance(credentials, AioRefreshableCredentials):
        return
    fetch = credentials._refresh_using

    async def refresh() -> Any:
        try:
            made = fetch()
            metadata = await made if isawaitable(made) else made
        except BaseException:  # Also where its call was cancelled: the next call must not wait for it in turn.
            _put_off(credentials)
            raise
        _set_windows(credentials, credentials._expiry_datetime(metadata["expiry_time"]))
        return metadata

    credentials._refresh_using = refresh
    if credentials._expiry_time is not None:
        _set_windows(credentials, credentials._expiry_time)


def _set_windows(credentials: Any, expiry_time: Any) -> None:
    life_s = max(0.0, (expiry_time - credentials._time_fetcher()).total_seconds())
    credentials._advisory_refresh_timeout = min(EARLY_S_MAX, life_s * EARLY)
    credentials._mandatory_refresh_timeout = min(LAST_S_MAX, life_s * LAST)
    credentials._pause_s = min(LAST_S_MAX, life_s * PAUSE)


def _put_off(credentials: Any) -> None:
    if credentials._expiry_time is None:
        # There were none yet, so nothing can go on without.
        return
    left_s = (credentials._expiry_time - credentials._time_fetcher()).total_seconds()
    later_s = left_s - credentials._pause_s
    credentials._advisory_refresh_timeout = max(credentials._mandatory_refresh_timeout, later_s)
