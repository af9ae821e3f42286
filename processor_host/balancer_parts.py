"""What the balancer of a host works with, put together once by the host."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from partitions.clocks import Clock
from partitions.events import OnEvent
from partitions.leases import Lease
from partitions.stores.base import Store
from processor_host.discovery import Discovery
from processor_host.settings import HostSettings
from processor_host.weigher import Scales

__all__ = ["BalancerParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerParts:
    """What the balancer of a host works with, whichever session it has."""

    store: Store
    group: str
    clock: Clock
    discovery: Discovery
    on_lease: Callable[[Lease], None]
    """Starts the pump of a term that has just begun."""
    running: Callable[[], Container[str]]
    """The partitions whose processor has not ended."""
    on_try: Callable[[], None]
    """Called after each round, also one that failed: the loop goes round."""
    on_round: Callable[[], None]
    """Called after each round that was finished."""
    settings: HostSettings
    scales: Scales
    """What the partitions of this host weigh."""
    on_event: OnEvent | None

    @property
    def interval_s(self) -> float:
        """Between two rounds, seconds."""
        return self.settings.timings().balance_interval_s

    @property
    def call_timeout_s(self) -> float:
        """How long one call may take, seconds."""
        return self.settings.timings().call_timeout_s
