"""
Settings as text: what flags and environment variables say, and what the settings' own docstrings say to people.

Knows no command line: it is given texts. A flag goes over the environment, and that over the default.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any, Final, get_type_hints

from processor_host import settings
from processor_host.errors import SettingsError
from processor_host.settings import HostSettings

__all__ = ["as_given", "environment_name", "flag_name", "read_settings", "setting_docs", "unknown_variables"]

ENVIRONMENT_PREFIX: Final = "PROCESSOR_HOST_"


def flag_name(setting: str) -> str:
    """Return the flag of a setting: `lease_duration_s` is `--lease-duration-s`."""
    return "--" + setting.replace("_", "-")


def environment_name(setting: str) -> str:
    """Return the environment variable of a setting: `lease_duration_s` is `PROCESSOR_HOST_LEASE_DURATION_S`."""
    return ENVIRONMENT_PREFIX + setting.upper()


def read_settings(flags: Mapping[str, str], environ: Mapping[str, str]) -> HostSettings:
    """
    Make settings from text: a flag goes over the environment, and that over the default.

    Args:
        flags: The text of each flag that was given, by the name of its setting.
        environ: Every environment variable; an empty one counts as not set.

    Raises:
        SettingsError: a text is not what its setting holds, or the settings do not fit together; the lines name the
            flag or the variable of each that was given. All problems of the first kind at once, else all of the second.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, read, expected in _readers():
        if name in flags:
            text, origin = flags[name], f"{flag_name(name)} {flags[name]!r}"
        elif text := environ.get(environment_name(name), "").strip():
            origin = f"environment variable {environment_name(name)}={text!r}"
        else:
            continue
        try:
            values[name] = read(text)
        except ValueError:
            problems.append(f"{origin} is not {expected}")
    if problems:
        raise SettingsError("\n".join(problems))
    try:
        return HostSettings(**values)
    except SettingsError as error:
        raise SettingsError(as_given(str(error), flags, environ)) from None


def as_given(text: str, flags: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """
    Return the lines of an error with each setting in them named as it was given, by its flag or variable.

    One that was not given keeps its own name, for there is no place to look for it. Where such a default is what has to
    change, it is called one, and the remedy names its flag.
    """
    known = [field.name for field in fields(HostSettings)]
    names = {name: environment_name(name) for name in known if environ.get(environment_name(name), "").strip()}
    names |= {name: flag_name(name) for name in known if name in flags}

    def line_as_given(line: str) -> str:
        subject = re.match(r"(\w+)=", line)
        if subject and subject[1] in known and subject[1] not in names:
            line = f"the default {line}".replace("; use ", f"; use {flag_name(subject[1])} ", 1)
        return re.sub(r"(?<![\w-])(\w+)(?==)|^(\w+)(?=: )", lambda found: names.get(found[0], found[0]), line)

    return "\n".join(map(line_as_given, text.split("\n")))


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that look like a setting's and are none, each with the nearest that is one."""
    known = [environment_name(field.name) for field in fields(HostSettings)]
    return {
        name: next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.8)), None)
        for name in sorted(environ)
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known
    }


def setting_docs() -> dict[str, str]:
    """Return the docstring under each field of `HostSettings`, each on one line."""
    body = next(
        node.body
        for node in ast.parse(inspect.getsource(settings)).body
        if isinstance(node, ast.ClassDef) and node.name == HostSettings.__name__
    )
    docs: dict[str, str] = {}
    for node, following in pairwise(body):
        match node, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
            case _:
                pass
    return docs


def _readers() -> Iterator[tuple[str, Callable[[str], str | int | float], str]]:
    """Yield each setting with what reads its text and what that text is expected to be."""
    hints = get_type_hints(HostSettings)
    for field in fields(HostSettings):
        hint = hints[field.name]
        if hint is bool:
            yield field.name, _read_bool, "true or false"
        elif hint in (int, int | None):
            example = 9400 if field.name == "metrics_port" else 1
            yield field.name, int, f"a whole number, for instance {example}"
        elif hint in (float, float | None):
            yield field.name, float, "a number, for instance 2.5"
        else:
            yield field.name, str, "a text"


def _read_bool(text: str) -> bool:
    try:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None
