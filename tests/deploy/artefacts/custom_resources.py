"""
Judge resources of operators by published models: a list of them as JSON on standard input, their faults on standard
output.

Run by the Python of `.venv-deploy`, and knows only what is installed there. The models are made from the operators' own
definitions. They take what they do not know, so what comes back from a model is compared with what went in.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from cloudcoil.models.keda.v1alpha1 import ScaledObject  # type: ignore[import-not-found]  # Not in this environment.
from cloudcoil.models.prometheus_operator.v1 import PodMonitor  # type: ignore[import-not-found]  # The same.
from pydantic import ValidationError

__all__ = ["main"]

MODELS = {("keda.sh/v1alpha1", "ScaledObject"): ScaledObject, ("monitoring.coreos.com/v1", "PodMonitor"): PodMonitor}


def main() -> int:
    """Print each fault on a line of its own."""
    faults = [fault for resource in json.load(sys.stdin) for fault in faults_of(resource)]
    print("\n".join(faults))
    return 1 if faults else 0


def faults_of(resource: dict[str, Any]) -> Iterator[str]:
    """What is wrong with one resource."""
    kind = resource["apiVersion"], resource["kind"]
    if kind not in MODELS:
        yield f"{' '.join(kind)}: no model is known"
        return
    try:
        known = MODELS[kind].model_validate(resource).model_dump(mode="json", by_alias=True, exclude_unset=True)
    except ValidationError as error:
        yield from (f"{resource['kind']} {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return
    yield from (f"{resource['kind']} {path}: is not in the definition" for path in unknown(resource, known, ""))


def unknown(given: Any, known: Any, path: str) -> Iterator[str]:
    """The paths of what was given and is not known."""
    if isinstance(given, dict):
        for name, value in given.items():
            if not isinstance(known, dict) or name not in known:
                yield f"{path}.{name}"
            else:
                yield from unknown(value, known[name], f"{path}.{name}")
    elif isinstance(given, list) and isinstance(known, list):
        for index, (value, other) in enumerate(zip(given, known, strict=True)):
            yield from unknown(value, other, f"{path}[{index}]")


if __name__ == "__main__":
    sys.exit(main())
