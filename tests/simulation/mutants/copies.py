"""Copies of the product in folders of their own, each with one mutation or none, beside the tests as they are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.simulation.mutants.mutation import Mutation

__all__ = ["ROOT", "check_applies", "copy_product"]

ROOT: Final = Path(__file__).resolve().parents[3]
PRODUCT: Final = ("partitions", "processor_host")


def check_applies(mutation: Mutation) -> None:
    """
    Make sure that a mutation changes its module into another one that can be compiled.

    Raises:
        ValueError: its text is not there exactly once.
        SyntaxError: the changed module is none.
    """
    path = ROOT / mutation.file
    compile(mutation.applied_to(path.read_text("utf-8")), str(path), "exec")


def copy_product(folder: Path, mutation: Mutation | None) -> None:
    """
    Fill an empty folder: a run in it, as `python -m tests…`, imports the copy and no other product.

    Raises:
        ValueError: the text of the mutation is not there exactly once.
    """
    for package in PRODUCT:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").symlink_to(ROOT / "tests", target_is_directory=True)
    if mutation is not None:
        path = folder / mutation.file
        path.write_text(mutation.applied_to(path.read_text("utf-8")), "utf-8")
