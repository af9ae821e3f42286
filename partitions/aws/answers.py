"""
Answers that are none: what comes with the status of a success, or of an error, and is not what the service sends.

Knows no store and no source. A proxy, a captive portal or a load balancer in between may answer for the service, with
a page of HTML or with nothing at all. The SDK takes a body that is no JSON for an answer without members: a write that
was never sent would count as applied, and an item that is there as missing. So the body is looked at before it is
parsed.

Only the two ends of a body are looked at, since some are a megabyte: what is cut off has lost its last brace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]  # It has no types.

__all__ = ["refuse_what_is_no_answer", "watch"]

_END: Final = 16
"""So many bytes at either end are looked at; blanks may stand around an object."""
_SHOWN: Final = 80


def watch(client: Any) -> None:
    """Let calls of this client of the SDK fail whose answer cannot be the service's."""
    client.meta.events.register("before-parse", refuse_what_is_no_answer)


def refuse_what_is_no_answer(operation_model: Any, response_dict: Mapping[str, Any], **_: Any) -> None:
    """
    Raise unless the body can be an answer to this operation; called by the SDK before it parses one.

    Args:
        operation_model: The operation's model: its protocol, and whether it answers with anything.
        response_dict: `status_code` and `body`, among others. A body that is no bytes is a stream of events.

    Raises:
        ResponseParserError: it has no JSON object; nobody knows what became of the call.
    """
    body, status = response_dict["body"], int(response_dict["status_code"])
    if not isinstance(body, bytes) or operation_model.service_model.resolved_protocol != "json":
        return
    if not body and (status >= 300 or operation_model.output_shape is None):
        return
    if body[:_END].lstrip().startswith(b"{") and body[-_END:].rstrip().endswith(b"}"):
        return
    raise ResponseParserError(
        f"status {status} with {len(body)} bytes that are no JSON object, beginning {body[:_SHOWN]!r}; "
        "something between here and the service has answered in its place"
    )
