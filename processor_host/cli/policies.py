"""
What `processor-host run` is told about failures: flags become a failure policy.

Knows no host. The sink of a `dead-letter:` policy is named by a URL, and is opened by the host.
"""

from __future__ import annotations

from processor_host.errors import UserError
from processor_host.failures import DeadLetter, Policy, Retry, Skip, Stop

__all__ = ["ON_FAILURE", "policy_of"]

ON_FAILURE = "retry, stop, skip or dead-letter:URL, as in dead-letter:sqlite:letters.db"
"""What `--on-failure` takes, for people."""

_PREFIX = "dead-letter:"


def policy_of(text: str, *, attempts: int | None, bisect: bool) -> Policy:
    """
    Return the policy that the flags name.

    Args:
        text: As `ON_FAILURE` says.
        attempts: `--failure-attempts`; None for the policy's own default.
        bisect: `--failure-bisect`.

    Raises:
        UserError: the text names none, or the other flags do not go with it.
    """
    if text == "retry":
        if attempts is not None or bisect:
            raise UserError(
                "--failure-attempts and --failure-bisect do nothing with --on-failure retry, which never gives up; "
                "name another policy, or leave them out"
            )
        return Retry()
    more: dict[str, int] = {} if attempts is None else {"attempts": attempts}
    if text == "stop":
        return Stop(bisect=bisect, **more)
    if text == "skip":
        return Skip(bisect=bisect, **more)
    if text.startswith(_PREFIX):
        from processor_host.letters.urls import open_sink

        return DeadLetter(open_sink(text.removeprefix(_PREFIX)), bisect=bisect, **more)
    raise UserError(f"--on-failure {text!r} is no failure policy; use {ON_FAILURE}")
