"""Can a receiver verify what we sign, from the docs alone? (C16)"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast

import pytest
from openai import InvalidWebhookSignatureError, OpenAI

from jobs.delivery.signatures import signed_headers, unsigned_headers
from jobs.domain.delivery import DeliveryState, TryError
from service.stack.free_port import free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.req("C16", "X5"), pytest.mark.case("WH-01")]
PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text("utf-8")
VECTORS: list[dict[str, Any]] = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])
AGES_S = 10**10
KEY = "fmc_0123456789abcdef"
BODY = b'{"state":"achieved"}'


def example(name: str) -> str:
    """The code of the page between its marks."""
    marked = rf"<!-- example: {name} -->\n```python\n(.*?)```\n<!-- end -->"
    (found,) = re.findall(marked, PAGE, re.DOTALL)
    return str(found)


def is_ours(headers: dict[str, str], body: bytes = BODY) -> bool:
    """What the verifier of the page says."""
    page: dict[str, Any] = {}
    exec(example("by hand"), page)
    verifier = cast("Callable[[str, dict[str, str], bytes], bool]", page["is_ours"])
    return verifier(KEY, headers, body)


def sent_now(body: bytes = BODY) -> dict[str, str]:
    return signed_headers(KEY, "an-id", int(time.time()), body)


def verify(body: bytes, headers: dict[str, str], secret: str) -> None:
    """The SDK's verifier, which was written by others."""
    client = OpenAI(api_key="unused")
    client.webhooks.verify_signature(body, headers, secret=secret, tolerance=AGES_S)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["key"][:6])
def test_the_vectors_of_the_docs_are_what_is_sent(vector: dict[str, Any]) -> None:
    headers = vector["headers"]
    sent_at_s = int(headers["webhook-timestamp"])

    made = signed_headers(vector["key"], headers["webhook-id"], sent_at_s, vector["body"].encode())

    assert made == headers


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["key"][:6])
def test_the_vectors_verify_over_their_raw_bytes_and_over_no_others(
    vector: dict[str, Any],
) -> None:
    key, headers, body = vector["key"], vector["headers"], vector["body"].encode()
    verify(body, headers, key)
    for other in (body + b"\n", json.dumps(json.loads(body)).encode()):
        with pytest.raises(InvalidWebhookSignatureError):
            verify(other, headers, key)
    with pytest.raises(InvalidWebhookSignatureError):
        verify(body, {**headers, "webhook-id": "another"}, key)
    digest = hmac.digest(key.encode(), b"1785843861." + body, hashlib.sha256).hex()
    assert headers["X-Muxi-Signature"] == f"t=1785843861,v1={digest}"


def test_the_verifier_of_the_page_takes_what_is_sent_and_nothing_else() -> None:
    headers = sent_now()

    assert is_ours(headers)
    assert not is_ours(headers, BODY + b" ")
    assert not is_ours(signed_headers("another key", "an-id", int(time.time()), BODY))
    for off_s in (-301, 301):
        assert not is_ours(signed_headers(KEY, "an-id", int(time.time()) + off_s, BODY))


@pytest.mark.parametrize("name", ["X-Muxi-Timestamp", "X-Muxi-Signature"])
@pytest.mark.parametrize(
    "value", [None, "", "x", "-1", "1e9", "٣", "1" * 5_000, "t=1,v1=", "é", "\udcff", "1\n"]
)
def test_the_verifier_of_the_page_says_no_to_headers_that_are_missing_or_garbage(
    name: str, value: str | None
) -> None:
    headers = sent_now()
    del headers[name]

    assert not is_ours(headers if value is None else {**headers, name: value})


def test_the_line_of_the_page_verifies_by_the_sdk() -> None:
    headers = sent_now()

    exec(example("sdk"), {"key": KEY, "body": BODY, "headers": headers})
    with pytest.raises(InvalidWebhookSignatureError):
        exec(example("sdk"), {"key": "another key", "body": BODY, "headers": headers})
    with pytest.raises(ValueError, match="webhook-signature"):
        exec(example("sdk"), {"key": KEY, "body": BODY, "headers": {}})


def test_the_receiver_of_the_page_takes_what_is_sent_and_refuses_the_rest(tmp_path: Path) -> None:
    port = free_port()
    script, said = tmp_path / "receiver.py", tmp_path / "said"
    receiver = example("receiver")
    assert receiver.count("9999") == 1
    script.write_text(example("by hand") + receiver.replace("9999", str(port)), "utf-8")

    def post(headers: dict[str, str]) -> int:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/", BODY, headers)
        return connection.getresponse().status

    def is_up() -> bool:
        try:
            return post({}) == 401
        except ConnectionError:
            return False

    with (
        said.open("w") as output,
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**os.environ, "CLIENT_KEY": KEY},
            stdout=output,
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        try:
            wait_until(is_up, 20, "the receiver listens")
            assert post(sent_now()) == 204
        finally:
            process.terminate()
    assert said.read_text().splitlines() == ["not ours None", "achieved an-id"]


def test_the_page_explains_every_state_and_every_entry() -> None:
    section = PAGE.split("### What became of one")[1].split("\n## ")[0]

    for word in ("unsettled", *DeliveryState, *TryError):
        assert f"\n| `{word}` | " in section


def test_a_library_that_wants_a_secret_in_base64_gets_the_key_so() -> None:
    headers = signed_headers(KEY, "an-id", 1_785_843_861, b"{}")

    verify(b"{}", headers, "whsec_" + base64.b64encode(KEY.encode()).decode())


def test_a_key_that_only_looks_like_base64_is_taken_as_it_is() -> None:
    assert signed_headers("whsec_!", "an-id", 1, b"{}")["webhook-signature"].startswith("v1,")


def test_an_unsigned_delivery_still_has_an_id_and_a_time() -> None:
    assert unsigned_headers("an-id", 5) == {"webhook-id": "an-id", "webhook-timestamp": "5"}
