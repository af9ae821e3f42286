"""
What a user chose about the handling of records, checked as a whole before anything starts.

Knows no host. What only a processor's factory knows is checked when it makes its first processor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import anyio

from processor_host.errors import SettingsError
from processor_host.failures import Policy, Retry, check_policy
from processor_host.kinds import ProcessorFactory, factory_of, handles_records, misfit
from processor_host.middleware import Middleware, check_middleware
from processor_host.settings import HostSettings
from processor_host.sinks import Sinks

__all__ = ["Handling", "handling_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How one host handles records."""

    factory: ProcessorFactory
    policy: Policy
    middleware: tuple[Middleware, ...]
    """The outermost first."""
    threads: anyio.CapacityLimiter
    sinks: Sinks


def handling_of(
    processor: object, settings: HostSettings, *, on_failure: Policy | None, middleware: Iterable[Middleware]
) -> Handling:
    """
    Check what a user gave.

    Raises:
        SettingsError: it is no processor, no policy or no middleware, or the settings do not fit the processor.
    """
    factory = factory_of(processor)
    is_single = handles_records(processor)
    if is_single is not None and (
        problem := misfit(
            handles_records=is_single, checkpoint=settings.checkpoint, concurrency=settings.concurrency
        )
    ):
        raise SettingsError(problem)
    policy = Retry() if on_failure is None else check_policy(on_failure)
    if settings.checkpoint == "manual" and not isinstance(policy, Retry) and policy.bisect:
        raise SettingsError(
            f"on_failure={type(policy).__name__}(bisect=True) needs checkpoint='automatic': with checkpoint='manual' a "
            "failed batch is read again, together with all that was not checkpointed before it"
        )
    return Handling(
        factory=factory,
        policy=policy,
        middleware=check_middleware(middleware),
        threads=anyio.CapacityLimiter(settings.threads_max),
        sinks=Sinks(),
    )
