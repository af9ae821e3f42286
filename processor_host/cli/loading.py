"""
What a user names as `module:name`: a processor or a lifespan in their own code.

Knows no host. Code of a user may fail in any way while it is imported: that is one line with file and line, and its
traceback at the log level debug.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import structlog

from processor_host.errors import UserError
from processor_host.kinds import factory_of
from processor_host.middleware import check_middleware
from processor_host.processor import PartitionProcessor, RecordProcessor
from processor_host.singletons import check_singletons

__all__ = [
    "load_lifespan",
    "load_middleware",
    "load_named",
    "load_processor",
    "load_singletons",
    "needed",
    "takes_one",
]


def load_processor(spec: str) -> object:
    """
    Return what `spec` names, after a check that a host can run it.

    Args:
        spec: `module:name`; the module is looked for in the current folder first.

    Raises:
        UserError: there is no such module or name, its import fails, or it is no processor.
    """
    found = load_named(spec, "processor", "delays:Delays")
    try:
        factory_of(found)
    except UserError as error:
        raise UserError(f"{spec!r}: {str(error).removeprefix('processor ')}") from None
    missing = needed(found)
    if missing and not inspect.iscoroutinefunction(found):
        raise UserError(
            f"{spec!r} needs the arguments ({', '.join(missing)}), but is called without any; give them defaults, "
            "or name a function without arguments that makes it"
        )
    return found


def load_lifespan(spec: str) -> Any:
    """
    Return the function that `spec` names, which makes an async context manager.

    Raises:
        UserError: there is no such module or name, its import fails, or it cannot be a lifespan.
    """
    found = load_named(spec, "lifespan", "delays:lifespan")
    if inspect.isasyncgenfunction(found) or inspect.iscoroutinefunction(found):
        raise UserError(f"{spec!r} is not a context manager; put @contextlib.asynccontextmanager above it")
    if not callable(found) or needed(found):
        raise UserError(
            f"{spec!r} is not a function without arguments; "
            "name one that is decorated with @contextlib.asynccontextmanager"
        )
    return found


def load_middleware(spec: str) -> Any:
    """
    Return the middleware that `spec` names.

    Raises:
        UserError: there is no such module or name, its import fails, or it is no middleware.
    """
    found = load_named(spec, "middleware", "delays:timing")
    try:
        return check_middleware([found])[0]
    except UserError as error:
        raise UserError(f"{spec!r}: {error}") from None


def load_singletons(given: Sequence[str]) -> dict[str, Any]:
    """
    Return the singletons that each `NAME=module:function` names, by their names.

    Raises:
        UserError: one is not of that form, a name stands twice, there is no such module or function, or it cannot be a
            singleton.
    """
    found: dict[str, Any] = {}
    for each in given:
        name, equals, spec = each.partition("=")
        if not equals:
            raise UserError(
                f"singleton {each!r} is not of the form NAME=MODULE:FUNCTION; use for instance 'nightly=delays:nightly'"
            )
        if name in found:
            raise UserError(f"singleton {name!r} is given twice; each name is one lock, so give it one function")
        found[name] = load_named(spec, "singleton", "delays:nightly")
    check_singletons(found)
    return found


def load_named(spec: str, what: str, example: str) -> object:
    """
    Return what `module:name` names; the module is looked for in the current folder first.

    Args:
        spec: What a user gave.
        what: What it is to be, for messages.
        example: One that would do, for messages.

    Raises:
        UserError: there is no such module or name, or its import fails.
    """
    module_name, colon, path = spec.partition(":")
    parts = [*module_name.split("."), *path.split(".")]
    if not colon or module_name.endswith(".py") or not all(part.isidentifier() for part in parts):
        raise UserError(
            f"{what} {spec!r} is not of the form module:name; use for instance {_guessed(spec) or example!r}"
        )
    module = _import(module_name)
    found: object = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UserError(f"module {module_name!r} has no {path!r}; {_offered(module, path)}") from None
    return found


def _guessed(spec: str) -> str | None:
    """What somebody meant who wrote a file, as in `delays.py:Delays` or `app/delays.py:Delays`."""
    file, _, name = spec.partition(":")
    module = file.removeprefix("./").removesuffix(".py").replace("/", ".")
    parts = [*module.split("."), *name.split(".")]
    return f"{module}:{name}" if all(part.isidentifier() for part in parts) else None


def _import(name: str) -> ModuleType:
    folder = os.getcwd()
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UserError(
                f"module {name!r} is neither in the current folder ({folder}) nor installed; "
                "change to the folder where it is, or check its name"
            ) from None
        raise UserError(_import_failure(name, error)) from error
    except (Exception, SystemExit) as error:  # Containment: a user's module may raise anything while it is imported.
        raise UserError(_import_failure(name, error)) from error


def _import_failure(name: str, error: BaseException) -> str:
    """Say where and why, and log the whole traceback for who asked for it."""
    structlog.get_logger("processor_host").debug("module.failed", module=name, exc_info=error)
    text = str(error).splitlines()
    if isinstance(error, SyntaxError):
        where, text = _place(error.filename or "?", error.lineno or 0), [error.msg]
    else:
        where = _where(error)
    why = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return f"module {name!r} cannot be imported: {where}: {why} (--log-level debug shows the traceback)"


def _where(error: BaseException) -> str:
    """The last place in the user's own code, or the last one at all."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    own = [frame for frame in frames if frame.filename.startswith(os.getcwd() + os.sep)]
    frame = (own or frames)[-1]
    return _place(frame.filename, frame.lineno or 0)


def _place(file: str, line: int) -> str:
    folder = os.getcwd() + os.sep
    return f"{file.removeprefix(folder)}:{line}"


def _offered(module: ModuleType, wanted: str) -> str:
    """Say what the module has that could be meant."""
    names = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and (
            inspect.iscoroutinefunction(value)
            or (inspect.isclass(value) and issubclass(value, PartitionProcessor | RecordProcessor))
        )
    ]
    close = difflib.get_close_matches(wanted, names, n=1)
    if close:
        return f"did you mean {module.__name__}:{close[0]}?"
    return f"it has {', '.join(sorted(names))}" if names else "it has no processor at all"


def needed(found: Any) -> list[str]:
    """Return the names of the arguments that have no default."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError:
        return []  # Written in C; a call will show.
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def takes_one(found: Any) -> bool:
    """Say whether it can be called with a single argument."""
    try:
        inspect.signature(found).bind(object())
    except TypeError:
        return False
    return True
