"""
`processor-host simulate`: what a group of some size asks of its store, and what that costs; nothing is called.
"""

from __future__ import annotations

import click

from processor_host.cli.administration import JSON, say, table_of
from processor_host.cli.numbers import Number, Whole
from processor_host.errors import UserError
from processor_host.operating.costs import (
    LEASE_BYTES,
    READ_PRICE,
    SESSION_BYTES,
    WRITE_PRICE,
    Costs,
    GroupSize,
    costs_of,
)

__all__ = ["simulate"]

SOURCE_OF_PRICES = "DynamoDB on demand, standard table, us-east-1, since November 2024: https://aws.amazon.com/dynamodb/pricing/on-demand/"


@click.command(context_settings={"show_default": True})
@click.option("--hosts", type=Whole(min=1), required=True, help="Hosts of the group.")
@click.option("--partitions", type=Whole(min=0), required=True, help="Partitions of its stream.")
@click.option("--duration", "duration_s", type=Number(min=0.3), required=True, help="Lease duration, seconds.")
@click.option("--busy", type=Whole(min=0), help="Partitions with records all the time; all if not given.")
@click.option("--checkpoint-interval-s", type=Number(min=0, min_open=True), default=5.0, help="As of the hosts.")
@click.option("--audit-interval-s", type=Number(min=0, min_open=True), default=60.0, help="As of the hosts.")
@click.option("--session-bytes", type=Whole(min=1), default=SESSION_BYTES, help="Size of a session's item.")
@click.option("--lease-bytes", type=Whole(min=1), default=LEASE_BYTES, help="Size of a lease's item.")
@click.option("--write-price", type=Number(min=0), default=WRITE_PRICE, help="For a million write units.")
@click.option("--read-price", type=Number(min=0), default=READ_PRICE, help="For a million read units.")
@JSON
def simulate(
    hosts: int,
    partitions: int,
    duration_s: float,
    busy: int | None,
    checkpoint_interval_s: float,
    audit_interval_s: float,
    session_bytes: int,
    lease_bytes: int,
    write_price: float,
    read_price: float,
    as_json: bool,
) -> None:
    """
    Tell how many requests a second a group sends to its store, and what that costs a month. Calls nothing.

    At rest, and with checkpoints; not counted are hosts that come and go, the stream, storage and backups. The default
    prices are those of one region at one time, and only defaults: give your own.
    """
    if busy is not None and busy > partitions:
        raise UserError(f"--busy {busy} is more than --partitions {partitions}; give at most {partitions}")
    size = GroupSize(
        hosts=hosts,
        partitions=partitions,
        duration_s=duration_s,
        busy=partitions if busy is None else busy,
        checkpoint_interval_s=checkpoint_interval_s,
        audit_interval_s=audit_interval_s,
        session_bytes=session_bytes,
        lease_bytes=lease_bytes,
    )
    costs = costs_of(size, write_price=write_price, read_price=read_price)
    say(_as_json(costs), _lines(costs), as_json=as_json)


def _as_json(costs: Costs) -> dict[str, object]:
    rows = [
        {
            "what": each.what,
            "requests_per_s": each.per_s,
            "write_units_per_s": each.write_units_per_s,
            "read_units_per_s": each.read_units_per_s,
            "cost_per_month": costs.monthly(each),
        }
        for each in costs.requests
    ]
    return {
        "requests": rows,
        "requests_per_s": costs.per_s,
        "cost_per_month": costs.total,
        "write_price_per_million": costs.write_price,
        "read_price_per_million": costs.read_price,
        "default_prices": SOURCE_OF_PRICES,
    }


def _lines(costs: Costs) -> list[str]:
    rows = [("", "REQUESTS/S", "WRITE UNITS/S", "READ UNITS/S", "A MONTH")]
    for each in costs.requests:
        units = (f"{each.write_units_per_s:.3f}", f"{each.read_units_per_s:.3f}")
        rows.append((each.what, f"{each.per_s:.3f}", *units, f"{costs.monthly(each):.2f}"))
    rows.append(("together", f"{costs.per_s:.3f}", "", "", f"{costs.total:.2f}"))
    at = f"at {costs.write_price:g} for a million write units and {costs.read_price:g} for a million read units"
    return [*table_of(rows), "", f"{at}; the defaults are: {SOURCE_OF_PRICES}"]
