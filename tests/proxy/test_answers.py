"""The proxy's errors, as the SDK reads them: the code and the status of each service and format."""

from __future__ import annotations

import io
from typing import Any

import boto3  # type: ignore[import-untyped]  # It has no types.
import pytest
from botocore.config import Config  # type: ignore[import-untyped]  # It has no types.
from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # It has no types.
from botocore.parsers import BaseCBORParser  # type: ignore[import-untyped]  # It has no types.

from tests.proxy import Call, Effect, Fault, Proxy
from tests.proxy.answers import error_answer

__all__: list[str] = []

CALLS = {
    "dynamodb": lambda client: client.list_tables(),
    "kinesis": lambda client: client.list_streams(),
    "sqs": lambda client: client.list_queues(),
    "sts": lambda client: client.get_caller_identity(),
}

THROTTLED = "ProvisionedThroughputExceededException"


@pytest.mark.usefixtures("aws_dummies")
@pytest.mark.parametrize(
    ("service", "effect", "code", "status"),
    [
        ("dynamodb", Effect.THROTTLE, THROTTLED, 400),
        ("dynamodb", Effect.DENY, "AccessDeniedException", 400),
        ("dynamodb", Effect.EXPIRE, "ExpiredTokenException", 400),
        ("dynamodb", Effect.FAIL_BEFORE, "InternalServerError", 500),
        ("kinesis", Effect.THROTTLE, THROTTLED, 400),
        ("kinesis", Effect.EXPIRE, "ExpiredTokenException", 400),
        ("kinesis", Effect.FAIL_AFTER, "InternalFailure", 500),
        ("sqs", Effect.THROTTLE, "RequestThrottled", 400),
        ("sts", Effect.DENY, "AccessDenied", 403),
        ("sts", Effect.EXPIRE, "ExpiredToken", 403),
        ("sts", Effect.THROTTLE, "Throttling", 400),
    ],
)
def test_error_is_read_by_the_sdk(service: str, effect: Effect, code: str, status: int, proxy: Proxy) -> None:
    """An error in the wrong format becomes an unknown one, and the product's handling of the real one stays unseen."""
    settings = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=30)
    client = boto3.client(service, endpoint_url=proxy.url, config=settings)
    try:
        with proxy.rules.applied(Fault(effect=effect)), pytest.raises(ClientError) as caught:
            CALLS[service](client)
    finally:
        client.close()
    response: Any = caught.value.response

    assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == (code, status)
    assert response["ResponseMetadata"]["RequestId"] != ""


@pytest.mark.parametrize("effect", [Effect.THROTTLE, Effect.DENY])
def test_error_in_cbor_is_a_map_of_its_code_and_text(effect: Effect) -> None:
    """Newer clients of Kinesis speak CBOR and read errors in it."""
    call = Call(
        service="kinesis",
        operation="GetRecords",
        region="us-east-1",
        access_key="test",
        body={},
        content_type="application/cbor",
        client_port=1,
        at_s=0.0,
    )
    answer = error_answer(call, Fault(effect=effect))
    read = BaseCBORParser().parse_data_item(io.BytesIO(answer.body))

    assert (read["__type"], sorted(read), answer.content_type) == (
        answer.code,
        ["__type", "message"],
        "application/cbor",
    )
    assert len(read["message"]) >= 20
