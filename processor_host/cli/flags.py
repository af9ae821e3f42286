"""
The flags of `run` that are settings of a host: one for each field of `HostSettings`, made from the fields.

Knows nothing of what a setting means; its docstring is the help, and `processor_host.settings_text` reads the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

import click

from processor_host.settings import HostSettings
from processor_host.settings_text import environment_name, flag_name, setting_docs

__all__ = ["given_settings", "settings_flags"]

F = TypeVar("F", bound=Callable[..., Any])

SEVERAL: Final = ("start", "until")
"""Settings that may name several partitions, one flag each."""

_NAME: Final = "setting_{}"
"""The argument of a flag, apart from those of the command's own options."""


def settings_flags(command: F) -> F:
    """Give a command a flag for each setting; `given_settings` takes their texts out of its arguments."""
    docs = setting_docs()
    for field in reversed(fields(HostSettings)):
        # The first sentence says what it is; the page about settings says the rest.
        sentence = re.split(r"(?<=\.) ", docs[field.name])[0].removesuffix(".")
        if isinstance(field.default, bool):
            command = click.option(
                flag_name(field.name),
                _NAME.format(field.name),
                is_flag=True,
                flag_value="true",
                default=None,
                help=f"{sentence}.  [{environment_name(field.name)}=true]",
            )(command)
            continue
        default = "" if field.default is None else f"; default {field.default}"
        if field.name in SEVERAL:
            command = click.option(
                flag_name(field.name),
                _NAME.format(field.name),
                metavar="TEXT",
                multiple=True,
                help=f"{sentence}{default}; may be given several times.  [{environment_name(field.name)}]",
            )(command)
            continue
        command = click.option(
            flag_name(field.name),
            _NAME.format(field.name),
            metavar="TEXT" if isinstance(field.default, str) or field.name == "host_id" else "NUMBER",
            help=f"{sentence}{default}.  [{environment_name(field.name)}]",
        )(command)
    return command


def given_settings(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each setting that was given as a flag."""
    given = {field.name: arguments[_NAME.format(field.name)] for field in fields(HostSettings)}
    return {
        name: ",".join(text) if isinstance(text, tuple) else text
        for name, text in given.items()
        if text is not None and text != ()
    }
