"""What is a caller told whose turn failed and goes on in the background?"""

import pytest

from jobs.domain.escalation import Delivery
from jobs.domain.escalation_text import escalation_text

pytestmark = pytest.mark.req("C8")

ID = "req_0123456789abcdef0123456789abcdef"
ARRIVES = {
    Delivery.CHANNEL: "You will get the outcome as a notification.",
    Delivery.WEBHOOK: "The outcome will be posted to your webhook.",
    Delivery.POLLING: f"Ask for the outcome with `GET /v1/requests/{ID}`.",
}


@pytest.mark.parametrize("delivery", Delivery)
def test_the_text_is_fixed_but_for_the_request_id_and_the_last_sentence(delivery: Delivery) -> None:
    assert escalation_text(ID, delivery) == (
        "I could not complete this: the attempt failed. I will try another approach in the "
        "background; the outcome comes asynchronously, once that is done. The id of your request "
        f"is `{ID}`. {ARRIVES[delivery]}"
    )


def test_an_id_with_braces_is_shown_as_it_is() -> None:
    assert escalation_text("{request_id}", Delivery.POLLING).count("{request_id}") == 2
