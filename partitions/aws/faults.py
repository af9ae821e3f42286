"""
What an error of the AWS SDK means, decided once for every store and source.

Knows no store and no source: they turn a `Fault` into their own errors. `FaultKind` says what can be done about it;
the text says it to a person, with the action, the resource and the region.

Sources: the "Common Errors" and the errors of each operation in the API references of DynamoDB and Kinesis, and the
service models and retry rules that are part of botocore.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from botocore import exceptions as sdk  # type: ignore[import-untyped]  # It has no types.
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from partitions.aws._codes import CODES, REMEDIES, FaultKind

__all__ = ["AWS_ERRORS", "CODES", "Fault", "FaultKind", "answer_of", "cancellation_codes", "fault_of", "item_of"]

AWS_ERRORS: Final = (sdk.BotoCoreError, sdk.ClientError, ResponseParserError, aiohttp.ClientError, OSError)
"""What a call through a client raises, apart from what the user's own credential provider may raise."""

_NO_CREDENTIALS: Final = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.NoAuthTokenError,
    sdk.ProfileNotFound,
)
_EXPIRED: Final = (
    sdk.CredentialRetrievalError,
    sdk.MetadataRetrievalError,
    sdk.RefreshWithMFAUnsupportedError,
    sdk.SSOError,
    sdk.TokenRetrievalError,
)
_WRONG_REGION: Final = (
    sdk.NoRegionError,
    sdk.InvalidRegionError,
    sdk.UnknownRegionError,
    sdk.UnknownEndpointError,
    sdk.ServiceNotInRegionError,
)
_PASSING: Final = (
    sdk.HTTPClientError,
    sdk.ConnectionError,
    sdk.IncompleteReadError,
    sdk.ChecksumError,
    ResponseParserError,
    aiohttp.ClientError,
    OSError,
)
_CLOCK_SIGNS: Final = ("Signature expired", "Signature not yet current")
_CLOCK_REMEDY: Final = (
    "set this machine's clock: a request is signed with its time, which may differ from the service's by five minutes"
)
_PARSER_MODULES: Final = {"botocore.parsers", "aiobotocore.parsers"}
_CREDENTIAL_MODULES: Final = {
    "botocore.credentials",
    "aiobotocore.credentials",
    "botocore.tokens",
    "aiobotocore.tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failed call: what kind of failure, the code of AWS or else the name of the exception, and the whole text."""

    kind: FaultKind
    code: str
    text: str


def fault_of(error: BaseException, *, action: str, resource: str, region: str) -> Fault:
    """
    Say what an error means.

    Args:
        error: What the call raised.
        action: The operation as a policy names it, such as "dynamodb:UpdateItem".
        resource: What was used, such as "table 'leases'".
        region: Where, such as "eu-west-1".

    Returns:
        The fault. An exception that is none of the SDK's is `OTHER`; one that a credential provider raised is
        `EXPIRED` and one that the SDK's parser met in an answer of a wrong make is `PASSING`, whatever their type.
    """
    kind, code, message = _judged(error)
    remedy = _CLOCK_REMEDY if any(sign in message for sign in _CLOCK_SIGNS) else REMEDIES[kind]
    told = message if code in message else f"{code}: {message}" if message else code
    text = f"{action} on {resource} in {region} failed ({told.rstrip('.')}); {remedy}"
    return Fault(kind=kind, code=code, text=text)


def cancellation_codes(error: BaseException) -> tuple[str, ...]:
    """Return the code of each action of a cancelled transaction, "None" for one that was not its cause; else ()."""
    return tuple(reason.get("Code") or "None" for reason in _reasons(error))


def item_of(error: BaseException, action: int = 0) -> dict[str, Any] | None:
    """
    Return the stored item that a refusal carries.

    Args:
        error: The error of a conditional write or of a transaction.
        action: Which action of the transaction is meant.

    Returns:
        The attributes, or None where the error has none: there is no item, or the server did not send it.
    """
    reasons = _reasons(error)
    found = reasons[action] if action < len(reasons) else answer_of(error)
    item: dict[str, Any] | None = found.get("Item") or None
    return item


def answer_of(error: BaseException | None) -> dict[str, Any]:
    """Return the service's answer that an error carries; empty where there was none."""
    # Errors of a broken connection have a `response` too, which is None.
    answer: dict[str, Any] = getattr(error, "response", None) or {}
    return answer


def _reasons(error: BaseException) -> list[dict[str, Any]]:
    return [reason or {} for reason in answer_of(error).get("CancellationReasons") or ()]


def _judged(error: BaseException) -> tuple[FaultKind, str, str]:
    """Return the kind, the code and the SDK's own words."""
    name = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return FaultKind.NO_CREDENTIALS, name, str(error)
    # First, since a provider asks services and reads files of its own: their failures are not those of the call.
    if isinstance(error, _EXPIRED) or _is_from(error, _CREDENTIAL_MODULES):
        return FaultKind.EXPIRED, name, str(error)
    if isinstance(error, sdk.ClientError):
        return _of_answer(error)
    if isinstance(error, _WRONG_REGION):
        return FaultKind.WRONG_REGION, name, str(error)
    if isinstance(error, sdk.ParamValidationError):
        return FaultKind.INVALID, name, str(error)
    if isinstance(error, _PASSING) or _is_from(error, _PARSER_MODULES):
        return FaultKind.PASSING, name, str(error)
    return FaultKind.OTHER, name, str(error)


def _of_answer(error: Any) -> tuple[FaultKind, str, str]:
    """Judge an answer of the service itself."""
    told = error.response.get("Error", {})
    code, message = str(told.get("Code", "")), str(told.get("Message", ""))
    if code == "TransactionCanceledException":
        return _of_cancellation(cancellation_codes(error)), code, message
    if "scoped to a valid region" in message:
        return FaultKind.WRONG_REGION, code, message
    if (kind := CODES.get(code)) is not None:
        return kind, code, message
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return FaultKind.PASSING if status >= 500 else FaultKind.OTHER, code, message


def _of_cancellation(codes: tuple[str, ...]) -> FaultKind:
    """A condition that does not hold outweighs a conflict beside it: trying again cannot make it hold."""
    kinds = {CODES.get(code, FaultKind.OTHER) for code in codes if code != "None"}
    by_weight = (FaultKind.CONDITION, FaultKind.INVALID, FaultKind.CONFLICT, FaultKind.THROTTLED, FaultKind.DENIED)
    return next((kind for kind in by_weight if kind in kinds), FaultKind.OTHER)


def _is_from(error: BaseException, modules: Collection[str]) -> bool:
    """Say whether one of these modules raised it, or called what did: a user's provider may raise anything."""
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_globals.get("__name__") in modules:
            return True
        step = step.tb_next
    return False
