"""The cuts themselves: they strike at every scheduling point, once each, and respect a shield."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from tests.cuts import Cut, at_every_point
from tests.world.diary import passes

__all__: list[str] = []


def test_cut_strikes_at_each_await_in_turn() -> None:
    """A point that is left out is where the fault will be."""
    reached: list[list[str]] = []

    async def scenario(cut: Cut) -> None:
        steps: list[str] = []

        async def call() -> None:
            await passes(1)
            steps.append("slept")
            await anyio.lowlevel.checkpoint()
            steps.append("checked")

        ended = await cut.during(call)
        reached.append([*steps, "ended" if ended else "cut"])

    points = at_every_point(scenario)

    assert reached[0] == ["cut"]
    assert reached[-1] == ["slept", "checked", "ended"]
    assert ["slept", "cut"] in reached
    assert len(reached) == points + 1


def test_cut_inside_a_shield_strikes_after_it() -> None:
    """The shielded write is what these tests are about."""
    reached: list[list[str]] = []

    async def scenario(cut: Cut) -> None:
        steps: list[str] = []

        async def call() -> None:
            with anyio.CancelScope(shield=True):
                await passes(1)
                steps.append("written")
            await passes(1)
            steps.append("more")

        await cut.during(call)
        reached.append(steps)

    at_every_point(scenario)

    assert reached == [["written"], ["written"], ["written", "more"]]


def test_failure_of_a_scenario_names_the_point() -> None:
    """Without it nobody can run the one failing case."""

    async def scenario(cut: Cut) -> None:
        if not await cut.during(lambda: passes(1)):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        at_every_point(scenario)

    assert caught.value.__notes__ == ["cancelled at scheduling point 0"]
