"""
Errors that a user can mend: each is one line that names the value, what was expected and the remedy.

They carry the exit status of the command line. The library's own errors (`partitions.errors`) are not among them.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = ["NotThereError", "SettingsError", "UserError", "only_error"]


class UserError(ValueError):
    """What a user gave cannot be used; the text says what to give instead. Nothing was changed."""

    exit_status: ClassVar[int] = 2


class SettingsError(UserError):
    """
    Settings that cannot work, or not together.

    The text has one line for each problem, so that all of them can be mended at once.
    """


class NotThereError(UserError):
    """A store or source that is named is not there, or denied."""

    exit_status: ClassVar[int] = 3


def only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what a task group wraps, where it is one exception: the caller knows nothing of the tasks."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
