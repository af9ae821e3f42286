"""
One call on its way through the proxy: disturbed as the rules say, forwarded, answered and noted.

Bodies pass byte by byte, those of event streams as they come. The head keeps what is the client's, `Host` included,
since that is signed. It knows neither threads nor ports: the proxy gives it requests on one loop.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import anyio
import anyio.abc
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from tests.proxy.answers import error_answer
from tests.proxy.calls import CAPACITY_REPORTED, Call, read_call, units
from tests.proxy.faults import Effect, Fault, Rules
from tests.proxy.notes import Notes

__all__ = ["Relay"]

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "expect"}
)
# What aiohttp would add to a request that lacks it.
ADDED = frozenset({"User-Agent", "Accept", "Accept-Encoding", "Content-Type"})
EVENT_STREAM = "application/vnd.amazon.eventstream"

UNFORWARDED = frozenset(
    {Effect.FAIL_BEFORE, Effect.DROP_BEFORE, Effect.THROTTLE, Effect.DENY, Effect.EXPIRE, Effect.REFUSE}
)
UNANSWERED = frozenset({Effect.DROP_BEFORE, Effect.DROP_AFTER})
REPLACED = (UNFORWARDED | {Effect.FAIL_AFTER}) - UNANSWERED


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """What the server answered."""

    status: int
    headers: CIMultiDict[str]
    body: bytes


class Relay:
    """Forwards calls to one server."""

    def __init__(
        self,
        *,
        upstream_url: str,
        client: aiohttp.ClientSession,
        rules: Rules,
        notes: Notes,
        tasks: anyio.abc.TaskGroup,
        asks_capacity: bool,
    ) -> None:
        self.upstream_url = upstream_url
        self.client = client
        self.rules = rules
        self.notes = notes
        self.tasks = tasks
        self.asks_capacity = asks_capacity
        self.mended = anyio.Event()
        """Set unless the network is cut in silence: then nothing is forwarded or answered until it is."""
        self.mended.set()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer for the client; one that was cut off instead is sent nothing of it."""
        at_s = time.monotonic()
        peer = request.transport.get_extra_info("peername") if request.transport else None
        body = await request.content.read()
        call = read_call(
            path=request.path,
            headers=request.headers,
            body=body,
            client_port=peer[1] if peer else 0,
            at_s=at_s,
        )
        self.notes.note_arrival(call)
        if not self.mended.is_set():
            return await self.cut_off(request, call)
        try:
            faults = self.rules.decide(call)
        # A test's predicate may raise anything; the test hears of it when the proxy stops.
        except Exception as error:
            self.notes.note_broken(error)
            raise
        call = replace(call, effects=tuple(fault.effect for fault in faults))
        for fault in faults:
            if fault.effect is Effect.DELAY:
                await anyio.sleep(fault.delay_s)
        fate = faults[-1] if faults and faults[-1].effect is not Effect.DELAY else None
        # Also a call that waited while the network was cut does not get through.
        if not self.mended.is_set():
            return await self.cut_off(request, call)
        if fate is not None and fate.effect in UNFORWARDED:
            return self.end(request, call, fate, None)
        return await self.pass_on(request, call, fate, body)

    async def pass_on(
        self, request: web.BaseRequest, call: Call, fate: Fault | None, body: bytes
    ) -> web.StreamResponse:
        asked = call.body.get("ReturnConsumedCapacity", "NONE") != "NONE"
        if not asked and self.asks_capacity and call.operation in CAPACITY_REPORTED:
            asked, body = True, json.dumps({**call.body, "ReturnConsumedCapacity": "TOTAL"}).encode()
        url = URL(self.upstream_url + request.raw_path, encoded=True)
        headers = passed(request.headers)
        try:
            async with self.client.request(
                request.method, url, data=body, headers=headers, skip_auto_headers=ADDED, allow_redirects=False
            ) as answer:
                call = replace(call, forwarded=1)
                if answer.content_type == EVENT_STREAM and fate is None:
                    return await self.stream(request, call, answer)
                got = Forwarded(status=answer.status, headers=passed(answer.headers), body=await answer.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            # As it would look without a proxy: no server, no answer.
            return self.drop(request, replace(call, error=type(error).__name__))
        if asked:
            read_units, write_units = units(call.operation, read_json(got))
            call = replace(call, read_units=read_units, write_units=write_units)
        if fate is not None and fate.effect is Effect.ANSWER_LATE:
            await anyio.sleep(fate.delay_s)
        if fate is not None and fate.effect is Effect.REPEAT:
            self.tasks.start_soon(self.repeat, request.method, url, headers, body, fate.delay_s, name="repeat")
        if not self.mended.is_set():
            return await self.cut_off(request, call)
        return self.end(request, call, fate, got)

    async def stream(self, request: web.BaseRequest, call: Call, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Pass an answer on as it comes, until either side ends it."""
        response = web.StreamResponse(status=answer.status, headers=passed(answer.headers))
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await self.mended.wait()
                await response.write(chunk)
            await response.write_eof()
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            return self.drop(request, replace(call, status=answer.status, error=type(error).__name__))
        self.finish(replace(call, status=answer.status))
        return response

    async def repeat(self, method: str, url: URL, headers: CIMultiDict[str], body: bytes, delay_s: float) -> None:
        """Send a request again, and let the answer go nowhere."""
        await anyio.sleep(delay_s)
        try:
            async with self.client.request(method, url, data=body, headers=headers, skip_auto_headers=ADDED) as answer:
                await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            self.notes.note_broken(error)

    def end(
        self, request: web.BaseRequest, call: Call, fate: Fault | None, got: Forwarded | None
    ) -> web.StreamResponse:
        """Note the call, and answer it as its fate is; without a fate as the server did."""
        if fate is not None and fate.effect in UNANSWERED:
            return self.drop(request, call)
        if fate is not None and fate.effect in REPLACED:
            error = error_answer(call, fate)
            self.finish(replace(call, status=error.status, error=error.code))
            headers = {"Content-Type": error.content_type, "x-amzn-RequestId": error.request_id}
            return web.Response(status=error.status, body=error.body, headers=headers)
        if got is None:
            raise AssertionError(f"{call.operation} was neither forwarded nor refused: {fate}")
        error_name = str(read_json(got).get("__type", "")).rpartition("#")[2] if got.status >= 400 else ""
        self.finish(replace(call, status=got.status, error=error_name))
        return web.Response(status=got.status, body=got.body, headers=got.headers)

    async def cut_off(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        """Nothing until the network is mended, then the end of the connection."""
        await self.mended.wait()
        return self.drop(request, replace(call, error="cut"))

    def drop(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        """Reset the connection."""
        self.finish(call)
        if request.transport is not None:
            request.transport.abort()
        # The loop of the connection wants an answer; it finds nobody to send it to.
        return web.Response(status=502)

    def finish(self, call: Call) -> None:
        self.notes.note_end(replace(call, took_s=time.monotonic() - call.at_s))


def passed(headers: Mapping[str, str] | CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The headers without those that are about one connection."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP)


def read_json(got: Forwarded) -> Mapping[str, Any]:
    """The answer's body; empty where it is no JSON object."""
    if "json" not in got.headers.get("Content-Type", ""):
        return {}
    try:
        read = json.loads(got.body)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
