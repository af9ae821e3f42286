"""Mutations of what a holder believes: rules 1 to 9."""

from __future__ import annotations

from tests.simulation.mutants.mutation import Mutation

__all__ = ["HOLDER"]

BEATS = "partitions/beats.py"
CLOCKS = "partitions/clocks.py"
HELD = "partitions/held.py"
LEASES = "partitions/leases.py"
SENDING = "partitions/sending.py"
TERMS = "partitions/terms.py"
LIVES = "processor_host/lives.py"
RULES = "partitions/rules.py"
SESSIONS = "partitions/sessions.py"
STEPS = "processor_host/steps.py"
PROCESSOR = "processor_host/processor.py"

HOLDER = (
    Mutation(
        name="count validity from the answer of the beat",
        rule="1",
        file=BEATS,
        old="            new = self._take(item, sent_s)\n",
        new="            new = self._take(item, answered_s)\n",
        likely=("test_beat_is_answered_just_before",),
    ),
    Mutation(
        name="date a register from its last try",
        rule="1",
        file=BEATS,
        old="            self._last_sent_s = first_sent_s\n",
        new="            first_sent_s = self._last_sent_s = self._clock.now_s()\n",
        likely=("test_register_is_applied_at_once",),
    ),
    Mutation(
        name="lengthen validity by the drift",
        rule="1",
        file=BEATS,
        old="        return self._pace.duration_s * (1 - CLOCK_DRIFT)\n",
        new="        return self._pace.duration_s * (1 + CLOCK_DRIFT)\n",
        likely=("test_beat_is_answered_just_before",),
    ),
    Mutation(
        name="read a clock that stands still while the machine is suspended",
        rule="2",
        file=CLOCKS,
        old='getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)',
        new="time.CLOCK_MONOTONIC",
        likely=("test_machine_is_suspended",),
    ),
    Mutation(
        name="let a beat make its item",
        rule="3",
        file=RULES,
        old="    if session is None:\n        return Refused(current=None)\n    handled = set(verb.handled)\n",
        new=(
            "    if session is None:\n"
            '        session = SessionItem(session_id=verb.session_id, host_id="", duration_s=6.0, handoff_s=18.0)\n'
            "    handled = set(verb.handled)\n"
        ),
        likely=("test_beat_arrives_after",),
    ),
    Mutation(
        name="take the answer of a beat that comes after the session's end",
        rule="3",
        file=BEATS,
        old="            if answered_s >= self._table.valid_until_s:\n",
        new="            if answered_s == math.inf:\n",
        likely=("test_beat_is_applied_to_an_item",),
    ),
    Mutation(
        name="use a session id again",
        rule="4",
        file=LIVES,
        old='session_id=f"{parts.host_id}:{parts.random.getrandbits(64):016x}"',
        new='session_id=f"{parts.host_id}:{id(self):016x}"',
        likely=("test_session_that_ran_out",),
    ),
    Mutation(
        name="leave before the terms have ended",
        rule="4",
        file=SESSIONS,
        old='        self._finish("it left", lost=False)\n',
        new='        self.has_left = await self._beats.leave()\n        self._finish("it left", lost=False)\n',
        likely=("test_host_is_told_to_stop_while",),
    ),
    Mutation(
        name="keep the item of a session that was lost",
        rule="4",
        file=LIVES,
        old="            is_gone = self._keeps_item or session.has_left or await session.leave()\n",
        new="            is_gone = True\n",
        likely=("test_beats_are_applied",),
    ),
    Mutation(
        name="skip the validity check before each record",
        rule="5",
        file=PROCESSOR,
        old="            self.lease.ensure_held()\n            yield record\n",
        new="            yield record\n",
        likely=("test_host_wakes",),
    ),
    Mutation(
        name="believe the event that a term has ended, not the time",
        rule="5",
        file=TERMS,
        old="        return self._reason is None and self._terms.table.is_valid(self.key)\n",
        new="        return self._reason is None\n",
        likely=("test_host_wakes",),
    ),
    Mutation(
        name="hold what an acquire brings after the session's end",
        rule="5",
        file=SESSIONS,
        old="        if not lease.is_held():\n            lease.end(lease.reason_of_time())\n        return lease\n",
        new="        return lease\n",
        likely=("test_acquire_is_answered_when",),
    ),
    Mutation(
        name="let a record go on when its lease has ended",
        rule="6",
        file="processor_host/running.py",
        old="        await self._lease.ended.wait()\n        scope.cancel()\n",
        new="        await anyio.sleep_forever()\n",
        likely=("test_record_is_in_hand",),
    ),
    Mutation(
        name="watch for no moment at which a term ends",
        rule="6",
        file=SESSIONS,
        old="            await wait_until(self._clock, self._held.end_overdue(), self._beats.moved)\n",
        new='            await wait_until(self._clock, float("inf"), self._beats.moved)\n',
        likely=("test_owner_ignores",),
    ),
    Mutation(
        name="release before ending",
        rule="6",
        file=LEASES,
        old=(
            "        self.end(reason)\n"
            "        try:\n"
            "            with anyio.CancelScope(shield=True):\n"
            "                error = await self._sending.free(verb)\n"
            "        finally:\n"
        ),
        new=(
            "        try:\n"
            "            with anyio.CancelScope(shield=True):\n"
            "                error = await self._sending.free(verb)\n"
            "        finally:\n"
            "            self.end(reason)\n"
        ),
        likely=("test_asker_dies_after", "test_fourth_host"),
    ),
    Mutation(
        name="release unshielded",
        rule="6",
        file=LEASES,
        old=(
            "            with anyio.CancelScope(shield=True):\n                error = await self._sending.free(verb)\n"
        ),
        new=(
            "            with anyio.CancelScope(shield=False):\n"
            "                error = await self._sending.free(verb)\n"
        ),
        likely=("test_release_is_cancelled",),
    ),
    Mutation(
        name="end a lease on an older snapshot",
        rule="6",
        file=HELD,
        old="            if lease is None or item.token < lease.token:\n",
        new="            if lease is None:\n",
        likely=("test_page_is_older",),
    ),
    Mutation(
        name="go on under a term that a snapshot shows as over",
        rule="6",
        file=HELD,
        old="            if item.token > lease.token or item.owner != self._session_id:\n",
        new="            if False:\n",
        likely=("test_host_wakes_whose",),
    ),
    Mutation(
        name="drop seq",
        rule="7",
        file=RULES,
        old=(
            "from moving the position back (rule 7).\n"
            "    if lease is None or not _is_owner(lease, verb) or lease.seq >= verb.seq:\n"
        ),
        new=("from moving the position back (rule 7).\n    if lease is None or not _is_owner(lease, verb):\n"),
        likely=("test_checkpoint_arrives_again",),
    ),
    Mutation(
        name="release whatever term goes on",
        rule="8",
        file=RULES,
        old="    return lease.owner == verb.owner and lease.token == verb.token\n",
        new="    return lease.owner == verb.owner\n",
        likely=("test_release_is_applied_long", "test_acquire_that_was_given_up"),
    ),
    Mutation(
        name="adopt instead of acquiring again",
        rule="8",
        file=SESSIONS,
        old="            lease = None\n            if isinstance(result, Applied)",
        new=(
            "            lease = None\n"
            "            result = Applied(item=seen) if seen.owner == self.session_id else result\n"
            "            if isinstance(result, Applied)"
        ),
        likely=("test_acquire_that_was_given_up", "test_answer_of_an_acquire"),
    ),
    Mutation(
        name="send a second acquire while one is on its way",
        rule="8",
        file=HELD,
        old="        return partition in self.leases or partition in self._acquiring or partition in self.releasing\n",
        new="        return partition in self.leases or partition in self.releasing\n",
        likely=("test_lease_is_read_as",),
    ),
    Mutation(
        name="take a release on its way for an acquire whose answer was lost",
        rule="8",
        file=HELD,
        old="        return partition in self.leases or partition in self._acquiring or partition in self.releasing\n",
        new="        return partition in self.leases or partition in self._acquiring\n",
        likely=("test_snapshot_is_read_while",),
    ),
    Mutation(
        name="leave a lease whose acquire was not answered to itself",
        rule="8",
        file=STEPS,
        old='            acquire.append(AcquireStep(lease=lease, reason="resolved"))\n',
        new="            pass\n",
        likely=("test_answer_of_an_acquire",),
    ),
    Mutation(
        name="take a refused checkpoint for a loss at once",
        rule="9",
        file=SENDING,
        old="        if not isinstance(result, Applied) and not self.is_stored(result.current, save):\n",
        new="        if not isinstance(result, Applied):\n",
        likely=("test_answer_of_a_checkpoint",),
    ),
)
