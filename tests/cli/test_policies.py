"""
The flags of `run` about failures, the end of a replay on standard output, and the exit status of a sink that is away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from processor_host.cli.errors import exit_status_of
from processor_host.cli.policies import policy_of
from processor_host.cli.run import print_handled
from processor_host.errors import UserError
from processor_host.events import ReplayDone
from processor_host.failures import DeadLetter, Retry, Skip, Stop
from processor_host.letters.base import LettersUnavailable

__all__: list[str] = []


@pytest.mark.parametrize(
    ("text", "more", "expected"),
    [
        ("retry", {}, Retry()),
        ("stop", {}, Stop()),
        ("stop", {"attempts": 2, "bisect": True}, Stop(attempts=2, bisect=True)),
        ("skip", {"attempts": 7}, Skip(attempts=7)),
    ],
)
def test_flags_name_a_policy_and_leave_its_defaults(text: str, more: dict[str, Any], expected: object) -> None:
    """What is not given is the policy's own to say."""
    assert policy_of(text, **({"attempts": None, "bisect": False} | more)) == expected


def test_flag_of_dead_letters_names_the_sink_by_its_url(tmp_path: Path) -> None:
    """The same URL as `dead-letters list` takes."""
    policy = policy_of(f"dead-letter:sqlite:///{tmp_path}/letters.db", attempts=3, bisect=True)

    assert isinstance(policy, DeadLetter)
    assert (policy.attempts, policy.bisect, policy.sink.url.endswith("letters.db")) == (3, True, True)


@pytest.mark.parametrize(
    ("text", "more", "expected"),
    [
        ("ignore", {}, "--on-failure 'ignore' is no failure policy; use retry, stop, skip or dead-letter:URL"),
        ("retry", {"attempts": 3}, "--failure-attempts and --failure-bisect do nothing with --on-failure retry"),
        ("retry", {"bisect": True}, "--failure-attempts and --failure-bisect do nothing with --on-failure retry"),
        ("dead-letter:letters", {}, "names no sink of dead letters"),
        ("skip", {"attempts": 0}, "on_failure=Skip(attempts=0): expected a whole number, at least 1"),
    ],
)
def test_flags_that_name_no_policy_are_refused_with_what_would(text: str, more: dict[str, Any], expected: str) -> None:
    """A policy that was mistyped must not become the default in silence."""
    with pytest.raises(UserError) as caught:
        policy_of(text, **({"attempts": None, "bisect": False} | more))

    assert expected in str(caught.value)


def test_end_of_a_replay_is_printed_for_each_partition_and_in_all(capsys: pytest.CaptureFixture[str]) -> None:
    """A script compares it with what it expected."""
    print_handled(ReplayDone(partitions=("p0", "p1"), handled=(12, 30)))

    assert capsys.readouterr().out == "p0\t12\np1\t30\nhandled 42 records of 2 partitions\n"


def test_sink_that_is_away_ends_a_command_as_a_store_that_is_away_does() -> None:
    """3: not there or denied. Nothing that the user typed is wrong."""
    assert exit_status_of(LettersUnavailable("sqs://letters: no answer")) == 3
