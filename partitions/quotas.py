"""
Quotas: how many leases each session should own.

Knows no lease and no ask: numbers in, numbers out. Exact integers throughout, so that every host gets the same result.

Theory: every session is entitled to λ · capacity leases, at most `max_leases`, with the one λ at which the
entitlements add up to the total: a session that its maximum holds back is fixed there, and what it cannot take raises λ
for the rest. Entitlements are rarely whole, so every other session gets its own rounded down, and the leases left over
go, one each, to sessions whose entitlement is not whole. Hence a quota is less than one away from its entitlement, and
two sessions of equal capacity that no maximum holds back differ by one at most.

Who gets a lease that is left over decides how many leases must move. First come those who hold more than their rounded
entitlement: each of them then gives one lease less away, anybody else gives away nothing either way, so Σ max(0, held −
quota) is the least possible. Among these the larger remainder goes first, and where capacities are equal, whoever holds
most. For the others what they hold does not matter: they are filling up, and an order that followed it would
change while they do, so that hosts would race for the same leases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Share", "quotas", "whole_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one session brings to the division."""

    session_id: str
    capacity: float
    """Its weight against the others'; finite and above 0."""
    max_leases: int | None
    held: int
    """How many leases count as its own at present."""


def quotas(total: int, shares: Iterable[Share]) -> dict[str, int]:
    """
    Divide `total` leases.

    Args:
        total: How many leases there are to own.
        shares: One for each session that may own any, in any order.

    Returns:
        The quota by session id. The quotas add up to `total`, or to less where every session is at its maximum.
    """
    filling = list(shares)
    weights = whole_weights({share.session_id: share.capacity for share in filling})
    result: dict[str, int] = {}
    left = total
    while True:
        weight_sum = sum(weights[share.session_id] for share in filling)
        # `max_leases <= entitlement`, multiplied out. Fixing one only raises the entitlement of the others, so none
        # has to be let go again.
        full = [
            share
            for share in filling
            if share.max_leases is not None and share.max_leases * weight_sum <= left * weights[share.session_id]
        ]
        if not full:
            break
        for share in full:
            result[share.session_id] = max(0, share.max_leases or 0)
        left -= sum(result[share.session_id] for share in full)
        filling = [share for share in filling if share.session_id not in result]
    if filling:
        result |= _rounded(left, filling, weights)
    return result


def _rounded(total: int, shares: list[Share], weights: dict[str, int]) -> dict[str, int]:
    """Round the entitlements of sessions that no maximum holds back."""
    weight_sum = sum(weights[share.session_id] for share in shares)
    result: dict[str, int] = {}
    over: list[tuple[int, int, str]] = []
    others: list[tuple[int, str]] = []
    for share in shares:
        whole, remainder = divmod(total * weights[share.session_id], weight_sum)
        result[share.session_id] = whole
        if remainder and share.held > whole:
            over.append((-remainder, -share.held, share.session_id))
        else:
            others.append((-remainder, share.session_id))
    # The remainders add up to less than one for each that has one, so nobody without a remainder gets a turn.
    takers = [session_id for *_, session_id in sorted(over)] + [session_id for _, session_id in sorted(others)]
    for session_id in takers[: total - sum(result.values())]:
        result[session_id] += 1
    return result


def whole_weights(capacities: Mapping[str, float]) -> dict[str, int]:
    """
    Turn finite capacities into integers of the same proportions.

    Through their decimal text: 0.3 is to be three times 0.1, as its user wrote it, which the binary values are not.
    """
    exact = {session_id: Fraction(repr(capacity)) for session_id, capacity in capacities.items()}
    scale = math.lcm(*(fraction.denominator for fraction in exact.values()))
    return {session_id: int(fraction * scale) for session_id, fraction in exact.items()}
