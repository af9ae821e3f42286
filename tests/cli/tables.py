"""A table of one test: the command on it, the store in it, and the server behind their backs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import boto3  # type: ignore[import-untyped]  # It has no types.
from click.testing import CliRunner, Result

from partitions.stores.base import Store
from processor_host.cli import main
from processor_host.urls import open_store

__all__ = ["REGION", "Table", "opened", "refusal"]

REGION = "eu-west-1"


class Table:
    """A table's name of this test alone; nobody has made it yet."""

    def __init__(self, endpoint_url: str) -> None:
        self.name = f"leases-{uuid4().hex[:12]}"
        self.url = f"dynamodb://{self.name}?region={REGION}&endpoint_url={endpoint_url}"
        self.server: Any = boto3.client("dynamodb", region_name=REGION, endpoint_url=endpoint_url)

    def run(self, command: str, *options: str, typed: str | None = None) -> Result:
        """Run `table COMMAND` on it."""
        return CliRunner().invoke(main, ["table", command, self.url, *options], input=typed)

    def checked(self, *options: str) -> dict[str, tuple[str, str]]:
        """Return what `check` tells of each property: found, and what that means."""
        result = self.run("check", "--json", *options)
        return {each["property"]: (each["found"], each["verdict"]) for each in json.loads(result.stdout)["findings"]}

    def described(self) -> dict[str, Any] | None:
        """Return what the server says of it, or None where it is not there."""
        try:
            table: dict[str, Any] = self.server.describe_table(TableName=self.name)["Table"]
        except self.server.exceptions.ResourceNotFoundException:
            return None
        return table


@asynccontextmanager
async def opened(table: Table) -> AsyncIterator[Store]:
    """A store in the table."""
    store = open_store(table.url, call_timeout_s=5.0)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def refusal(result: Result) -> tuple[int, list[str]]:
    """Return the status and the lines of a command that was refused, all on stderr."""
    lines = [line.removeprefix("processor-host: ") for line in result.stderr.splitlines()]
    return result.exit_code, lines
