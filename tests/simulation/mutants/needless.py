"""
Changes that take away something which turned out not to be needed, each with the reason.

They are judged like the others: one that is caught after all has a reason that is wrong.
"""

from __future__ import annotations

from tests.simulation.mutants.mutation import Mutation

__all__ = ["NEEDLESS"]

NEEDLESS = (
    Mutation(
        name="remove an ask while its release is on its way",
        rule="11",
        file="partitions/held.py",
        old="            if partition in self._acquiring or partition in self.releasing:\n",
        new="            if partition in self._acquiring:\n",
        needless=(
            "A release is sent only when the term has ended here, which is all that rule 11 asks for; whoever asked "
            "waits for the lease, not for the ask, and asks nobody twice."
        ),
    ),
    Mutation(
        name="send an acquire under a session that is over",
        rule="14",
        file="partitions/sessions.py",
        old="        if self.is_busy(partition) or not self.is_valid:\n",
        new="        if self.is_busy(partition):\n",
        needless=(
            "What such an acquire brings has ended before it began, and the lease is free, since its owner has no "
            "session. The owner that is robbed has stopped all the same: its deadline hangs on the ask alone."
        ),
    ),
    Mutation(
        name="count the ask of a draining asker",
        rule="section 6",
        file="partitions/planner.py",
        old="            if asker in living and not _is_draining(living[asker]):\n",
        new="            if asker in living:\n",
        needless=(
            "What counts as a draining session's is placed elsewhere by the same plan, owned or asked for, and a "
            "lease that was released goes back to its last host first."
        ),
    ),
    Mutation(
        name="acquire on the token alone",
        rule="section 4",
        file="partitions/rules.py",
        old="        or lease.owner != verb.seen_owner\n        or lease.token != verb.seen_token\n",
        new="        or lease.token != verb.seen_token\n",
        needless=(
            "A token names its owner: under one token a lease goes from that owner to nobody and never to another. "
            "Where the seen owner has released it meanwhile, the acquire is right, and is not refused."
        ),
    ),
)
