"""Mutations of what an observer and an asker may do, and of what surrounds them: rules 12 to 15, sections 4 and 6."""

from __future__ import annotations

from tests.simulation.mutants.mutation import Mutation

__all__ = ["BESIDE", "OBSERVER"]

ASKER = "processor_host/asker.py"
BALANCER = "processor_host/balancer.py"
DISCOVERY = "processor_host/discovery.py"
LINEAGE = "partitions/lineage.py"
LIVENESS = "partitions/liveness.py"
PLANNER = "partitions/planner.py"
PUMP = "processor_host/pump.py"
READS = "processor_host/reads.py"
RULES = "partitions/rules.py"

OBSERVER = (
    Mutation(
        name="fence without the beat condition",
        rule="12",
        file=RULES,
        old="    if session is None or session.beat != verb.seen_beat:\n",
        new="    if session is None:\n",
        likely=("test_fence_races",),
    ),
    Mutation(
        name="fence a session at first sight",
        rule="12",
        file=LIVENESS,
        old="            seen[session.session_id] = _fresh(session, now_s)\n",
        new="            seen[session.session_id] = _fresh(session, now_s if before else -math.inf)\n",
        likely=("test_newcomer",),
    ),
    Mutation(
        name="fence after half the duration",
        rule="12",
        file=LIVENESS,
        old="    return seen.since_s + seen.duration_s * (1 + CLOCK_DRIFT)\n",
        new="    return seen.since_s + seen.duration_s * 0.5\n",
        likely=("test_fence_races", "test_beat_is_answered_just"),
    ),
    Mutation(
        name="observe from the question, not from the answer",
        rule="12",
        file=BALANCER,
        old="        sessions = await call(\n            lambda: parts.store.read_sessions(",
        new=(
            "        asked_s = parts.clock.now_s()\n"
            "        sessions = await call(\n            lambda: parts.store.read_sessions("
        ),
        also=(
            (
                "observe(self._view, sessions, parts.clock.now_s())",
                "observe(self._view, sessions, max(self._view.at_s, asked_s))",
            ),
        ),
        likely=("test_look_is_long",),
    ),
    Mutation(
        name="read sessions before leases",
        rule="13",
        file=BALANCER,
        old="        read = await call(lambda: parts.store.read_leases(",
        new=(
            "        await self._look_at_sessions(session, consistent=True)\n"
            "        read = await call(lambda: parts.store.read_leases("
        ),
        also=(
            (
                "        session.compare(leases.values())\n"
                "        await self._look_at_sessions(session, consistent=True)\n",
                "        session.compare(leases.values())\n",
            ),
        ),
        likely=("test_host_starts_between",),
    ),
    Mutation(
        name="plan with a read of the sessions that may be stale",
        rule="13",
        file=BALANCER,
        old=(
            "        session.compare(leases.values())\n        await self._look_at_sessions(session, consistent=True)\n"
        ),
        new=(
            "        session.compare(leases.values())\n"
            "        await self._look_at_sessions(session, consistent=False)\n"
        ),
        likely=("test_look_that_may_be_stale",),
    ),
    Mutation(
        name="force after half the hand-off",
        rule="14",
        file=ASKER,
        old="        force_at_s = self._clock.now_s() + owner.handoff_s * (1 + CLOCK_DRIFT)\n",
        new="        force_at_s = self._clock.now_s() + owner.handoff_s * 0.5\n",
        likely=("test_owner_ignores",),
    ),
    Mutation(
        name="wait from when the ask was sent",
        rule="14",
        file=ASKER,
        old=(
            "            result = await call(partial(self._store.submit, self._group, verb), self._call_timeout_s)\n"
            "            if isinstance(result, Applied):\n"
            "                self.follow(free, owner)\n"
        ),
        new=(
            "            self.follow(free, owner)\n"
            "            result = await call(partial(self._store.submit, self._group, verb), self._call_timeout_s)\n"
            "            if isinstance(result, Applied):\n"
        ),
        likely=("test_ask_is_written_while",),
    ),
    Mutation(
        name="wait one's own hand-off, not the owner's",
        rule="14",
        file=ASKER,
        old="        force_at_s = self._clock.now_s() + owner.handoff_s * (1 + CLOCK_DRIFT)\n",
        new="        force_at_s = self._clock.now_s() + 18 * self._call_timeout_s * (1 + CLOCK_DRIFT)\n",
        likely=("test_owner_is_set",),
    ),
    Mutation(
        name="acquire on the owner alone",
        rule="14",
        file=RULES,
        old="        or lease.token != verb.seen_token\n        or lease.finished\n",
        new="        or lease.finished\n",
        likely=("test_acquire_by_force",),
    ),
    Mutation(
        name="force whatever term goes on by then",
        rule="14",
        file=ASKER,
        old="        if item is None or item.token != entry.lease.token or item.paused or item.finished:\n",
        new="        if item is None or item.paused or item.finished:\n",
        likely=("test_asker_is_full",),
    ),
    Mutation(
        name="let one odd error of a lease end the host",
        rule="15",
        file=BALANCER,
        old="                except Exception as error:  # Containment: what is odd about one lease",
        new="                except StoreError as error:  # Containment: what is odd about one lease",
        likely=("test_call_for_one",),
    ),
    Mutation(
        name="give up a partition whose processor fails",
        rule="15",
        file=PUMP,
        old="                await self._pause(ended)\n                continue\n",
        new="                await self._pause(ended)\n                return Outcome.DRAINED\n",
        likely=("test_processor_of_one",),
    ),
)

BESIDE = (
    Mutation(
        name="acquire what is paused",
        rule="section 4",
        file=RULES,
        old="        or lease.finished\n        or lease.paused\n",
        new="        or lease.finished\n",
        likely=("test_partition_is_paused_between",),
    ),
    Mutation(
        name="create from a listing that is older than the lease read",
        rule="section 4",
        file=DISCOVERY,
        old="        missing = [info for info in await self._list() if info.partition not in known]\n",
        new="        missing = [info for info in infos if info.partition not in known]\n",
        likely=("test_partition_finishes",),
    ),
    Mutation(
        name="begin a child before its parents have ended",
        rule="section 6",
        file=LINEAGE,
        old="    if lease.token > 0 or not lease.parents:\n",
        new="    if lease is not None:\n",
        likely=("test_children_are_merged",),
    ),
    Mutation(
        name="plan a lease that is asked for as its owner's",
        rule="section 6",
        file=PLANNER,
        old="                    holders[lease.partition] = asker\n",
        new="                    pass\n",
        likely=("test_owner_ignores", "test_operators_reset"),
    ),
    Mutation(
        name="count the ask of a full asker",
        rule="section 6",
        file=PLANNER,
        old="                if most is None or counts[asker] < most:\n",
        new="                if True:\n",
        likely=("test_asker_is_full",),
    ),
    Mutation(
        name="do not read when others know other leases",
        rule="section 6",
        file=READS,
        old='        "others know more": any(known != evidence.known for known in evidence.others_known),\n',
        new="",
        likely=("test_parents_owner",),
    ),
    Mutation(
        name="read all leases in every round where one host knows others",
        rule="section 6",
        file=READS,
        old="        pause_s = interval_s if before is None or mended else min(audit_s, 2 * before.pause_s)\n",
        new="        pause_s = interval_s\n",
        likely=("test_main_loop",),
    ),
    Mutation(
        name="do not read when a session comes or goes",
        rule="section 6",
        file=READS,
        old='        "sessions changed": evidence.signature != state.signature,\n',
        new="",
        likely=("test_partition_is_paused",),
    ),
)
