"""Mutations of the rules of locks: what a holder and a contender would do wrong."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutation import Mutation

__all__ = ["LOCK_MUTATIONS"]

CONTENDING: Final = "partitions/locks/contending.py"
HOLDING: Final = "partitions/locks/holding.py"
LEASES: Final = "partitions/locks/leases.py"
OWING: Final = "partitions/locks/owing.py"
RIVALS: Final = "partitions/locks/rivals.py"

LOCK_MUTATIONS = (
    Mutation(
        name="lock: go on while nobody has told that time is over",
        rule="5",
        file=LEASES,
        old="        return self._reason is None and self._terms.clock.now_s() < self._until_s()\n",
        new="        return self._reason is None\n",
        likely=("test_owner_of_a_lock_is_frozen",),
    ),
    Mutation(
        name="lock: outlive the session",
        rule="4",
        file="partitions/held.py",
        old="        for do in self._at_end:\n            do()\n",
        new="",
        likely=("test_owner_of_a_lock_is_cut_off", "test_session_is_lost_with_a_lock"),
    ),
    Mutation(
        name="lock: send the release, then end",
        rule="6",
        file=HOLDING,
        old="        lease.end(LockEnd.RELEASED)\n        try:\n            with anyio.CancelScope(shield=True):\n"
        "                error = await self._free(lease)\n",
        new="        try:\n            with anyio.CancelScope(shield=True):\n"
        "                error = await self._free(lease)\n                lease.end(LockEnd.RELEASED)\n",
        likely=("test_release_of_a_lock_is_slow",),
    ),
    Mutation(
        name="lock: compare what was acquired since the look was sent",
        rule="6",
        file=HOLDING,
        old="        for lease in held:\n            self._compare(lease, items.get(lease.name))\n",
        new="        for lease in tuple(self.leases.values()):\n"
        "            self._compare(lease, items.get(lease.name))\n",
        likely=("test_look_at_a_lock",),
    ),
    Mutation(
        name="lock: never look at what is held",
        rule="6",
        file=HOLDING,
        old="        if item is None or (item.owner, item.token) != (lease.owner, lease.token):\n",
        new="        if False:\n",
        likely=("test_lock_is_freed_by_an_operator",),
    ),
    Mutation(
        name="lock: adopt what a refusal shows as one's own",
        rule="8",
        file=CONTENDING,
        old="            if item is None or item.owner != life.session_id:\n                # Somebody was faster.\n"
        "                return None\n",
        new="            if item is None or item.owner != life.session_id:\n                return None\n"
        "            return self._begun(item, life, began_s, item)\n",
        likely=("test_acquire_of_a_lock",),
    ),
    Mutation(
        name="lock: adopt what a read shows as one's own",
        rule="8",
        file=CONTENDING,
        old="        for _ in range(ROUNDS_MAX):\n",
        new="        if item is not None and item.owner == life.session_id:\n"
        "            return self._begun(item, life, began_s, item)\n        for _ in range(ROUNDS_MAX):\n",
        likely=("test_acquire_of_a_lock",),
    ),
    Mutation(
        name="lock: leave what an acquire in doubt has brought",
        rule="8",
        file=HOLDING,
        old="            if step is Next.RELEASE:\n",
        new="            if False:\n",
        likely=("test_try_for_a_lock",),
    ),
    Mutation(
        name="lock: take an acquire in doubt for lost once it is not there",
        rule="8",
        file=OWING,
        old="        return Next.WAIT\n",
        new="        return Next.NOTHING\n",
        likely=("test_try_for_a_lock",),
    ),
    Mutation(
        name="lock: acquire what another task of the session holds",
        rule="8",
        file=CONTENDING,
        old="        if life is None or self._held.is_busy(name):\n",
        new="        if life is None:\n",
        likely=("test_two_tasks",),
    ),
    Mutation(
        name="lock: take it from a session that is there",
        rule="12",
        file=RIVALS,
        old="        return await self.is_gone(lock.owner)\n",
        new="        return True\n",
        likely=("test_lock_of_a_living_owner",),
    ),
    Mutation(
        name="lock: fence after half of the owner's duration",
        rule="12",
        file=RIVALS,
        old="        for name, beat in expired(view, now_s):\n",
        new="        for name, beat in expired(view, now_s + session.duration_s / 2):\n",
        likely=("test_owner_of_a_lock",),
    ),
    Mutation(
        name="lock: take it where the fence was refused",
        rule="12",
        file=RIVALS,
        old="                return False\n            self._looks.pop",
        new="                return True\n            self._looks.pop",
        likely=("test_owner_of_a_lock",),
    ),
    Mutation(
        name="lock: give out a token twice",
        rule="section 4",
        file="partitions/rules.py",
        old="            owner=verb.session_id,\n            token=lock.token + 1,\n",
        new="            owner=verb.session_id,\n            token=max(1, lock.token),\n",
        likely=("test_lock_of_a_living_owner",),
    ),
)
