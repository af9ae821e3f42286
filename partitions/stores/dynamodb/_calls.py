"""
One call of DynamoDB: which client sends it, when it is sent again, and what its failure means to a store.

Knows no item. A call is sent again, after a growing wait with jitter, only where it was certainly not applied: it was
throttled, or a transaction had the item. Where nobody knows, a read is sent once more and a write is not: its sender
compares what is stored (DESIGN rule 9), and has waits of its own. So an outage is met with the sender's tries alone,
and throttling with at most `TRIES_MAX` requests for each of them. The sender's time-out cancels all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import Any, Final, NoReturn

import anyio

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.faults import AWS_ERRORS, Fault, FaultKind, answer_of, fault_of
from partitions.errors import StoreError, StoreGone, StoreMisconfigured, StoreUnavailable
from partitions.retries import Waits, is_cancelled

__all__ = ["BEATS", "READS", "WRITES", "Calls", "ConditionFailed", "code_of"]

BEATS: Final = "beats"
"""The client for a host's own session: nothing else may stand in front of a beat."""

WRITES: Final = "writes"
"""The client for leases, for the group, and for the sessions of others."""

READS: Final = "reads"

CONNECTIONS: Final[Mapping[str, int]] = {
    # A beat, a leave, and what a cancelled call has not given back yet.
    BEATS: 4,
    # All free leases of a share are taken in one round, in parallel; one connection carries about 100 writes a second.
    WRITES: 32,
    # Leases lie under eight keys, which are read at once.
    READS: 16,
}

TRIES_MAX: Final = 6
"""Requests of one call that is throttled or in conflict; five waits of 0.6 s in all, or 1.6 s where throttled."""

TRIES_IN_DOUBT_MAX: Final = 2
"""Requests of one read whose answer was lost; the connection may have been closed while nobody used it."""

_MOST_S: Final = 0.8
_WAITS: Final = {
    FaultKind.THROTTLED: Waits(first_s=0.05, most_s=_MOST_S),
    FaultKind.CONFLICT: Waits(first_s=0.02, most_s=_MOST_S),
    FaultKind.PASSING: Waits(first_s=0.02, most_s=_MOST_S),
}

_GONE: Final = {"ResourceNotFoundException", "TableNotFoundException"}
"""Codes of a table that is not there."""

_UNAVAILABLE: Final = {FaultKind.PASSING, FaultKind.THROTTLED, FaultKind.CONFLICT, FaultKind.OTHER}


class ConditionFailed(Exception):
    """
    The answer to a conditional write whose condition does not hold; never leaves the store.

    `error` is the SDK's, with the stored item in it if the server sent it.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def code_of(error: StoreError) -> str:
    """Return the code of AWS behind an error that `Calls.send` raised; empty where it has none."""
    return str(answer_of(error.__cause__).get("Error", {}).get("Code", ""))


class Calls:
    """Sends calls about one table, from any number of tasks."""

    def __init__(self, clients: AwsClients, table: str, *, timeout_s: float, random: Random) -> None:
        self.table = table
        self._clients = clients
        self._timeout_s = timeout_s
        self._random = random
        self._is_closed = False

    @property
    def region(self) -> str:
        """The region that is used, for messages."""
        return self._clients.region

    async def open(self, uses: Collection[str] = CONNECTIONS) -> None:
        """Make the clients for these uses, so that no first call pays for it."""
        for name in uses:
            try:
                await self._client(name)
            except Exception as error:  # Containment: a region or a profile that is missing, as the SDK says it.
                self._raise(error, self._fault(error, "dynamodb:*"))

    async def close(self) -> None:
        """Close every client. Calls that are under way end with `StoreUnavailable`."""
        self._is_closed = True
        await self._clients.close()

    async def send(
        self, use: str, method: str, request: Mapping[str, Any], *, is_read: bool = False, needs: str | None = None
    ) -> dict[str, Any]:
        """
        Make one call, several times where that is safe.

        Args:
            use: The client: `BEATS`, `WRITES` or `READS`.
            method: The client's method, such as "update_item".
            request: Its arguments.
            is_read: Whether it changes nothing, so that it may be sent again when its answer was lost.
            needs: What every answer has; one without it is not the service's, and nobody knows what became of the call.

        Returns:
            The answer.

        Raises:
            ConditionFailed: a condition does not hold.
            StoreUnavailable, StoreMisconfigured: as the contract says.
        """
        action = "dynamodb:" + method.title().replace("_", "")
        attempt = 0
        while True:
            attempt += 1
            try:
                client = await self._client(use)
                answer: dict[str, Any] = await getattr(client, method)(**request)
            except Exception as error:  # Containment: a user's provider of credentials may raise anything in here.
                if self._is_closed:
                    raise self._closed(action) from error
                fault = self._fault(error, action)
                if not self._may_repeat(fault.kind, attempt, is_read=is_read):
                    self._raise(error, fault)
                pause_s = _WAITS[fault.kind].after(attempt, self._random)
            except anyio.get_cancelled_exc_class() as error:
                if is_cancelled():
                    raise
                if self._is_closed:
                    # Whoever waited for a connection.
                    raise self._closed(action) from error
                # Something that calls share inside the SDK, such as a look-up of the address. Passed on it would look
                # like a cancellation of the caller: one of several reads would end without a word, its items missing.
                raise StoreUnavailable(f"{self._named(action)}: what the call waited for was cancelled") from error
            else:
                if needs is not None and needs not in answer:
                    raise StoreUnavailable(f"{self._named(action)}: the answer has no {needs!r}; see what has sent it")
                return answer
            await anyio.sleep(pause_s)

    async def pause(self, attempt: int) -> None:
        """Wait as after a throttled attempt, where an answer said that a part was throttled."""
        await anyio.sleep(_WAITS[FaultKind.THROTTLED].after(attempt, self._random))

    def _named(self, action: str) -> str:
        return f"{action} on table {self.table!r} in {self.region}"

    def _closed(self, action: str) -> StoreUnavailable:
        return StoreUnavailable(f"{self._named(action)}: the store was closed meanwhile; open it again")

    async def _client(self, name: str) -> Any:
        settings = ClientSettings(timeout_s=self._timeout_s, connections_max=CONNECTIONS[name])
        return await self._clients.client(name, "dynamodb", settings)

    def _fault(self, error: Exception, action: str) -> Fault:
        return fault_of(error, action=action, resource=f"table {self.table!r}", region=self.region)

    @staticmethod
    def _may_repeat(kind: FaultKind, attempt: int, *, is_read: bool) -> bool:
        if kind in (FaultKind.THROTTLED, FaultKind.CONFLICT):
            return attempt < TRIES_MAX
        return kind is FaultKind.PASSING and is_read and attempt < TRIES_IN_DOUBT_MAX

    @staticmethod
    def _raise(error: Exception, fault: Fault) -> NoReturn:
        if fault.kind is FaultKind.CONDITION:
            raise ConditionFailed(error) from error
        if fault.kind is FaultKind.OTHER and not isinstance(error, AWS_ERRORS):
            # Not a failure of the call but a fault of this program; it must not look like an outage.
            raise error
        kind: type[StoreError] = StoreUnavailable if fault.kind in _UNAVAILABLE else StoreMisconfigured
        raise (StoreGone if fault.code in _GONE else kind)(fault.text) from error
