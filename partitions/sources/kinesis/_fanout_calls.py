"""
The calls of enhanced fan-out: the consumer of a stream, made where it is missing, and subscriptions to its shards.

Knows no position and no record. Each call is sent once. What Kinesis refuses is a `FanoutRefused` with the fault; its
`as_error` is what it is for everybody who cannot act on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

import anyio
from botocore.eventstream import ParserError  # type: ignore[import-untyped]  # It has no types.

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.faults import AWS_ERRORS, Fault, FaultKind, fault_of
from partitions.clocks import Clock, sleep_until
from partitions.errors import SourceMisconfigured, SourceUnavailable
from partitions.retries import Waits
from partitions.sources.kinesis._calls import CallRefused, Calls
from partitions.sources.kinesis._fanout_frames import Events, subscribe

__all__ = ["IN_USE", "Fanout", "FanoutRefused"]

IN_USE: Final = "ResourceInUseException"
"""A consumer of that name is there; or another subscription of that consumer to that shard is."""

CLIENT: Final = ClientSettings(timeout_s=20.0, connections_max=10_000)
"""
Kinesis says something every few seconds, also where there is nothing to read; so long a silence is a broken connection.
Each subscription holds a connection of its own.
"""
ACTIVE_S: Final = 8.0
"""How long one read waits for a new consumer; it takes some seconds, and the next read goes on waiting."""
SUBSCRIBE_S: Final = 8.0
"""How long Kinesis may take to answer a subscription; below what a read may take at all."""
POLLS: Final = Waits(first_s=0.25, most_s=2.0)
"""Between two looks at a consumer that is not active yet; all of an account may look 20 times a second."""

_PASSING: Final = {FaultKind.PASSING, FaultKind.CONFLICT, FaultKind.THROTTLED, FaultKind.OTHER}


class FanoutRefused(Exception):  # An answer of Kinesis that its sender may act on, not a failure.
    """A refusal, inside this package."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault

    def as_error(self) -> SourceUnavailable | SourceMisconfigured:
        """Return the error that a caller of the source gets where nobody here can act on the refusal."""
        kind = SourceUnavailable if self.fault.kind in _PASSING else SourceMisconfigured
        return kind(self.fault.text)


class Fanout:
    """The consumers of one name of the streams of one source. Used from one event loop."""

    def __init__(
        self,
        clients: AwsClients,
        consumer: str,
        *,
        clock: Clock,
        random: Random,
        active_s: float = ACTIVE_S,
        polls: Waits = POLLS,
    ) -> None:
        """
        Name the consumer; nothing is asked or made before the first read.

        Args:
            clients: Give the client "fanout" of Kinesis.
            consumer: The consumer's name: one for each group, for two readers of one consumer cut each other off.
            clock: For the waits.
            random: Spreads them.
            active_s: How long one read waits for a new consumer, seconds; less than a read may take at all.
            polls: Between two looks at it.
        """
        self.consumer = consumer
        self._clients = clients
        self._clock = clock
        self._random = random
        self._active_s = active_s
        self._polls = polls
        self._arns: dict[str, str] = {}
        self._one_at_a_time = anyio.Lock()

    async def subscribe(self, calls: Calls, stream: str, shard: str, start: Mapping[str, Any]) -> Events:
        """
        Subscribe to a shard from a place on; makes the consumer if it is not there.

        Raises:
            FanoutRefused: Kinesis refuses.
            SourceUnavailable: no answer in time, or the consumer is not ready yet.
            SourceMisconfigured: the stream or the right to use it is missing.
        """
        arn = await self._arn(calls, stream)
        client = await self._client()
        try:
            with anyio.fail_after(SUBSCRIBE_S):
                return await subscribe(client, ConsumerARN=arn, ShardId=shard, StartingPosition=start)
        except TimeoutError as error:
            raise SourceUnavailable(f"SubscribeToShard of {stream!r} was not answered in {SUBSCRIBE_S:g} s") from error
        except Exception as error:  # Containment: what a user's own provider of credentials raises is no SDK error.
            raise self.refused(error, "SubscribeToShard", f"shard {shard!r} of stream {stream!r}") from error

    def forget(self, stream: str) -> None:
        """Look the consumer up again at the next subscription: it is gone."""
        self._arns.pop(stream, None)

    async def deregister(self, calls: Calls, stream: str) -> bool:
        """
        Remove the consumer of a stream; false where there is none. Who still reads with it makes it anew.

        Raises:
            SourceUnavailable, SourceMisconfigured: Kinesis refuses.
        """
        stream_arn = await _stream_arn(calls, stream)
        self.forget(stream)
        try:
            await self._send("DeregisterStreamConsumer", StreamARN=stream_arn, ConsumerName=self.consumer)
        except FanoutRefused as refused:
            if refused.fault.kind is FaultKind.MISSING:
                return False
            raise refused.as_error() from refused
        return True

    def refused(self, error: Exception, operation: str, resource: str) -> FanoutRefused:
        """Return what an error of the SDK means."""
        if isinstance(error, ParserError):
            text = f"a message of {operation} on {resource} is broken ({error}); subscribing again"
            return FanoutRefused(Fault(kind=FaultKind.PASSING, code=type(error).__name__, text=text))
        return FanoutRefused(
            fault_of(error, action=f"kinesis:{operation}", resource=resource, region=self._clients.region)
        )

    async def _arn(self, calls: Calls, stream: str) -> str:
        # One task makes the consumer for all; the calls that it takes are allowed a few times a second in an account.
        async with self._one_at_a_time:
            if stream not in self._arns:
                self._arns[stream] = await self._active(await _stream_arn(calls, stream), stream)
            return self._arns[stream]

    async def _active(self, stream_arn: str, stream: str) -> str:
        """Return the ARN of the consumer once it is active; register it if it is not there."""
        until_s = self._clock.now_s() + self._active_s
        attempt = 0
        while True:
            attempt += 1
            try:
                description = await self._described(stream_arn)
                if description is None:
                    await self._register(stream_arn)
                elif description["ConsumerStatus"] == "ACTIVE":
                    arn: str = description["ConsumerARN"]
                    return arn
            except FanoutRefused as refused:
                if refused.fault.kind is not FaultKind.THROTTLED:
                    raise refused.as_error() from refused
                if self._clock.now_s() >= until_s:
                    raise SourceUnavailable(refused.fault.text) from refused
            if self._clock.now_s() >= until_s:
                raise SourceUnavailable(
                    f"consumer {self.consumer!r} of stream {stream!r} is not ACTIVE after {self._active_s:g} s; "
                    "waiting on, it may take a minute"
                )
            await sleep_until(self._clock, self._clock.now_s() + self._polls.after(attempt, self._random))

    async def _described(self, stream_arn: str) -> Mapping[str, Any] | None:
        try:
            answer = await self._send("DescribeStreamConsumer", StreamARN=stream_arn, ConsumerName=self.consumer)
        except FanoutRefused as refused:
            if refused.fault.kind is FaultKind.MISSING:
                return None
            raise
        description: Mapping[str, Any] = answer["ConsumerDescription"]
        return description

    async def _register(self, stream_arn: str) -> None:
        try:
            await self._send("RegisterStreamConsumer", StreamARN=stream_arn, ConsumerName=self.consumer)
        except FanoutRefused as refused:
            # Another host was faster.
            if refused.fault.code != IN_USE:
                raise

    async def _send(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        client = await self._client()
        sends = {
            "DescribeStreamConsumer": client.describe_stream_consumer,
            "RegisterStreamConsumer": client.register_stream_consumer,
            "DeregisterStreamConsumer": client.deregister_stream_consumer,
        }
        try:
            answer: Mapping[str, Any] = await sends[operation](**arguments)
        except Exception as error:  # Containment: what a user's own provider of credentials raises is no SDK error.
            resource = f"consumer {self.consumer!r} of {arguments['StreamARN']!r}"
            raise self.refused(error, operation, resource) from error
        return answer

    async def _client(self) -> Any:
        try:
            return await self._clients.client("fanout", "kinesis", CLIENT)
        except AWS_ERRORS as error:
            raise self.refused(error, "SubscribeToShard", f"consumer {self.consumer!r}").as_error() from error


async def _stream_arn(calls: Calls, stream: str) -> str:
    if stream.startswith("arn:"):
        return stream
    try:
        arn: str = (await calls.describe(stream))["StreamARN"]
    except CallRefused as refused:
        raise refused.as_error() from refused
    return arn
