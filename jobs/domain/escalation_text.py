"""What is a caller told whose turn failed and goes on in the background? (C8)

One fixed text in which only the last sentence differs: no model writes or restyles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jobs.domain.escalation import Delivery

_TEXT: Final = (
    "I could not complete this: the attempt failed. I will try another approach in the background; "
    "the outcome comes asynchronously, once that is done. The id of your request is "
    "`{request_id}`. "
)

_HOW_IT_ARRIVES: Final[Mapping[Delivery, str]] = {
    Delivery.CHANNEL: "You will get the outcome as a notification.",
    Delivery.WEBHOOK: "The outcome will be posted to your webhook.",
    Delivery.POLLING: "Ask for the outcome with `GET /v1/requests/{request_id}`.",
}


def escalation_text(request_id: str, delivery: Delivery) -> str:
    """What the failed turn answers in place of its error; `request_id` as in `req_…`."""
    return (_TEXT + _HOW_IT_ARRIVES[delivery]).format(request_id=request_id)
