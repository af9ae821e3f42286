"""Each disturbance against moto: what the client gets, and whether the server has applied the call."""

from __future__ import annotations

import aiohttp
import anyio
import pytest

from tests.proxy import Effect, Fault, Proxy
from tests.proxy.conftest import Table
from tests.servers.raw import Answer, Caller, caller

__all__: list[str] = []

WITHIN_S = 20.0
PATIENCE_S = 0.3
DELAY_S = 1.0


async def outcome(table: Table, sk: str) -> tuple[int | None, str]:
    """Status and error of one addition; no status if the client got no answer."""
    try:
        answer = await table.add(sk)
    except aiohttp.ClientError:
        return (None, "")
    return (answer.status, answer.error)


@pytest.mark.parametrize(
    ("fault", "status", "error", "applied"),
    [
        (Fault(effect=Effect.DELAY, delay_s=0.01), 200, "", 1),
        (Fault(effect=Effect.ANSWER_LATE, delay_s=0.01), 200, "", 1),
        (Fault(effect=Effect.FAIL_BEFORE), 500, "InternalServerError", 0),
        (Fault(effect=Effect.FAIL_AFTER), 500, "InternalServerError", 1),
        (Fault(effect=Effect.DROP_BEFORE), None, "", 0),
        (Fault(effect=Effect.DROP_AFTER), None, "", 1),
        (Fault(effect=Effect.THROTTLE), 400, "ProvisionedThroughputExceededException", 0),
        (Fault(effect=Effect.THROTTLE, code="RequestLimitExceeded"), 400, "RequestLimitExceeded", 0),
        (Fault(effect=Effect.DENY), 400, "AccessDeniedException", 0),
        (Fault(effect=Effect.EXPIRE), 400, "ExpiredTokenException", 0),
        (Fault(effect=Effect.REFUSE, code="TransactionConflictException"), 400, "TransactionConflictException", 0),
    ],
    ids=lambda value: value.effect.value if isinstance(value, Fault) else None,
)
async def test_effect_answers_and_applies_as_it_says(
    fault: Fault, status: int | None, error: str, applied: int, table: Table, proxy: Proxy
) -> None:
    """A 500 that was taken for unapplied, though it was applied, would let a test pass that tests something else."""
    with proxy.rules.applied(fault):
        got = await outcome(table, "p1")
    seen = proxy.calls[-1]

    assert (got, await table.applied("p1")) == ((status, error), applied)
    assert (seen.effects, seen.status, seen.error, seen.forwarded) == ((fault.effect,), status, error, applied)
    assert await outcome(table, "p1") == (200, ""), "a fault that was taken away goes on"


async def test_delay_applies_a_write_that_its_client_has_given_up(table: Table, proxy: Proxy) -> None:
    """Real networks do this: the write lands after the client decided that it had failed."""
    with proxy.rules.applied(Fault(effect=Effect.DELAY, delay_s=DELAY_S)):
        with anyio.move_on_after(PATIENCE_S) as patience:
            await table.add("p1")
        before = await table.applied("p1")
        await anyio.to_thread.run_sync(lambda: proxy.wait_until(lambda: proxy.calls != (), within_s=WITHIN_S))

    assert (patience.cancelled_caught, before, await table.applied("p1")) == (True, 0, 1)


async def test_delays_add_up_before_another_effect(table: Table, proxy: Proxy) -> None:
    """A slow call that then fails is the ordinary way of a server in trouble."""
    delay = Fault(effect=Effect.DELAY, delay_s=0.1)
    with proxy.rules.applied(delay, Fault(effect=Effect.DELAY, delay_s=0.1), Fault(effect=Effect.THROTTLE)):
        got = await outcome(table, "p1")
    seen = proxy.calls[-1]

    assert got == (400, "ProvisionedThroughputExceededException")
    assert (seen.effects, seen.took_s >= 0.2) == ((Effect.DELAY, Effect.DELAY, Effect.THROTTLE), True)


async def test_late_answer_leaves_the_write_applied_while_the_client_waits(table: Table, proxy: Proxy) -> None:
    """Others see the write before its writer knows of it: the window of every lease's validity."""
    with proxy.rules.applied(Fault(effect=Effect.ANSWER_LATE, delay_s=60.0)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(table.add, "p1")
            with anyio.fail_after(WITHIN_S):
                while not await table.applied("p1"):
                    pass
            answered = len(proxy.calls)
            tasks.cancel_scope.cancel()

    assert answered == 0


async def test_repeat_applies_a_call_once_more_after_its_answer(table: Table, proxy: Proxy) -> None:
    """A duplicate that is delivered late must not move a position back; here it must arrive at all."""
    with proxy.rules.applied(Fault(effect=Effect.REPEAT, delay_s=PATIENCE_S)):
        got = await outcome(table, "p1")
        at_once = await table.applied("p1")
        with anyio.fail_after(WITHIN_S):
            while await table.applied("p1") == at_once:
                pass

    assert (got, at_once, await table.applied("p1"), proxy.count("UpdateItem")) == ((200, ""), 1, 2, 1)


async def test_fault_hits_the_chosen_item_alone(table: Table, proxy: Proxy) -> None:
    """A case of one bad partition needs its neighbours in good health."""
    fault = Fault(effect=Effect.FAIL_BEFORE, operation="UpdateItem", when=lambda call: call.mentions("p5"))
    with proxy.rules.applied(fault):
        statuses = {sk: (await outcome(table, sk))[0] for sk in ("p4", "p5", "p6", "p55")}

    assert (statuses, proxy.rules.hits(fault)) == ({"p4": 200, "p5": 500, "p6": 200, "p55": 200}, 1)


async def test_denial_names_action_and_resource(table: Table, proxy: Proxy) -> None:
    """The product's own message has to name both; it can only have them from here."""
    with proxy.rules.applied(Fault(effect=Effect.DENY)):
        answer = await table.add("p1")

    assert answer.body == {
        "__type": "com.amazon.coral.service#AccessDeniedException",
        "message": (
            "User: arn:aws:iam::000000000000:user/test is not authorized to perform: dynamodb:UpdateItem on resource: "
            f"arn:aws:dynamodb:us-east-1:000000000000:table/{table.name} because no identity-based policy allows the "
            "dynamodb:UpdateItem action"
        ),
    }


async def refused_or_list(call: Caller) -> str | int:
    try:
        answer: Answer = await call("dynamodb", "ListTables")
    except aiohttp.ClientConnectorError:
        return "refused"
    except aiohttp.ClientError:
        return "dropped"
    except TimeoutError:
        return "silence"
    return answer.status


async def test_cut_refuses_connections_and_resets_those_that_are_open(proxy: Proxy) -> None:
    """A server that is gone: its clients learn it at once, and find it again at the same address."""
    async with caller(proxy.url) as opened, caller(proxy.url) as new:
        before = await refused_or_list(opened)
        with proxy.cut():
            during = (await refused_or_list(opened), await refused_or_list(new))
        after = (await refused_or_list(opened), await refused_or_list(new))

    # A client that has not noticed the reset yet meets it with its next call.
    assert (before, during[0] in {"refused", "dropped"}, during[1], after) == (200, True, "refused", (200, 200))


async def test_cut_resets_a_call_that_is_under_way(table: Table, proxy: Proxy) -> None:
    """The answer of a write that was applied gets lost with the connection."""
    got: list[tuple[int | None, str]] = []

    async def add() -> None:
        got.append(await outcome(table, "p1"))

    with proxy.rules.applied(Fault(effect=Effect.ANSWER_LATE, delay_s=DELAY_S)):
        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(add)
                while not await table.applied("p1"):
                    pass
                with proxy.cut():
                    while not got:
                        await anyio.lowlevel.checkpoint()

    assert got == [(None, "")]


async def test_silent_cut_answers_nothing_and_forwards_nothing(table: Table, proxy: Proxy) -> None:
    """A network that swallows packets: only a client's own time-outs tell it so."""
    with proxy.cut(silent=True):
        with anyio.move_on_after(PATIENCE_S) as patience:
            await table.add("p1")
    await anyio.to_thread.run_sync(lambda: proxy.wait_until(lambda: proxy.calls != (), within_s=WITHIN_S))
    cut = proxy.calls[-1]

    assert (patience.cancelled_caught, cut.error, cut.forwarded) == (True, "cut", 0)
    assert (await outcome(table, "p1"), await table.applied("p1")) == ((200, ""), 1)


async def test_silent_cut_keeps_the_answer_of_a_call_that_is_under_way(table: Table, proxy: Proxy) -> None:
    """The answer that comes after the cut began is lost as well."""
    with proxy.rules.applied(Fault(effect=Effect.ANSWER_LATE, delay_s=DELAY_S)):
        async with anyio.create_task_group() as tasks:
            results: list[tuple[int | None, str]] = []

            async def add() -> None:
                results.append(await outcome(table, "p1"))

            tasks.start_soon(add)
            with anyio.fail_after(WITHIN_S):
                while not await table.applied("p1"):
                    pass
            with proxy.cut(silent=True):
                await anyio.sleep(DELAY_S + PATIENCE_S)
                during = list(results)

    assert (during, results) == ([], [(None, "")])
