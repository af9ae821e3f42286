"""
`python -m processor_host.demo`: plays the demo, prints the verdict and ends with it as exit status.

0 where nothing was lost, nobody overlapped, nothing went backwards and every process ended as it should; 1 where not;
130 or 143 where a signal ended it. Whatever happens, no process and no folder stays behind.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import click
from rich.console import Console

from partitions.errors import PartitionsError
from processor_host.cli.numbers import Number, Whole
from processor_host.demo.folder import Folder
from processor_host.demo.grounds import Ground, LocalGround
from processor_host.demo.journal import Journalled
from processor_host.demo.orphans import end_without_parent
from processor_host.demo.play import Outcome, Play, Script
from processor_host.demo.report import report_of
from processor_host.demo.show import shown

__all__ = ["main"]

FAILED = 1


@click.command(context_settings={"show_default": True})
@click.option("--partitions", type=Whole(2, 256), default=12, help="Partitions of the stream.")
@click.option("--hosts", type=Whole(2, 16), default=3, help="Hosts at the start; one is killed, one comes.")
@click.option("--seconds", type=Number(0, 600), default=20.0, help="Time to look at it, besides the waits.")
@click.option("--rate", type=Number(1, 1000), default=20.0, help="Records a second and partition.")
@click.option(
    "--processor",
    default=f"{Journalled.__module__}:{Journalled.__qualname__}",
    metavar="MODULE:CLASS",
    help="Another kind of it, for instance one that fails.",
)
@click.option("--kinesis", metavar="URL", help="Play on a stream of Kinesis, served there; with a split and a merge.")
@click.option("--dynamodb", metavar="URL", help="With --kinesis: the leases in a table of DynamoDB, served there.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON, and all else to stderr.")
@click.option("--keep", is_flag=True, help="Keep the folder with stream, leases, journals and logs.")
def main(**options: Any) -> None:
    """
    Play the demo: some hosts share a stream, one is killed, another one joins, and nothing is lost.

    The stream is a local file if no other one is named. The exit status is 0 only if no record was lost, no partition
    had two owners, no checkpoint went backwards and, after a split or a merge, every key kept its order.
    """
    as_json, keep = options.pop("as_json"), options.pop("keep")
    kinesis, dynamodb = options.pop("kinesis"), options.pop("dynamodb")
    if bool(kinesis) != bool(dynamodb):
        raise click.UsageError("--kinesis and --dynamodb go together; name both or none")
    script = Script(**options)
    if script.partitions < script.hosts:
        raise click.UsageError(f"--partitions {script.partitions} is less than --hosts {script.hosts}; each needs one")
    end_without_parent()
    sys.exit(anyio.run(_main, script, lambda folder: _ground(folder, kinesis, dynamodb), as_json, keep))


def _ground(folder: Folder, kinesis: str | None, dynamodb: str | None) -> Ground:
    if kinesis is None or dynamodb is None:
        return LocalGround(folder)
    # Loads the client of AWS, which takes a second.
    from processor_host.demo.kinesis import KinesisGround

    return KinesisGround(folder=folder, kinesis_url=kinesis, dynamodb_url=dynamodb)


async def _main(script: Script, ground_of: Callable[[Folder], Ground], as_json: bool, keep: bool) -> int:
    console = Console(stderr=as_json)
    status = FAILED
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        # Made and removed while signals are received: none can come in between.
        folder = Path(tempfile.mkdtemp(prefix="processor-host-demo-"))
        try:
            async with anyio.create_task_group() as tasks:

                async def interrupt() -> None:
                    nonlocal status
                    async for number in signals:
                        status = 128 + number
                        tasks.cancel_scope.cancel()

                tasks.start_soon(interrupt, name="signals")
                made = Folder(folder)
                status = await _play(script, made, ground_of(made), console, as_json=as_json)
                tasks.cancel_scope.cancel()
        finally:
            if keep:
                console.out(f"kept {folder}", highlight=False)
            else:
                shutil.rmtree(folder)
    return status


async def _play(script: Script, folder: Folder, ground: Ground, console: Console, *, as_json: bool) -> int:
    try:
        with shown(console) as show:
            outcome = await Play(script, folder, ground, show).run()
    except (PartitionsError, ValueError) as error:
        # A journal or a store that cannot be read: no verdict is a failure too.
        console.out(f"FAILED: {error}", highlight=False)
        return FAILED
    if as_json:
        print(json.dumps(_as_json(outcome), indent=2))
    else:
        console.print(report_of(outcome), soft_wrap=True)
    return FAILED if outcome.failures() else 0


def _as_json(outcome: Outcome) -> dict[str, Any]:
    failures = outcome.failures()
    return {**outcome.verdict.as_json(), "failures": list(failures), "passed": not failures}


if __name__ == "__main__":
    main()
