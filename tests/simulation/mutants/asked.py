"""Mutations of what the asked believe: rules 10, 11 and 16."""

from __future__ import annotations

from tests.simulation.mutants.mutation import Mutation

__all__ = ["ASKED"]

BALANCER = "processor_host/balancer.py"
BEATS = "partitions/beats.py"
HELD = "partitions/held.py"
RULES = "partitions/rules.py"
TABLE = "partitions/table.py"

ASKED = (
    Mutation(
        name="forget an ask for an unknown token",
        rule="10",
        file=HELD,
        old="        left_s = self._table.remaining_s(key)\n",
        new="        left_s = self._table.remaining_s(key) if is_held else self._table._deadlines.pop(key)\n",
        likely=("test_ask_arrives_while",),
    ),
    Mutation(
        name="forget an ask while the acquire awaits its answer",
        rule="10",
        file=HELD,
        old="            if partition in self._acquiring or partition in self.releasing:\n",
        new="            if partition in self.releasing:\n",
        likely=("test_ask_arrives_while",),
    ),
    Mutation(
        name="date the hand-off deadline from the answer",
        rule="10",
        file=BEATS,
        old="previous_sent_s + self._pace.handoff_s * (1 - CLOCK_DRIFT)",
        new="self._clock.now_s() + self._pace.handoff_s * (1 - CLOCK_DRIFT)",
        likely=("test_beat_whose_answer_is_late",),
    ),
    Mutation(
        name="date the hand-off deadline from the beat that showed the ask",
        rule="10",
        file=BEATS,
        old="previous_sent_s + self._pace.handoff_s * (1 - CLOCK_DRIFT)",
        new="sent_s + self._pace.handoff_s * (1 - CLOCK_DRIFT)",
        likely=("test_beat_whose_answer_is_late",),
    ),
    Mutation(
        name="date the hand-off deadline anew with every beat that shows the ask",
        rule="10",
        file=TABLE,
        old="        new = tuple(key for key in asks if key not in self._deadlines)\n",
        new="        new = tuple(asks)\n",
        likely=("test_owner_ignores",),
    ),
    Mutation(
        name="ignore an ask by nobody",
        rule="10",
        file=BEATS,
        old="        new = self._table.show(item.asks, ",
        new="        new = self._table.show({key: asker for key, asker in item.asks.items() if asker}, ",
        likely=("test_ask_by_nobody",),
    ),
    Mutation(
        name="keep a lease whose asker died",
        rule="10",
        file=BALANCER,
        old="        fenced: set[str] = set()\n",
        new=(
            "        fenced: set[str] = set()\n"
            "        for key, asker in session.table._standing.items():\n"
            "            if all(item.session_id != asker for item in sessions):\n"
            "                session.table._deadlines.pop(key, None)\n"
        ),
        likely=("test_asker_dies_and",),
    ),
    Mutation(
        name="do not drain what is asked for",
        rule="10",
        file=HELD,
        old="        if lease is not None and is_held:\n            lease.asked.set()\n",
        new="",
        likely=("test_asker_dies_after",),
    ),
    Mutation(
        name="remove asks without their token",
        rule="11",
        file=RULES,
        old="{key: asker for key, asker in session.asks.items() if key not in handled}",
        new=(
            "{key: asker for key, asker in session.asks.items() "
            'if key.rpartition("@")[0] not in {name.rpartition("@")[0] for name in handled}}'
        ),
        likely=("test_beat_that_removed",),
    ),
    Mutation(
        name="remove asks that the beat was not sent for",
        rule="11",
        file=RULES,
        old="{key: asker for key, asker in session.asks.items() if key not in handled}",
        new="{key: asker for key, asker in session.asks.items() if not handled}",
        likely=("test_beat_that_removed",),
    ),
    Mutation(
        name="remove an ask while its term goes on",
        rule="11",
        file=TABLE,
        old="        return tuple(key for key in self._standing if not _names_open_term(key, is_open))\n",
        new="        return tuple(self._standing)\n",
        likely=("test_owner_ignores", "test_ask_by_nobody"),
    ),
    Mutation(
        name="let blocking code go on under an ask it has not seen",
        rule="16",
        file=TABLE,
        old="        return min(self._valid_until_s, self._deadlines.get(key, math.inf))\n",
        new="        return self._valid_until_s\n",
        likely=("test_owner_ignores",),
    ),
)
