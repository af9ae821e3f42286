"""
The Dockerfile, without a container engine: what it copies is enough to build from, and its entry point
is a good process 1.

That it builds on the images it names is not shown here; `deploy/README.md` says so.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shlex
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from tests.deploy.artefacts.conftest import Packages
from tests.deploy.artefacts.tools import DEPLOY, ROOT, called, tool
from tests.processes.harness import Group, Host
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = [pytest.mark.deploy, pytest.mark.xdist_group("installed")]

DOCKERFILE = DEPLOY / "Dockerfile"
IGNORED = DEPLOY / "Dockerfile.dockerignore"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile in order, each with the rest of its line."""
    lines = [line for line in DOCKERFILE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined)]


def last(name: str) -> str:
    """What the last instruction of that name says: the one that the image has."""
    return [rest for each, rest in instructions() if each == name][-1]


def copied() -> list[str]:
    """The files and folders of this tree that the image is built from."""
    sources = [shlex.split(rest) for name, rest in instructions() if name == "COPY"]
    return [source for words in sources if not words[0].startswith("--from") for source in words[:-1]]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """A group whose folder has a processor of the user's own, as /app has."""
    shutil.copy(ROOT / "tests" / "processes" / "journal.py", tmp_path)
    with start_blocking_portal() as portal:
        made = Group(tmp_path, portal)
        try:
            yield made
        finally:
            made.close()


def test_dockerfile_passes_its_linter() -> None:
    """Hadolint knows what builds and still goes wrong later, as a shell form or an unpinned base."""
    assert called(tool("hadolint", DOCKERFILE)) == (0, "")


def test_image_runs_as_a_user_by_number_and_has_two_stages() -> None:
    """Kubernetes refuses a name for `runAsNonRoot`; compilers and caches stay in the first stage."""
    stages = [index for index, (name, _) in enumerate(instructions()) if name == "FROM"]
    final = instructions()[stages[-1] :]

    assert len(stages) == 2
    assert [name for name, _ in final if name == "RUN"] == []
    uid = last("USER").partition(":")[0]
    assert uid.isdecimal()
    assert int(uid) > 0


def test_image_builds_the_same_wheel_from_what_it_copies(packages: Packages, tmp_path: Path) -> None:
    """A file that the build needs and the Dockerfile leaves out, or its ignore file, breaks the build elsewhere."""
    kept = [line.removeprefix("!") for line in IGNORED.read_text("utf-8").splitlines() if line.startswith("!")]
    assert sorted(copied()) == sorted(kept)
    for name in copied():
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / "src" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (tmp_path / "src").mkdir(exist_ok=True)
            shutil.copy(source, tmp_path / "src")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    made = tool("python", "-m", "pip", "wheel", "--no-deps", *quiet, "--wheel-dir", tmp_path, ".")

    status, said = called(made, folder=tmp_path / "src")

    assert status == 0, said
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(packages.wheel) as released:
        assert sorted(ours.namelist()) == sorted(released.namelist())
    (wanted,) = [words for words in runs() if "wheel" in words]
    assert {"--no-deps", "--wheel-dir"} < set(wanted)


def runs() -> list[list[str]]:
    """Each command of the first stage, in words."""
    commands = [part for name, rest in instructions() if name == "RUN" for part in rest.split("&&")]
    return [shlex.split(command) for command in commands]


def test_image_gets_the_pinned_versions() -> None:
    """Without the constraints two builds of one commit differ."""
    (install,) = [words for words in runs() if "install" in words]

    assert install[install.index("--constraint") + 1] in copied()
    assert [word for word in install if fnmatch.fnmatch("/wheels/processor_host-0.1.0-py3-none-any.whl", word)] != []


def test_c60_sigterm_to_the_entry_point_as_process_one_ends_the_record_and_frees_every_lease(
    group: Group, installed: Path
) -> None:
    """The entry point of the image, from the wheel: a shell in between, or no handler, would make every stop a kill."""
    record_s = 3.0
    entry = json.loads(last("ENTRYPOINT"))
    command = [str(installed / "bin" / entry[0]), *entry[1:]]
    group.create(4)
    # Without the path of this tree: what runs is what is installed.
    host = group.start(
        "a",
        processor="journal:Journal",
        lease_duration_s=6.0,
        record_s=record_s,
        before=unshared(),
        command=command,
        env={"PYTHONPATH": ""},
    )
    first = process_one(group, host)
    group.wait_balanced([host])
    assert f"{installed}/bin/".encode() in Path(f"/proc/{first}/cmdline").read_bytes()
    group.put(1, ["p2"])
    group.wait_until("the record is in hand", lambda: bool(group.journals.started()), 10)
    assert {each.pid for each in group.journals.read()} == {1}
    told_s = now_s()
    os.kill(first, getattr(signal, last("STOPSIGNAL")))
    status = host.wait(20)
    took_s = now_s() - told_s

    figure(f"the entry point ended {took_s:.2f} s after SIGTERM with a record of {record_s} s in hand (bound 8 s)")
    assert status == 0
    assert took_s <= 8.0
    assert [(each.partition, each.value) for each in group.journals.ended()] == [("p2", "1")]
    leases = group.leases.leases()
    assert leases["p2"].position == "1"
    assert [item.owner for item in leases.values()] == [None] * 4


def unshared() -> list[str]:
    """What runs a command as process 1 of a namespace of its own."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    prefix = ["unshare", *as_root, "--pid", "--fork", "--mount-proc", "--kill-child"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, f"no process can be process 1 here; run this as root: {tried.stderr}"
    return prefix


def process_one(group: Group, host: Host) -> int:
    """The process id, seen from here, of the process 1 that `unshare` has started."""
    children = Path(f"/proc/{host.pid}/task/{host.pid}/children")
    (pid,) = group.wait_until("unshare has started its child", lambda: children.read_text().split(), 10)
    return int(pid)
