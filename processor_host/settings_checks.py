"""
What must hold of a host's settings, and what follows from the lease duration.

Pure functions of values; they know neither where a value came from nor what it is used for. Most checks are relations,
as in client-go's leader election: every setting may be fine by itself and the whole still lose leases all day.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from processor_host.ends import parse_until
from processor_host.errors import SettingsError
from processor_host.starts import parse_starts

__all__ = ["MAY_BE_ZERO", "TEXT_OR_MAPPING", "id_problem", "problems_of", "timings_of"]

BEAT_SHARE: Final = 1 / 3
"""Of the lease duration; the most that one beat interval may be, and its default."""

CALL_SHARE: Final = 1 / 6
"""Of the lease duration; the most that one call may take, and its default."""

HANDOFF_DURATIONS: Final = 3
"""Long enough for most batches; an owner that died is not waited for so long."""

DURATION_MIN_S: Final = 0.3
"""
A call may then take 50 ms, about as long as a flush of a busy disk does: below it leases are lost all day. What one
store can do is found out at the start.
"""

ROUNDING: Final = 1e-9
"""A third that a user computed may differ from ours in its last digits."""

CHECKPOINTS: Final = ("automatic", "manual", "every-record")
"""What may count as done."""

CHOICES: Final = {"balance": ("count", "load"), "weigh_by": ("bytes", "seconds")}
"""Settings that are one of a few words."""

MAY_BE_ZERO: Final = ("batch_wait_s", "steal_delay_s", "rejoin_grace_s")

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")

TEXT_OR_MAPPING: Final = (str | Mapping[str, str], str | Mapping[str, str] | None)
"""The types of settings that name partitions."""

# A setting, how many times another it may be at most, that other, and what would go wrong.
_AT_MOST: Final = (
    ("beat_interval_s", BEAT_SHARE, "lease_duration_s", "leaves no retry inside"),
    ("call_timeout_s", CALL_SHARE, "lease_duration_s", "lets one beat that hangs use up too much of"),
    ("balance_interval_s", 1, "lease_duration_s", "would leave the partitions of a dead host alone for longer than"),
)

# A setting, the other that it must reach, and what would go wrong.
_AT_LEAST: Final = (
    ("handoff_s", "lease_duration_s", "ends a hand-off before the lease itself would end, which is"),
    ("drain_timeout_s", "call_timeout_s", "is less than the last call of a stopping host may take, which is"),
    ("prefetch_records_max", "batch_records_max", "would never fill a batch of"),
    ("prefetch_bytes_max", "batch_bytes_max", "would never fill a batch of"),
    ("buffer_bytes_max", "prefetch_bytes_max", "is less than one partition may read ahead, which is"),
    ("restart_pause_max_s", "restart_pause_s", "is below the first pause, which is"),
    ("stall_limit_s", "batch_wait_s", "would name partitions that only wait for a fuller batch, which is"),
)


def problems_of(values: Mapping[str, Any], hints: Mapping[str, object]) -> tuple[str, ...]:
    """
    Return one line for each thing that is wrong: kinds, then bounds, then relations between what is sound.

    Args:
        values: Every setting by name.
        hints: The type of each.
    """
    unsound = dict(_kind_problems(values, hints))
    unsound |= dict(_bound_problems({name: value for name, value in values.items() if name not in unsound}))
    sound = {name: value for name, value in values.items() if name not in unsound}
    return (*unsound.values(), *_relation_problems(sound))


def timings_of(duration_s: float) -> dict[str, float]:
    """Return the timings that follow from a lease duration alone, seconds."""
    return {
        "lease_duration_s": float(duration_s),
        "beat_interval_s": duration_s * BEAT_SHARE,
        "balance_interval_s": duration_s * BEAT_SHARE,
        "call_timeout_s": duration_s * CALL_SHARE,
        "handoff_s": duration_s * HANDOFF_DURATIONS,
    }


def id_problem(kind: str, value: str) -> str | None:
    """Say what is wrong with the name of a group or host, which becomes part of keys, labels and log lines."""
    if _ID.fullmatch(value):
        return None
    shown = repr(value) if len(value) <= 140 else f"{value[:140]!r}… ({len(value)} characters)"
    return f"{kind}={shown} is not an id; use 1 to 128 letters, digits, dots, underscores and hyphens"


def _kind_problems(values: Mapping[str, Any], hints: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """A text in a number's place would fail much later, in some comparison."""
    for name, value in values.items():
        hint = hints[name]
        if value is None and hint in (int | None, float | None, str | None, TEXT_OR_MAPPING[1]):
            continue
        if hint is bool:
            if not isinstance(value, bool):
                yield name, f"{name}={value!r} is neither true nor false"
        elif hint in (int, int | None) and (not isinstance(value, int) or isinstance(value, bool)):
            yield name, f"{name}={value!r} is not a whole number"
        elif hint in (float, float | None) and (not isinstance(value, int | float) or isinstance(value, bool)):
            yield name, f"{name}={value!r} is not a number"
        elif hint in (str, str | None) and not isinstance(value, str):
            yield name, f"{name}={value!r} is not a text"
        elif hint in TEXT_OR_MAPPING and not isinstance(value, str | Mapping):
            yield name, f"{name}={value!r} is neither a text nor a mapping of partitions to positions"


def _bound_problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with one value by itself."""
    for name, value in values.items():
        problem = None
        if value is None or isinstance(value, bool):
            continue
        if name == "metrics_port":
            if not 0 <= value <= 65535:
                problem = f"metrics_port={value} is not a port; use 1 to 65535, or 0 to let the system pick one"
        elif name == "metrics_host":
            if not value:
                problem = "metrics_host='' names no address; use 127.0.0.1, or 0.0.0.0 for every address"
        elif name == "host_id":
            problem = id_problem(name, value)
        elif name == "start":
            problem = _start_problem(value)
        elif name == "until":
            problem = _until_problem(value)
        elif name in CHOICES:
            if value not in CHOICES[name]:
                problem = f"{name}={value!r} is unknown; use {' or '.join(CHOICES[name])}"
        elif name == "checkpoint":
            if value not in CHECKPOINTS:
                problem = f"checkpoint={value!r} is no way to checkpoint; use {', '.join(CHECKPOINTS)}"
        elif name in MAY_BE_ZERO:
            if not 0 <= value < math.inf:
                fault = "is below 0" if math.isfinite(value) else "is not a finite number from 0 on"
                problem = f"{name}={_shown(value)} {fault}; use 0 or more"
        elif name == "lease_duration_s":
            problem = _duration_problem(value, values.get("beat_interval_s"))
        elif not 0 < value < math.inf:
            remedy = "use 1 or more" if isinstance(value, int) else "use more than 0"
            fault = "is not above 0" if math.isfinite(value) else "is not a finite number above 0"
            problem = f"{name}={_shown(value)} {fault}; {remedy}"
        if problem is not None:
            yield name, problem


def _relation_problems(sound: Mapping[str, Any]) -> Iterator[str]:
    """Yield each pair of sound values that do not fit together, with both and the remedy."""
    values = {name: value for name, value in sound.items() if isinstance(value, int | float)}
    if "lease_duration_s" in values:
        values = timings_of(values["lease_duration_s"]) | values
    for name, times, other, fault in _AT_MOST:
        if name in values and other in values and values[name] > values[other] * times * (1 + ROUNDING):
            # Taken out, so that nothing is asked to reach a value that is refused itself.
            remedy = f"use {_rounded(values[other] * times, math.floor)} or less"
            yield f"{name}={_shown(values.pop(name))} {fault} {other}={_shown(values[other])}; {remedy}"
    for name, other, fault in _AT_LEAST:
        if name in values and other in values and values[name] < values[other] * (1 - ROUNDING):
            remedy = f"use {_rounded(values[other], math.ceil)} or more"
            yield f"{name}={_shown(values[name])} {fault} {other}={_shown(values[other])}; {remedy}"


def _duration_problem(duration_s: float, beat_s: float | None) -> str | None:
    """The beat interval is named too, given or not: it is what cannot work then."""
    if DURATION_MIN_S <= duration_s < math.inf:
        return None
    remedy = f"use a finite number of seconds from {DURATION_MIN_S} on, for instance 10"
    if not math.isfinite(duration_s):
        return f"lease_duration_s={duration_s} is not a finite number; {remedy}"
    shown = _shown(duration_s * BEAT_SHARE if beat_s is None else beat_s)
    return f"lease_duration_s={_shown(duration_s)} leaves no time for beat_interval_s={shown}; {remedy}"


def _start_problem(start: str | Mapping[str, str]) -> str | None:
    try:
        parse_starts(start)
    except ValueError as error:
        return str(error)
    return None


def _until_problem(until: str | Mapping[str, str]) -> str | None:
    try:
        parse_until(until)
    except SettingsError as error:
        return str(error)
    return None


def _shown(value: float) -> str:
    """A number as the user wrote it, or, where it follows from another, short."""
    text = repr(value)
    return text if isinstance(value, int) else _without_exponent(text if len(text) <= 9 else f"{value:.4g}")


def _rounded(value: float, to_whole: Callable[[float], int]) -> str:
    """A remedy in three digits, on the side of `value` where who follows it is not refused again."""
    if isinstance(value, int):
        return str(value)
    digit = 10.0 ** (math.floor(math.log10(value)) - 2)
    # A quotient that is whole but for its last bits is meant to be whole.
    return _without_exponent(f"{to_whole(round(value / digit, 6)) * digit:.3g}")


def _without_exponent(text: str) -> str:
    return format(Decimal(text), "f") if "e" in text else text
