"""
Errors in the words and in the format of the service that the call was for.

Names and texts as AWS sends them: the API references of DynamoDB and Kinesis, pages "Common errors".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import uuid4
from xml.sax.saxutils import escape

from tests.proxy.calls import Call
from tests.proxy.faults import Effect, Fault

__all__ = ["ErrorAnswer", "error_answer"]

THROTTLED = {
    "dynamodb": "ProvisionedThroughputExceededException",
    "kinesis": "ProvisionedThroughputExceededException",
    "sqs": "RequestThrottled",
}
FORM = "application/x-www-form-urlencoded"

# DynamoDB puts a name space before its errors, another one before those that all services share.
SHARED = "com.amazon.coral.service#"
SPACES = {"dynamodb": "com.amazonaws.dynamodb.v20120810#"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """An error, ready to be sent."""

    status: int
    code: str
    content_type: str
    body: bytes
    request_id: str


def error_answer(call: Call, fault: Fault) -> ErrorAnswer:
    """What the client is told instead of the server's answer."""
    is_form = call.content_type == FORM
    exception = "" if is_form else "Exception"
    match fault.effect:
        case Effect.THROTTLE:
            code, text = THROTTLED.get(call.service, f"Throttling{exception}"), "Rate exceeded for the test"
        case Effect.DENY:
            code, text = f"AccessDenied{exception}", not_authorized(call)
        case Effect.EXPIRE:
            code, text = f"ExpiredToken{exception}", "The security token included in the request is expired"
        case Effect.REFUSE:
            code, text = fault.code, "Refused by the test"
        case _:
            code = "InternalServerError" if call.service == "dynamodb" else "InternalFailure"
            text = "The request processing has failed because of an unknown error, exception or failure."
    code = fault.code or code
    status = fault.status if fault.effect is Effect.REFUSE else 400
    if fault.effect in {Effect.FAIL_BEFORE, Effect.FAIL_AFTER}:
        status = 500
    elif is_form and fault.effect in {Effect.DENY, Effect.EXPIRE}:
        status = 403
    request_id = str(uuid4())
    return ErrorAnswer(
        status=status,
        code=code,
        content_type="text/xml" if is_form else call.content_type or "application/x-amz-json-1.1",
        body=encoded(call, code, text, request_id),
        request_id=request_id,
    )


def not_authorized(call: Call) -> str:
    action = f"{call.service}:{call.operation}"
    kind = {"dynamodb": "table/", "kinesis": "stream/"}.get(call.service, "")
    place = min(call.places, default="*")
    resource = place if place.startswith("arn:") else f"arn:aws:{call.service}:{call.region}:000000000000:{kind}{place}"
    return (
        f"User: arn:aws:iam::000000000000:user/test is not authorized to perform: {action} on resource: {resource} "
        f"because no identity-based policy allows the {action} action"
    )


def encoded(call: Call, code: str, text: str, request_id: str) -> bytes:
    if call.content_type == FORM:
        error = f"<Error><Type>Sender</Type><Code>{escape(code)}</Code><Message>{escape(text)}</Message></Error>"
        return f"<ErrorResponse>{error}<RequestId>{request_id}</RequestId></ErrorResponse>".encode()
    space = SPACES.get(call.service, "")
    if space and code.startswith(("AccessDenied", "ExpiredToken")):
        space = SHARED
    answer = {"__type": f"{space}{code}", "message": text}
    return cbor(answer) if "cbor" in call.content_type else json.dumps(answer).encode()


def cbor(answer: dict[str, str]) -> bytes:
    """A map of a few texts in CBOR (RFC 8949): a head with the count, then the texts."""
    return b"".join([cbor_head(5, len(answer)), *(cbor_text(text) for pair in answer.items() for text in pair)])


def cbor_text(text: str) -> bytes:
    content = text.encode()
    return cbor_head(3, len(content)) + content


def cbor_head(kind: int, size: int) -> bytes:
    if size < 24:
        return bytes([kind << 5 | size])
    if size < 2**8:
        return bytes([kind << 5 | 24, size])
    return bytes([kind << 5 | 25]) + size.to_bytes(2, "big")
