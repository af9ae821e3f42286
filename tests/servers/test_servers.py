"""The servers: each answers, on loopback alone, and is gone after its stop and after its starter's death."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from tests.servers import KINDS, ServerFailed, ServerNotInstalled, processes, running, started
from tests.servers.kinds import Kind
from tests.servers.processes import launch
from tests.servers.raw import caller

__all__: list[str] = []

GONE_S_MAX = 20.0
POLL_S = 0.02

SERVERS = [
    "moto",
    *(
        pytest.param(name, marks=pytest.mark.servers)
        for name in ("ministack", "dynalite", "kinesis-local", "kinesalite")
    ),
]
OF_DYNAMODB = ["moto", *(pytest.param(name, marks=pytest.mark.servers) for name in ("ministack", "dynalite"))]
OF_KINESIS = [
    "moto",
    *(pytest.param(name, marks=pytest.mark.servers) for name in ("ministack", "kinesis-local", "kinesalite")),
]

# A server that answers every call, and does not care for SIGTERM.
STUBBORN = """
import http.server, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

STARTER = """
import sys
from tests.servers import started
with started(sys.argv[1]) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The address of the session's server of the name that the test is parametrised with."""
    name = request.param.replace("-", "_")
    return str(request.getfixturevalue(f"{name}_url"))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_gone_soon(pid: int) -> bool:
    until_s = time.monotonic() + GONE_S_MAX
    while is_alive(pid) and time.monotonic() < until_s:
        time.sleep(POLL_S)
    return not is_alive(pid)


def accepts(address: str, port: int) -> bool:
    with socket.socket() as trial:
        trial.settimeout(5)
        return trial.connect_ex((address, port)) == 0


@pytest.mark.parametrize("url", OF_DYNAMODB, indirect=True)
async def test_server_of_dynamodb_gives_back_what_was_put(url: str) -> None:
    """A server may answer its health check and still serve nothing."""
    item = {"pk": {"S": "group"}, "sk": {"S": "p1"}, "token": {"N": "7"}}
    key = {"pk": item["pk"], "sk": item["sk"]}
    async with caller(url) as call:
        await call.make_table("answers")
        put = await call("dynamodb", "PutItem", TableName="answers", Item=item)
        got = await call("dynamodb", "GetItem", TableName="answers", Key=key, ConsistentRead=True)

    assert (put.status, got.body["Item"]) == (200, item)


@pytest.mark.parametrize("url", OF_KINESIS, indirect=True)
async def test_server_of_kinesis_gives_back_what_was_put(url: str) -> None:
    """A server may answer its health check and still serve nothing."""
    data = b64encode(b"record").decode()
    async with caller(url) as call:
        await call("kinesis", "CreateStream", StreamName="answers", ShardCount=1)
        status = ""
        while status != "ACTIVE":
            answer = await call("kinesis", "DescribeStreamSummary", StreamName="answers")
            status = answer.body["StreamDescriptionSummary"]["StreamStatus"]
        put = await call("kinesis", "PutRecord", StreamName="answers", PartitionKey="k", Data=data)
        where = {"StreamName": "answers", "ShardId": put.body["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = await call("kinesis", "GetShardIterator", **where)
        got = await call("kinesis", "GetRecords", ShardIterator=iterator.body["ShardIterator"])

    assert [b64decode(record["Data"]) for record in got.body["Records"]] == [b"record"]


@pytest.mark.parametrize("name", SERVERS)
def test_server_serves_loopback_alone_and_is_gone_after_its_stop(name: str, tmp_path: Path) -> None:
    """One that stays takes memory from the tests that follow; one on every interface serves strangers."""
    with started(name, log_folder=tmp_path) as server:
        reached = (accepts("127.0.0.1", server.port), accepts("127.0.0.2", server.port), is_alive(server.pid))
        began_s = time.monotonic()
    stopped_s = time.monotonic() - began_s

    assert reached == (True, False, True)
    assert (is_alive(server.pid), accepts("127.0.0.1", server.port)) == (False, False)
    assert stopped_s < processes.STOP_S_MAX, "it did not care for SIGTERM"


@pytest.mark.parametrize("name", SERVERS)
def test_server_ends_when_its_starter_was_killed(name: str) -> None:
    """A run of tests that is killed stops nothing; whatever it started would stay for ever."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        was_alive = is_alive(pid)
        starter.kill()

    assert (was_alive, is_gone_soon(pid)) == (True, True)


async def test_server_comes_back_on_the_same_port() -> None:
    """An outage ends with the server where it was; a client that was told its address knows no other."""
    async with running("moto") as first:
        pass
    async with running("moto", port=first.port) as second, caller(first.url) as call:
        answer = await call("dynamodb", "ListTables")

    assert (answer.status, first.pid == second.pid) == (200, False)


def test_server_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that waits for a server's consent may wait for ever."""
    monkeypatch.setattr(processes, "STOP_S_MAX", 1.0)
    command = [sys.executable, "-c", STUBBORN]
    server = launch(
        Kind(name="stubborn", speaks="dynamodb", command=lambda port: [*command, str(port)]), None, tmp_path
    )

    server.stop()

    assert is_alive(server.pid) is False


def test_server_that_fails_at_its_start_shows_its_log(tmp_path: Path) -> None:
    """What it said is the only clue, and the folder may be gone when somebody reads the report."""
    command = [sys.executable, "-c", "import sys; sys.exit('no such setting: colour')"]
    failing = Kind(name="failing", speaks="dynamodb", command=lambda _: command)

    with pytest.raises(ServerFailed) as caught:
        launch(failing, 20_000, tmp_path)

    log = tmp_path / "failing-20000.log"
    assert str(caught.value) == (
        f"failing ended at its start with status 1; the end of its log {log}:\nno such setting: colour"
    )


def test_server_that_does_not_answer_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that failed leaves nothing behind, or the next one meets it."""
    monkeypatch.setattr(processes, "START_S_MAX", 1.0)
    command = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
    silent = Kind(name="silent", speaks="dynamodb", command=lambda _: command)

    with pytest.raises(ServerFailed, match="silent did not answer within 1 s"):
        launch(silent, 20_001, tmp_path)

    assert is_alive(int((tmp_path / "silent-20001.log").read_text())) is False


def test_server_that_is_not_installed_names_the_remedy() -> None:
    """A test that passes without its server shows nothing; one that fails must say what to do."""
    absent = replace(KINDS["dynalite"], stamp=Path(__file__).parent.parent.parent / "absent")

    with pytest.raises(ServerNotInstalled) as caught:
        absent.check_installed()

    assert str(caught.value) == "dynalite is not installed: there is no absent; run 'make servers'"


def test_server_for_a_person_runs_until_ctrl_c() -> None:
    """The command is how a test that failed is looked into."""
    command = [sys.executable, "-m", "tests.servers", "moto"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        pid = int(line.partition("pid ")[2].partition(",")[0])
        was_alive = is_alive(pid)
        process.send_signal(signal.SIGINT)
        try:
            status = process.wait(GONE_S_MAX)
        finally:
            # The end of the block waits for it, however long.
            process.kill()

    assert (was_alive, status, is_alive(pid)) == (True, 0, False), line
