"""
The calls that this product makes of AWS while its tests run, noted in every process, and compared with its policy.

`PLUGIN` in the environment makes botocore load this module for each client it makes, also in child processes; with
`FOLDER` in the environment too, the operations that modules of this product call are noted there, once for each client,
in a file for each process. What a test calls itself is left out, and so is what `table check` only tries: it would call
everything that is granted.

`python -m tests.aws_calls FOLDER` compares what was noted with `partitions.aws.policy`, both ways: nothing is called
that the policy lacks, and nothing is granted that is never called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from partitions.aws.policy import CALLS, Call
from processor_host.cli.table_calls import TRIED_KEY

__all__ = ["FOLDER", "PLUGIN", "breaches", "environment", "initialize_client_plugin", "noted"]

FOLDER: Final = "AWS_CALLS_FOLDER"
"""Names the folder; not a setting of a host, because those are kept from the children of a test."""

PLUGIN: Final = "BOTOCORE_EXPERIMENTAL__PLUGINS"
"""botocore calls it private: the tests of this module fail with the version that takes it away."""

PARTS: Final = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
"""What a part of TransactWriteItems needs."""


FOR_USERS: Final = "TransactWriteItems/ConditionCheckItem"
"""What `lease.condition_check()` gives is sent by the user's own client, under the host's permissions."""

SDK: Final = {"aioboto3", "aiobotocore", "boto3", "botocore"}
PRODUCT: Final = {"partitions", "processor_host"}


def environment(folder: Path) -> dict[str, str]:
    """Return what a process needs to have its calls noted."""
    return {FOLDER: str(folder), PLUGIN: "calls=tests.aws_calls"}


def initialize_client_plugin(client: Any) -> None:
    """Called by botocore with each client that is made, here and in child processes."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    model = client.meta.service_model
    file = Path(folder, str(os.getpid()))
    file.parent.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()

    def note(model: Any, params: Mapping[str, Any], **_: Any) -> None:
        is_own = is_of_the_product(sys._getframe())
        for name in names_of(model.name, params):
            if name not in seen and (is_own or name == FOR_USERS):
                seen.add(name)
                with file.open("a") as notes:
                    notes.write(f"{model.service_model.service_name} {name}\n")

    # Before it is sent: a call that is denied or lost was made all the same.
    client.meta.events.register(f"before-parameter-build.{model.service_id.hyphenize()}", note)


def is_of_the_product(frame: FrameType | None) -> bool:
    """Say whether a call that is under way was made by this product: the first frame outside of the SDK tells."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in SDK and frame.f_globals is not globals():
            return package in PRODUCT
        frame = frame.f_back
    return False


def names_of(operation: str, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the operation, and `<operation>/<action>` for each action beside its own that the request needs."""
    if TRIED_KEY in repr(request):
        return
    yield operation
    if operation == "CreateTable" and request.get("Tags"):
        yield "CreateTable/TagResource"
    if operation in ("DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        # SQS knows only the action of the single call.
        yield f"{operation}/{operation.removesuffix('Batch')}"
    if operation == "TransactWriteItems":
        for part in request["TransactItems"]:
            for kind, asked in part.items():
                # Items of users have keys of their own; what they need, no policy of this product grants.
                # (A resource of boto3 has its values without their types.)
                if "#" in str((asked.get("Key") or asked["Item"]).get("pk", "")):
                    yield f"TransactWriteItems/{PARTS[kind]}"


def granted_by(call: Call) -> set[tuple[str, str]]:
    """Return a call as it is noted."""
    others = {f"{call.operation}/{action}" for action in call.actions if action != call.operation}
    return {(call.service, name) for name in (call.operation, *others)}


def noted(folder: Path) -> set[tuple[str, str]]:
    """Return the service and the operation of every call that was noted, and `<operation>/<action>`."""
    lines = (line.split() for file in folder.iterdir() for line in file.read_text().splitlines())
    return {(service, operation) for service, operation in lines}


def breaches(made: Collection[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each call that the policy lacks, and for each that it grants and nobody makes."""
    granted = {each for call in CALLS for each in granted_by(call)}
    for service, operation in sorted(set(made) - granted):
        yield f"{service} {operation} is called, and no policy grants it"
    for service, operation in sorted(granted - set(made)):
        yield f"{service} {operation} is granted, and no test ever calls it"


def main(folder: Path) -> int:
    """Print the breaches, or how many calls were compared; return an exit status."""
    if not folder.is_dir():
        print(f"no calls were noted in {folder}; run make test and make test-servers first", file=sys.stderr)
        return 1
    made = noted(folder)
    found = list(breaches(made))
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(f"{len(made)} kinds of calls: each is granted, and nothing else")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
