"""What errors of the SDK mean, and where a place is: as the API references and botocore have them."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from botocore import exceptions as sdk  # type: ignore[import-untyped]  # It has no types.
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from partitions.aws.faults import Fault, FaultKind, cancellation_codes, fault_of, item_of
from partitions.aws.places import AwsPlace, parse_place, query_of

__all__: list[str] = []


def answered(code: str, message: str = "", status: int = 400, **more: Any) -> Exception:
    """An answer of the service that is an error."""
    told = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    error: Exception = sdk.ClientError(told, "UpdateItem")
    return error


def cancelled(*codes: str) -> Exception:
    """A transaction that was cancelled, with the reason of each of its actions."""
    reasons = [{"Code": code} for code in codes]
    return answered("TransactionCanceledException", "Transaction cancelled", CancellationReasons=reasons)


def judged(error: BaseException) -> Fault:
    return fault_of(error, action="dynamodb:UpdateItem", resource="table 'leases'", region="eu-west-1")


ERRORS = [
    (answered("InternalServerError", status=500), FaultKind.PASSING),
    (answered("500", status=500), FaultKind.PASSING),
    (answered("503", status=503), FaultKind.PASSING),
    (answered("NewKindOfFailure", status=502), FaultKind.PASSING),
    (sdk.ReadTimeoutError(endpoint_url="u"), FaultKind.PASSING),
    (sdk.ConnectTimeoutError(endpoint_url="u"), FaultKind.PASSING),
    (sdk.EndpointConnectionError(endpoint_url="u"), FaultKind.PASSING),
    (sdk.ConnectionClosedError(endpoint_url="u"), FaultKind.PASSING),
    (sdk.HTTPClientError(error="e"), FaultKind.PASSING),
    (ResponseParserError("cut off"), FaultKind.PASSING),
    (aiohttp.ClientPayloadError(), FaultKind.PASSING),
    (ConnectionResetError(), FaultKind.PASSING),
    (TimeoutError(), FaultKind.PASSING),
    (answered("ProvisionedThroughputExceededException"), FaultKind.THROTTLED),
    (answered("ThrottlingException"), FaultKind.THROTTLED),
    (answered("RequestLimitExceeded"), FaultKind.THROTTLED),
    (answered("LimitExceededException"), FaultKind.THROTTLED),
    (answered("TransactionConflictException"), FaultKind.CONFLICT),
    (answered("TransactionInProgressException"), FaultKind.CONFLICT),
    (answered("ReplicatedWriteConflictException"), FaultKind.CONFLICT),
    (answered("ConditionalCheckFailedException"), FaultKind.CONDITION),
    (cancelled("ConditionalCheckFailed", "None"), FaultKind.CONDITION),
    (cancelled("TransactionConflict", "ConditionalCheckFailed"), FaultKind.CONDITION),
    (cancelled("None", "TransactionConflict"), FaultKind.CONFLICT),
    (cancelled("ThrottlingError", "None"), FaultKind.THROTTLED),
    (cancelled("ProvisionedThroughputExceeded"), FaultKind.THROTTLED),
    (cancelled("ValidationError"), FaultKind.INVALID),
    (answered("AccessDeniedException"), FaultKind.DENIED),
    (answered("UnrecognizedClientException"), FaultKind.DENIED),
    (answered("MissingAuthenticationTokenException"), FaultKind.DENIED),
    (answered("ResourceNotFoundException"), FaultKind.MISSING),
    (answered("ExpiredTokenException"), FaultKind.EXPIRED),
    (sdk.CredentialRetrievalError(provider="p", error_msg="e"), FaultKind.EXPIRED),
    (sdk.UnauthorizedSSOTokenError(), FaultKind.EXPIRED),
    (sdk.NoCredentialsError(), FaultKind.NO_CREDENTIALS),
    (sdk.PartialCredentialsError(provider="p", cred_var="c"), FaultKind.NO_CREDENTIALS),
    (sdk.ProfileNotFound(profile="p"), FaultKind.NO_CREDENTIALS),
    (sdk.NoRegionError(), FaultKind.WRONG_REGION),
    (
        answered("InvalidSignatureException", "Credential should be scoped to a valid region, not 'x'."),
        FaultKind.WRONG_REGION,
    ),
    (answered("InvalidSignatureException", "Signature expired"), FaultKind.DENIED),
    (answered("ValidationException", "The provided key element does not match the schema"), FaultKind.INVALID),
    (answered("UnknownOperationException"), FaultKind.INVALID),
    (sdk.ParamValidationError(report="r"), FaultKind.INVALID),
    (answered("ResourceInUseException"), FaultKind.OTHER),
    (ZeroDivisionError(), FaultKind.OTHER),
]


@pytest.mark.parametrize(
    ("error", "kind"), ERRORS, ids=[f"{number}-{kind.name}" for number, (_, kind) in enumerate(ERRORS)]
)
def test_an_error_has_the_kind_that_says_what_can_be_done(error: Exception, kind: FaultKind) -> None:
    """A fault that passes and is taken for a wrong setting ends a host; the other way round it tries for ever (C36)."""
    assert judged(error).kind is kind


def test_a_fault_names_action_resource_region_the_code_and_what_to_do() -> None:
    """Whoever reads it in a log has nothing else (case C36)."""
    fault = judged(answered("AccessDeniedException", "User: arn:… is not authorized"))

    assert fault == Fault(
        kind=FaultKind.DENIED,
        code="AccessDeniedException",
        text=(
            "dynamodb:UpdateItem on table 'leases' in eu-west-1 failed "
            "(AccessDeniedException: User: arn:… is not authorized); "
            "allow this action on this resource to the identity in use, or use another identity"
        ),
    )


@pytest.mark.parametrize("words", ["Signature expired: 2026 is now earlier", "Signature not yet current: 2"])
def test_a_clock_that_is_off_is_told_as_that(words: str) -> None:
    """The service calls the signature invalid, and whoever reads that looks for a permission."""
    text = judged(answered("InvalidSignatureException", words)).text

    assert text.endswith(
        f"(InvalidSignatureException: {words}); set this machine's clock: a request is signed with its time, "
        "which may differ from the service's by five minutes"
    )


def test_cancellations_are_told_by_action_and_other_errors_have_none() -> None:
    """Whose condition failed is known by the position alone."""
    assert cancellation_codes(cancelled("None", "ConditionalCheckFailed")) == ("None", "ConditionalCheckFailed")
    assert (cancellation_codes(answered("ThrottlingException")), cancellation_codes(OSError())) == ((), ())


def test_an_error_without_an_answer_has_neither_reasons_nor_an_item() -> None:
    """The SDK's error of a closed connection has a `response` that is None."""
    error = sdk.ConnectionClosedError(endpoint_url="http://127.0.0.1:1")

    assert error.response is None
    assert cancellation_codes(error) == ()
    assert item_of(error) is None


def test_the_stored_item_is_found_in_a_refusal_and_in_each_action_of_a_cancelled_transaction() -> None:
    """Where there is none, the server did not send it, or there is no such item."""
    item = {"pk": {"S": "g"}}
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": item}]
    transaction = answered("TransactionCanceledException", CancellationReasons=reasons)

    assert item_of(answered("ConditionalCheckFailedException", Item=item)) == item
    assert item_of(answered("ConditionalCheckFailedException")) is None
    assert [item_of(transaction, action) for action in (0, 1)] == [None, item]


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("", AwsPlace()),
        ("region=eu-west-1", AwsPlace(region="eu-west-1")),
        ("region=us-gov-west-1", AwsPlace(region="us-gov-west-1")),
        ("endpoint_url=http://127.0.0.1:8000", AwsPlace(endpoint_url="http://127.0.0.1:8000")),
        ("endpoint_url=https%3A%2F%2Fx.example&region=ap-southeast-2", AwsPlace(region="ap-southeast-2", endpoint_url="https://x.example")),
    ],
)  # fmt: skip
def test_a_place_is_read_from_a_url_and_written_back(query: str, place: AwsPlace) -> None:
    """What a message shows can be given to another command."""
    assert parse_place(query) == place
    assert parse_place(query_of(place)) == place


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("zone=a", "unknown key 'zone', expected region or endpoint_url"),
        ("region=eu-west-1&region=us-east-1", "region is given twice, as 'eu-west-1' and 'us-east-1'"),
        ("region=", "region is empty"),
        ("region", "region is empty"),
        ("region=Ireland", "region='Ireland' is no region, expected one such as 'eu-west-1'"),
        ("endpoint_url=127.0.0.1:8000", "endpoint_url='127.0.0.1:8000' is no address"),
        ("endpoint_url=http://h:99999", "is no address"),
        ("endpoint_url=http://user:word@h", "endpoint_url='http://…@h' is no address"),
        ("endpoint_url=ftp://h", "is no address"),
        ("&", "unknown key ''"),
    ],
)
def test_a_wrong_place_is_told_in_one_line_with_value_expectation_and_remedy(query: str, told: str) -> None:
    """A mistyped key that was ignored would use another region without a word."""
    with pytest.raises(ValueError, match="; ") as caught:
        parse_place(query)

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
