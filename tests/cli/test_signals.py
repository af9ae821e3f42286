"""What a signal asks for, by what came before it."""

from __future__ import annotations

import signal

import pytest

from processor_host.cli.signals import DOUBLED_S, Asked, Signals

__all__: list[str] = []

INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize(
    ("came", "asked", "status"),
    [
        ([(INT, 5.0)], [Asked.STOP], None),
        ([(INT, 5.0), (INT, 5.0)], [Asked.STOP, Asked.NOTHING], None),
        ([(INT, 5.0), (TERM, 5.9), (INT, 5.99)], [Asked.STOP, Asked.NOTHING, Asked.NOTHING], None),
        ([(INT, 5.0), (INT, 5.1), (TERM, 5.0 + DOUBLED_S)], [Asked.STOP, Asked.NOTHING, Asked.CANCEL], 143),
        ([(TERM, 5.0), (INT, 9.0)], [Asked.STOP, Asked.CANCEL], 130),
        ([(TERM, 5.0), (TERM, 9.0), (TERM, 9.0)], [Asked.STOP, Asked.CANCEL, Asked.END], 143),
        ([(TERM, 0.0), (TERM, 9.0), (TERM, 9.1), (TERM, 9.2)], [Asked.STOP, Asked.CANCEL, Asked.END, Asked.END], 143),
    ],
)
def test_signal_that_doubles_the_first_asks_for_nothing(
    came: list[tuple[int, float]], asked: list[Asked], status: int | None
) -> None:
    """`timeout -s INT` signals the process and its group: taken for two, every such stop would be a hard one."""
    signals = Signals()

    assert [signals.take(number, at_s) for number, at_s in came] == asked
    assert signals.status == status
