"""
Settings: the defaults, what follows from the lease duration, every refusal, and text from flags and environment.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore
from processor_host import PartitionProcessor, ProcessorHost
from processor_host.errors import SettingsError
from processor_host.lives import LAST_S
from processor_host.settings import HostSettings, Timings, check_id, default_host_id
from processor_host.settings_checks import MAY_BE_ZERO
from processor_host.settings_text import environment_name, flag_name, read_settings, setting_docs, unknown_variables

__all__: list[str] = []

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"

NONE_IS = {
    "beat_interval_s": "`lease_duration_s` / 3",
    "balance_interval_s": "`lease_duration_s` / 3",
    "call_timeout_s": "`lease_duration_s` / 6",
    "handoff_s": "`lease_duration_s` × 3",
    "host_id": "host name and process id",
    "max_leases": "no bound",
    "metrics_port": "no server",
    "until": "never",
}


def refusal(**values: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        HostSettings(**values)
    return str(caught.value).splitlines()


def test_timings_follow_from_the_lease_duration() -> None:
    """Who sets only the duration gets timings that work with it."""
    assert HostSettings(lease_duration_s=12).timings() == Timings(
        lease_duration_s=12.0, beat_interval_s=4.0, balance_interval_s=4.0, call_timeout_s=2.0, handoff_s=36.0
    )


def test_timings_are_those_that_were_given() -> None:
    """What a user sets is in force as it is."""
    given: dict[str, Any] = {
        "beat_interval_s": 1.0,
        "balance_interval_s": 10.0,
        "call_timeout_s": 0.5,
        "handoff_s": 10.0,
    }

    assert HostSettings(**given).timings() == Timings(lease_duration_s=10.0, **given)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"lease_duration_s": 1, "beat_interval_s": 2},
            ["beat_interval_s=2 leaves no retry inside lease_duration_s=1; use 0.333 or less"],
        ),
        (
            {"lease_duration_s": 2, "call_timeout_s": 60},
            [
                "call_timeout_s=60 lets one beat that hangs use up too much of lease_duration_s=2; use 0.333 or less",
            ],
        ),
        (
            {"lease_duration_s": 0},
            [
                "lease_duration_s=0 leaves no time for beat_interval_s=0.0; use a finite number of seconds from 0.3 "
                "on, for instance 10",
            ],
        ),
        (
            {"lease_duration_s": 0.00001},
            [
                "lease_duration_s=0.00001 leaves no time for beat_interval_s=0.000003333; use a finite number of "
                "seconds from 0.3 on, for instance 10",
            ],
        ),
        (
            {"lease_duration_s": 0.29, "beat_interval_s": 0.05},
            [
                "lease_duration_s=0.29 leaves no time for beat_interval_s=0.05; use a finite number of seconds from "
                "0.3 on, for instance 10",
            ],
        ),
        (
            {"lease_duration_s": -5},
            [
                "lease_duration_s=-5 leaves no time for beat_interval_s=-1.667; use a finite number of seconds from "
                "0.3 on, for instance 10",
            ],
        ),
    ],
)
def test_c37_timings_that_cannot_work_are_refused_naming_both_values(
    values: dict[str, float], expected: list[str]
) -> None:
    """Accepted, they would show as leases lost under load, hours later."""
    assert refusal(**values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"balance_interval_s": 11.0},
            "balance_interval_s=11.0 would leave the partitions of a dead host alone for longer than "
            "lease_duration_s=10.0; use 10 or less",
        ),
        (
            {"handoff_s": 9.0},
            "handoff_s=9.0 ends a hand-off before the lease itself would end, which is lease_duration_s=10.0; "
            "use 10 or more",
        ),
        (
            {"drain_timeout_s": 1},
            "drain_timeout_s=1 is less than the last call of a stopping host may take, which is call_timeout_s=1.667; "
            "use 1.67 or more",
        ),
        (
            {"batch_wait_s": 61.0},
            "stall_limit_s=60.0 would name partitions that only wait for a fuller batch, which is batch_wait_s=61.0; "
            "use 61 or more",
        ),
        (
            {"batch_records_max": 1001},
            "prefetch_records_max=1000 would never fill a batch of batch_records_max=1001; use 1001 or more",
        ),
        (
            {"prefetch_bytes_max": 1_048_575},
            "prefetch_bytes_max=1048575 would never fill a batch of batch_bytes_max=1048576; use 1048576 or more",
        ),
        (
            {"buffer_bytes_max": 2_097_151},
            "buffer_bytes_max=2097151 is less than one partition may read ahead, which is prefetch_bytes_max=2097152; "
            "use 2097152 or more",
        ),
        (
            {"restart_pause_s": 11.0},
            "restart_pause_max_s=10.0 is below the first pause, which is restart_pause_s=11.0; use 11 or more",
        ),
        (
            {"metrics_port": 65536},
            "metrics_port=65536 is not a port; use 1 to 65535, or 0 to let the system pick one",
        ),
        ({"metrics_host": ""}, "metrics_host='' names no address; use 127.0.0.1, or 0.0.0.0 for every address"),
        (
            {"host_id": "a b"},
            "host_id='a b' is not an id; use 1 to 128 letters, digits, dots, underscores and hyphens",
        ),
        (
            {"start": "yesterday"},
            "start='yesterday' is not a start; use earliest, latest or a time such as 2026-01-31T06:00:00Z",
        ),
        (
            {"lease_duration_s": float("inf")},
            "lease_duration_s=inf is not a finite number; use a finite number of seconds from 0.3 on, for instance 10",
        ),
        (
            {"lease_duration_s": 50000.0, "handoff_s": 12345.6789, "drain_timeout_s": 9000.0},
            "handoff_s=12350 ends a hand-off before the lease itself would end, which is lease_duration_s=50000.0; "
            "use 50000 or more",
        ),
        ({"capacity": -1e-7}, "capacity=-0.0000001 is not above 0; use more than 0"),
        ({"lease_duration_s": "10"}, "lease_duration_s='10' is not a number"),
        ({"lease_duration_s": None}, "lease_duration_s=None is not a number"),
        ({"max_leases": True}, "max_leases=True is not a whole number"),
        ({"batch_records_max": 1.5}, "batch_records_max=1.5 is not a whole number"),
        ({"host_id": 7}, "host_id=7 is not a text"),
        (
            {"checkpoint": "sometimes"},
            "checkpoint='sometimes' is no way to checkpoint; use automatic, manual, every-record",
        ),
        ({"batch_wait_s": -0.5}, "batch_wait_s=-0.5 is below 0; use 0 or more"),
        (
            {"until": "never"},
            "until: 'never' is no end; use latest-at-start, a time such as 2026-01-31T06:00:00Z, or "
            "PARTITION=POSITION for each partition",
        ),
        ({"until": 7}, "until=7 is neither a text nor a mapping of partitions to positions"),
        ({"start": "p0="}, "start: p0= is no PARTITION=POSITION; name each partition once, as in p0=41"),
        (
            {"start": "p0=1,p0=2"},
            "start: p0=2 starts at two positions; name each partition once, as in p0=41",
        ),
        (
            {"start": "latest,earliest,p0=1"},
            "start='latest,earliest,p0=1' has 2 starts for the whole stream; give one, and the partitions",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_value_and_remedy(values: dict[str, Any], expected: str) -> None:
    """One line says which value, against what, and what to use."""
    assert refusal(**values) == [expected]


NUMBERS = [field.name for field in fields(HostSettings) if not isinstance(field.default, str)]
NUMBERS.remove("host_id")


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in ("metrics_port", *MAY_BE_ZERO)])
@pytest.mark.parametrize("value", [0, -1])
def test_settings_refuse_every_number_that_is_not_above_zero(name: str, value: int) -> None:
    """A pause, a bound or a share of nothing stops a host without a word."""
    assert any(line.startswith(f"{name}={value} ") for line in refusal(**{name: value}))


@pytest.mark.parametrize("name", [name for name in NUMBERS if name.endswith("_s") or name == "capacity"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_settings_refuse_every_number_that_is_not_finite(name: str, value: float) -> None:
    """Every comparison with NaN is false, so that a check written the other way round lets it through."""
    assert any(line.startswith(f"{name}={value} ") for line in refusal(**{name: value}))


def test_host_refuses_settings_that_are_none() -> None:
    """A mapping is the next thing that one writes, and would be an AttributeError of some inner part."""
    with pytest.raises(SettingsError) as caught:
        ProcessorHost(
            group="g",
            source=MemorySource(lambda: 0.0, partitions=1),
            store=MemoryStore(),
            processor=PartitionProcessor,
            settings={"lease_duration_s": 3},  # type: ignore[arg-type]
        )

    assert str(caught.value) == (
        "settings={'lease_duration_s': 3} is no HostSettings; give settings=HostSettings(lease_duration_s=3)"
    )


def test_settings_name_all_problems_at_once() -> None:
    """Who has three wrong values should not have to start three times."""
    found = refusal(lease_duration_s=9.0, beat_interval_s=4.0, batch_records_max=0, start="x", handoff_s=1.0)

    assert [line.split("=")[0] for line in found] == ["start", "batch_records_max", "beat_interval_s", "handoff_s"]


@pytest.mark.parametrize("duration_s", [0.3, 1, 2, 3, 7, 9.7, 10, 11.1, 59])
def test_remedies_are_accepted(duration_s: float) -> None:
    """A remedy that is refused again, by its rounding, would send the user in circles."""
    problems = refusal(lease_duration_s=duration_s, beat_interval_s=90.0, call_timeout_s=90.0, balance_interval_s=90.0)
    remedies = {line.split("=")[0]: float(re.findall(r"use ([\d.]+) or", line)[0]) for line in problems}

    assert set(remedies) == {"beat_interval_s", "call_timeout_s", "balance_interval_s"}
    HostSettings(lease_duration_s=duration_s, **remedies)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["a", "A-1_b.c", "x" * 128])
def test_check_id_accepts_plain_names(value: str) -> None:
    """Letters, digits and three signs are safe in a key, a label and a file name."""
    check_id("group", value)


@pytest.mark.parametrize("value", ["", "a b", "a#b", "a/b", "a:b", "ä", "a\n", "x" * 129, "\ud800"])
def test_check_id_refuses_what_could_break_a_key(value: str) -> None:
    """`#` and `:` separate the parts of keys, a line feed those of a log."""
    with pytest.raises(SettingsError, match=r"^group=.* is not an id; use 1 to 128 "):
        check_id("group", value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-7f9", "orders-7f9-41"),
        ("", "host-41"),
        ("...", "host-41"),
        ("büro pc", "b-ro-pc-41"),
        ("x" * 300, "x" * 100 + "-41"),
    ],
)
def test_default_host_id_is_always_an_id(name: str, expected: str) -> None:
    """A container may have no host name at all, and a laptop any."""
    host_id = default_host_id(name, 41)

    assert host_id == expected
    check_id("host_id", host_id)


def test_default_host_id_of_this_machine_is_an_id() -> None:
    """What the system says goes the same way."""
    check_id("host_id", default_host_id())


# --- Text -----------------------------------------------------------------------------------------------------------


def test_read_settings_takes_the_flag_over_the_environment_over_the_default() -> None:
    """An image sets the environment; who starts it by hand has the last word."""
    environ = {"PROCESSOR_HOST_LEASE_DURATION_S": "6", "PROCESSOR_HOST_CAPACITY": "2", "PROCESSOR_HOST_START": ""}

    settings = read_settings({"lease_duration_s": "3"}, environ)

    assert settings == HostSettings(lease_duration_s=3.0, capacity=2.0)


def test_read_settings_reads_every_field_after_its_type() -> None:
    """A field without a reader would be a flag that does nothing."""
    texts = {field.name: str(field.default) if field.default is not None else "1" for field in fields(HostSettings)}
    texts |= {"lease_duration_s": "9", "handoff_s": "9", "host_id": "a", "start": "latest", "until": "latest-at-start"}
    environ = {environment_name(name): text for name, text in texts.items()}

    from_flags, from_environment = read_settings(texts, {}), read_settings({}, environ)

    assert from_flags == from_environment
    assert from_flags == HostSettings(
        lease_duration_s=9.0,
        beat_interval_s=1.0,
        balance_interval_s=1.0,
        call_timeout_s=1.0,
        handoff_s=9.0,
        start="latest",
        until="latest-at-start",
        host_id="a",
        max_leases=1,
        metrics_port=1,
    )


def test_read_settings_names_the_flag_and_the_variable_that_do_not_parse() -> None:
    """The user must find the place where the text stands, which may be an image's environment."""
    with pytest.raises(SettingsError) as caught:
        read_settings({"lease_duration_s": "3s"}, {"PROCESSOR_HOST_MAX_LEASES": "1.5", "PROCESSOR_HOST_CAPACITY": "1"})

    assert str(caught.value).splitlines() == [
        "--lease-duration-s '3s' is not a number, for instance 2.5",
        "environment variable PROCESSOR_HOST_MAX_LEASES='1.5' is not a whole number, for instance 1",
    ]


def test_read_settings_names_the_flag_and_the_variable_of_values_that_do_not_fit() -> None:
    """The user must find the place where the value stands; a default has none."""
    with pytest.raises(SettingsError) as caught:
        read_settings(
            {"beat_interval_s": "5", "metrics_port": "70000"},
            {"PROCESSOR_HOST_CAPACITY": "-1", "PROCESSOR_HOST_CALL_TIMEOUT_S": "2"},
        )

    assert str(caught.value).splitlines() == [
        "PROCESSOR_HOST_CAPACITY=-1.0 is not above 0; use more than 0",
        "--metrics-port=70000 is not a port; use 1 to 65535, or 0 to let the system pick one",
        "--beat-interval-s=5.0 leaves no retry inside lease_duration_s=10.0; use 3.33 or less",
        "PROCESSOR_HOST_CALL_TIMEOUT_S=2.0 lets one beat that hangs use up too much of lease_duration_s=10.0; "
        "use 1.66 or less",
    ]


def test_read_settings_calls_a_default_one_and_names_the_flag_that_mends_it() -> None:
    """Who gave one flag is told of another setting, and must find its flag."""
    with pytest.raises(SettingsError) as caught:
        read_settings({"batch_records_max": "5000"}, {"PROCESSOR_HOST_LEASE_DURATION_S": "200"})

    assert str(caught.value).splitlines() == [
        "the default drain_timeout_s=20.0 is less than the last call of a stopping host may take, which is "
        "call_timeout_s=33.33; use --drain-timeout-s 33.4 or more",
        "the default prefetch_records_max=1000 would never fill a batch of --batch-records-max=5000; "
        "use --prefetch-records-max 5000 or more",
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"start": "p0="}, "--start: p0= is no PARTITION=POSITION; name each partition once, as in p0=41"),
        (
            {"until": "never"},
            "--until: 'never' is no end; use latest-at-start, a time such as 2026-01-31T06:00:00Z, or "
            "PARTITION=POSITION for each partition",
        ),
        ({"metrics_host": ""}, "--metrics-host='' names no address; use 127.0.0.1, or 0.0.0.0 for every address"),
        ({"max_leases": "-1"}, "--max-leases=-1 is not above 0; use 1 or more"),
        ({"batch_wait_s": "-1"}, "--batch-wait-s=-1.0 is below 0; use 0 or more"),
    ],
)
def test_read_settings_names_the_flag_of_every_setting(flags: dict[str, str], said: str) -> None:
    """However the message puts it."""
    with pytest.raises(SettingsError) as caught:
        read_settings(flags, {})

    assert str(caught.value) == said


def test_read_settings_gives_a_port_as_the_example_of_a_port() -> None:
    """1 is a whole number, and no port that anybody may use."""
    with pytest.raises(SettingsError, match=r"^--metrics-port 'http' is not a whole number, for instance 9400$"):
        read_settings({"metrics_port": "http"}, {})


def test_unknown_variables_come_with_the_nearest_setting() -> None:
    """A slip in a variable would leave the default in force without a word."""
    environ = {
        "PROCESSOR_HOST_LEASE_DURATION": "3",
        "PROCESSOR_HOST_LEASE_DURATION_S": "3",
        "PROCESSOR_HOST_XYZZY": "red",
        "PROCESSOR": "x",
    }

    assert unknown_variables(environ) == {
        "PROCESSOR_HOST_XYZZY": None,
        "PROCESSOR_HOST_LEASE_DURATION": "PROCESSOR_HOST_LEASE_DURATION_S",
    }


def test_setting_docs_say_meaning_for_every_field() -> None:
    """They are the help of the command line."""
    docs = setting_docs()

    assert list(docs) == [field.name for field in fields(HostSettings)]
    assert [name for name, text in docs.items() if not text.endswith(".") or len(text) < 60] == []


def test_document_lists_every_setting_with_flag_variable_and_default() -> None:
    """A default that the page gets wrong is worse than none."""
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| `([^`]+)` \| (.+?) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)

    assert rows == [
        (
            field.name,
            flag_name(field.name),
            environment_name(field.name),
            NONE_IS[field.name] if field.default is None else f"`{field.default}`",
        )
        for field in fields(HostSettings)
    ]
    assert all(field.default is not MISSING for field in fields(HostSettings))


def test_drain_of_the_defaults_fits_into_what_container_platforms_wait() -> None:
    """The reason that the setting gives for its default; and what the README asks for is never less."""
    settings = HostSettings()
    timings = settings.timings()
    stop_s = settings.drain_timeout_s + timings.lease_duration_s / 2 + LAST_S + timings.call_timeout_s

    assert stop_s < settings.drain_timeout_s + timings.lease_duration_s <= 30


def test_document_explains_every_setting_in_the_words_of_its_docstring() -> None:
    """Two texts about one setting come to differ."""
    sections = re.split(r"^### (\w+)\n", DOCUMENT.read_text("utf-8").split("## What must fit")[0], flags=re.MULTILINE)
    explained = dict(zip(sections[1::2], (" ".join(text.split()) for text in sections[2::2]), strict=True))

    assert explained == setting_docs()
