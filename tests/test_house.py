"""
House rules that no tool checks: sizes, docstrings, public names, sleeps, skips, addresses and paths of one machine.

Every rule is a function from the text of a file to its breaches, and each has a text that must be found guilty.
"""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import FLIGHTS

__all__: list[str] = []

ROOT = Path(__file__).parent.parent
PRODUCT = tuple(sorted([*ROOT.glob("partitions/**/*.py"), *ROOT.glob("processor_host/**/*.py")]))
TESTS = tuple(sorted(ROOT.glob("tests/**/*.py")))
MADE_BY_TOOLS = {"__pycache__", "build", "dist", "node_modules"}

MODULE_LINES_MAX = 350
SLEEP_S_MIN = 0.05
MARKERS_OF_REAL_TIME = {"processes", "whole_year", "bench"}
SKIPS = {"skip", "skipif", "xfail", "importorskip"}

# In two pieces, so that this file passes its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:wor" + r"k|roo" + r"t|home/\w+|tmp/brief)/")
PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+")

Rule = Callable[[str], Iterator[str]]


def too_long(text: str) -> Iterator[str]:
    if (lines := len(text.splitlines())) > MODULE_LINES_MAX:
        yield f"{lines} lines, at most {MODULE_LINES_MAX}"


def undocumented_module(text: str) -> Iterator[str]:
    if not ast.get_docstring(ast.parse(text)):
        yield "no docstring"


def names_no_public(text: str) -> Iterator[str]:
    """A module that defines or passes on anything says what of it is public."""
    body = ast.parse(text).body
    names = {target.id for node in body for target in targets(node) if isinstance(target, ast.Name)}
    if "__all__" not in names and any(not isinstance(node, ast.Expr) for node in body):
        yield "no __all__"


def swallows_everything(text: str) -> Iterator[str]:
    """A handler for every exception is a containment boundary, and a comment in or above it says of what."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and catches_everything(node):
            around = lines[node.lineno - 2 : node.body[0].end_lineno]
            if not any("#" in line for line in around):
                yield f"line {node.lineno}: catches every exception, and no comment says why"


def sleeps(text: str) -> Iterator[str]:
    """A sleep on the real clock hides a race on a fast machine and shows one on a slow one."""
    tree = ast.parse(text)
    if MARKERS_OF_REAL_TIME & set(module_markers(tree)):
        return
    exempt = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and MARKERS_OF_REAL_TIME & {mark for decorator in node.decorator_list for mark in marks_in(decorator)}
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node not in exempt and literal_sleep_s(node) >= SLEEP_S_MIN:
            yield f"line {node.lineno}: sleeps {literal_sleep_s(node)} s"


def skips(text: str) -> Iterator[str]:
    """A skipped test passes on the machine where it would have failed."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and dotted(node).removeprefix("pytest.").removeprefix("mark.") in SKIPS:
            yield f"line {node.lineno}: {dotted(node)}"


def unreasoned_tests(text: str) -> Iterator[str]:
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for function in functions:
        if function.name.startswith("test_") and not ast.get_docstring(function):
            yield f"line {function.lineno}: {function.name} does not say its reason"


def machine_paths(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := MACHINE_PATH.search(line):
            yield f"line {number}: {found.group()}"


def unpinned(text: str) -> Iterator[str]:
    """Only `name==version`: no address of a registry, no hash, no option."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("#") and not PIN.fullmatch(line):
            yield f"line {number}: {line}"


def targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def catches_everything(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or dotted(kind) in {"Exception", "BaseException"} for kind in kinds)


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an expression; empty where it is none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def marks_in(node: ast.expr) -> Iterator[str]:
    """The names of the `pytest.mark.<name>` in an expression."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and dotted(inner.value) == "pytest.mark":
            yield inner.attr


def module_markers(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(dotted(target) == "pytestmark" for target in node.targets):
            yield from marks_in(node.value)


def literal_sleep_s(call: ast.Call) -> float:
    """The seconds of a sleep that are written out in the call; 0 for any other call."""
    if dotted(call.func) not in {"time.sleep", "asyncio.sleep", "anyio.sleep", "sleep"} or not call.args:
        return 0.0
    argument = call.args[0]
    written = isinstance(argument, ast.Constant) and isinstance(argument.value, int | float)
    return float(ast.literal_eval(argument)) if written else 0.0


def breaches(rule: Rule, files: tuple[Path, ...]) -> list[str]:
    return [f"{file.relative_to(ROOT)}: {breach}" for file in files for breach in rule(file.read_text("utf-8"))]


def texts() -> tuple[Path, ...]:
    """Every text file of the tree; of the folders with a dot only `.ci`, since tools keep theirs there."""
    found: list[Path] = []
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name == ".ci" or not (name.startswith(".") or name in MADE_BY_TOOLS)]
        found += [Path(folder, name) for name in names]
    return tuple(sorted(file for file in found if is_text(file)))


def is_text(file: Path) -> bool:
    try:
        return "\0" not in file.read_text("utf-8")
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("rule", [too_long, undocumented_module, names_no_public, swallows_everything])
def test_product_modules_keep_the_house_rules(rule: Rule) -> None:
    """A reader finds one idea in a module, told in its head, with its public names."""
    assert breaches(rule, PRODUCT) == []


@pytest.mark.parametrize("rule", [undocumented_module, unreasoned_tests, skips])
def test_tests_keep_the_house_rules(rule: Rule) -> None:
    """A test without a reason cannot be judged, and a skipped one judges nothing."""
    assert breaches(rule, TESTS) == []


def test_tests_do_not_sleep_unless_they_have_real_processes() -> None:
    """Time in tests is virtual; only a real process needs real seconds."""
    processes = ROOT / "tests" / "processes"

    assert breaches(sleeps, tuple(file for file in TESTS if processes not in file.parents)) == []


def test_no_text_names_a_path_of_one_machine() -> None:
    """Such a path works for its writer alone."""
    assert breaches(machine_paths, texts()) == []


def test_constraints_are_exact_versions_of_everything_the_project_asks_for() -> None:
    """A name without a pin changes under a test; an address of a registry fails where another one is used."""
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    pinned = {normal(line.partition("==")[0]) for line in constraints.splitlines() if not line.startswith("#")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]

    assert list(unpinned(constraints)) == []
    assert {normal(re.split(r"[\[<>=!~; ]", name)[0]) for name in asked} - pinned == set()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    ("rule", "guilty"),
    [
        (too_long, "x = 1\n" * 351),
        (undocumented_module, "x = 1\n"),
        (names_no_public, '"""Doc."""\nx = 1\n'),
        (swallows_everything, "try:\n    x = 1\nexcept Exception:\n    x = 2\n"),
        (swallows_everything, "try:\n    x = 1\nexcept (ValueError, BaseException):\n    x = 2\n"),
        (sleeps, "import anyio\nasync def test_a():\n    await anyio.sleep(0.05)\n"),
        (sleeps, "from time import sleep\nsleep(1)\n"),
        (skips, "import pytest\n@pytest.mark.skipif(True, reason='')\ndef test_a(): ...\n"),
        (unreasoned_tests, "async def test_a(): ...\n"),
        (machine_paths, "open('/wor" + "k/main/x')\n"),
        (unpinned, "anyio>=4\n"),
        (unpinned, "anyio @ https://host.example/anyio.whl\n"),
    ],
)
def test_house_rules_find_a_guilty_text(rule: Rule, guilty: str) -> None:
    """A rule that finds nothing anywhere would look kept."""
    assert list(rule(guilty)) != []


def test_sleeps_are_allowed_where_a_marker_says_real_time() -> None:
    """The tests with real processes wait for them."""
    marked = "import pytest, time\n@pytest.mark.processes\ndef test_a():\n    time.sleep(1)\n"
    marked_module = "import pytest, time\npytestmark = [pytest.mark.processes]\ndef test_a():\n    time.sleep(1)\n"

    assert [*sleeps(marked), *sleeps(marked_module)] == []


def test_flights_of_the_clone_are_the_first_of_the_year_in_order(flights_file: Path) -> None:
    """Sums and orders in other tests are computed from this file; a shortened one would shorten them too."""
    with gzip.open(flights_file) as lines:
        ids = [json.loads(line)["id"] for line in lines]

    assert ids == list(range(FLIGHTS))
