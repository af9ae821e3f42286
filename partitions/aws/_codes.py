"""
The error codes of AWS and what each kind of them means for whoever made the call.

Knows no SDK: the codes are texts.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["CODES", "REMEDIES", "FaultKind"]


class FaultKind(Enum):
    """What can be done about a failed call."""

    PASSING = "passing"
    """Nobody knows whether it was applied: a time-out, a broken connection, a 5xx. Try again later."""
    THROTTLED = "throttled"
    """Not applied; wait longer before the next try."""
    CONFLICT = "conflict"
    """Not applied, because a transaction had the item; try again soon."""
    CONDITION = "condition"
    """Not applied, because the condition does not hold: an answer, not a failure."""
    DENIED = "denied"
    """The identity may not do this."""
    MISSING = "missing"
    """There is no such table or stream in this region."""
    EXPIRED = "expired"
    """The credentials ran out, or could not be refreshed."""
    NO_CREDENTIALS = "no credentials"
    """No credentials were found at all."""
    WRONG_REGION = "wrong region"
    """No region is set, or one that does not fit the endpoint."""
    INVALID = "invalid"
    """The service does not understand the request, as with keys of another schema."""
    OTHER = "other"
    """None of these; `code` tells more."""


_BY_KIND: Final[dict[FaultKind, tuple[str, ...]]] = {
    FaultKind.PASSING: (
        "InternalError", "InternalFailure", "InternalFailureException", "InternalServerError", "RequestTimeout",
        "RequestTimeoutException", "ServiceUnavailable", "ServiceUnavailableException",
    ),
    FaultKind.THROTTLED: (
        "BandwidthLimitExceeded", "KMSThrottlingException", "LimitExceededException", "PriorRequestNotComplete",
        "ProvisionedThroughputExceeded", "ProvisionedThroughputExceededException", "RequestLimitExceeded",
        "RequestThrottled", "RequestThrottledException", "SlowDown", "ThrottledException", "Throttling",
        "ThrottlingError", "ThrottlingException", "TooManyRequestsException",
    ),
    FaultKind.CONFLICT: (
        "ReplicatedWriteConflictException", "TransactionConflict", "TransactionConflictException",
        "TransactionInProgressException",
    ),
    FaultKind.CONDITION: ("ConditionalCheckFailed", "ConditionalCheckFailedException"),
    FaultKind.DENIED: (
        "AccessDenied", "AccessDeniedException", "AuthFailure", "IncompleteSignature", "IncompleteSignatureException",
        "InvalidClientTokenId", "InvalidSignatureException", "KMSAccessDeniedException", "KMSDisabledException",
        "KMSOptInRequired", "MissingAuthenticationToken", "MissingAuthenticationTokenException", "NotAuthorized",
        "NotAuthorizedException", "OptInRequired", "SignatureDoesNotMatch", "SubscriptionRequiredException",
        "UnauthorizedOperation", "UnrecognizedClientException",
    ),
    FaultKind.MISSING: (
        "AWS.SimpleQueueService.NonExistentQueue", "KMSNotFoundException", "QueueDoesNotExist", "ResourceNotFound",
        "ResourceNotFoundException", "TableNotFoundException",
    ),
    FaultKind.EXPIRED: (
        "ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired",
    ),
    FaultKind.INVALID: (
        "IdempotentParameterMismatchException", "InvalidAction", "InvalidArgumentException",
        "ItemCollectionSizeLimitExceededException", "SerializationException", "UnknownOperationException",
        "ValidationError", "ValidationException",
    ),
}  # fmt: skip

CODES: Final = {code: kind for kind, codes in _BY_KIND.items() for code in codes}
"""The kind of each code that is known. Codes of a cancelled transaction's reasons have no "Exception" at their end."""

REMEDIES: Final[dict[FaultKind, str]] = {
    FaultKind.PASSING: "try again; if it lasts, check the region, the endpoint and the network",
    FaultKind.THROTTLED: "try again more slowly; if it lasts, raise the capacity or the account's quota",
    FaultKind.CONFLICT: "try again; another transaction had the item",
    FaultKind.CONDITION: "the item is not as it was seen; read it again",
    FaultKind.DENIED: "allow this action on this resource to the identity in use, or use another identity",
    FaultKind.MISSING: "check its name, the region and the account, or create it",
    FaultKind.EXPIRED: "the credentials have expired or could not be refreshed; renew them",
    FaultKind.NO_CREDENTIALS: "no credentials were found; set AWS_PROFILE, AWS_ACCESS_KEY_ID or a role",
    FaultKind.WRONG_REGION: "set the region, with region= or AWS_DEFAULT_REGION, to where the resource is",
    FaultKind.INVALID: "check that the resource has the expected make and that the service supports the action",
    FaultKind.OTHER: "look the code up in the API reference of the service",
}
"""What to do, for people."""
