"""`processor-host simulate`: the formulae, told with their prices."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from processor_host.cli import main
from processor_host.operating.costs import Costs, GroupSize, Requests, costs_of

__all__: list[str] = []


def test_costs_of_ten_hosts_at_rest_are_those_of_the_page_about_dynamodb() -> None:
    """10 hosts, 10 s, 1,000 partitions: 10,800 writes and looks an hour, 34,200 units of audits."""
    size = GroupSize(
        hosts=10, partitions=1000, duration_s=10.0, busy=0, checkpoint_interval_s=5.0, audit_interval_s=60.0
    )

    costs = costs_of(size)
    an_hour = {
        each.what: (round(3600 * each.per_s, 6), round(3600 * (each.write_units_per_s + each.read_units_per_s), 6))
        for each in costs.requests
    }

    assert an_hour == {
        "beats": (10_800, 10_800),
        "looks at the sessions": (10_800, 5_400),
        "audits": (600 * 9, 34_200),
        "checkpoints": (0, 0),
    }


@pytest.mark.parametrize(("partitions", "hosts"), [(1, 1), (64, 5), (100_000, 5)])
def test_costs_of_beats_do_not_depend_on_partitions(partitions: int, hosts: int) -> None:
    """The idea of the whole: 3·H writes per duration, whatever P is."""
    size = GroupSize(
        hosts=hosts, partitions=partitions, duration_s=6.0, busy=0, checkpoint_interval_s=5.0, audit_interval_s=60.0
    )

    assert costs_of(size).requests[0] == Requests(what="beats", per_s=hosts / 2, write_units_per_s=hosts / 2)


def test_costs_are_units_times_prices_over_a_month() -> None:
    """365/12 days; a million units at the price."""
    costs = Costs(
        requests=(Requests(what="x", per_s=2.0, write_units_per_s=1.0, read_units_per_s=10.0),),
        write_price=0.5,
        read_price=0.05,
    )

    assert costs.total == pytest.approx(365 * 86400 / 12 / 1e6)


def test_simulate_tells_requests_and_costs_and_where_the_prices_are_from() -> None:
    """A number without its price would be taken for a bill."""
    given = ["--hosts", "10", "--partitions", "1000", "--duration", "10", "--write-price", "1", "--read-price", "0"]
    told = CliRunner().invoke(main, ["simulate", *given])
    as_json = json.loads(CliRunner().invoke(main, ["simulate", *given, "--busy", "0", "--json"]).stdout)

    rows = {line.split("  ")[0]: line.split()[-4:] for line in told.stdout.splitlines() if line}
    assert rows["beats"] == ["3.000", "3.000", "0.000", "7.88"]
    assert rows["checkpoints"] == ["200.000", "200.000", "0.000", "525.60"]
    assert told.stdout.splitlines()[-1].startswith(
        "at 1 for a million write units and 0 for a million read units; the defaults are: DynamoDB on demand"
    )
    assert as_json["cost_per_month"] == pytest.approx(3 * 365 * 86400 / 12 / 1e6)
    assert as_json["requests_per_s"] == pytest.approx(3 + 3 + 1.5)


def test_simulate_refuses_more_busy_partitions_than_there_are() -> None:
    """One line."""
    given = ["--hosts", "1", "--partitions", "2", "--duration", "10", "--busy", "3"]
    result = CliRunner().invoke(main, ["simulate", *given])

    assert (result.exit_code, result.stderr) == (
        2,
        "processor-host: --busy 3 is more than --partitions 2; give at most 2\n",
    )
