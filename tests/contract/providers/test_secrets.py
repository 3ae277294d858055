"""Do key, prompt and answer stay out of errors and logs, and the environment out of calls?"""

import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from jobs.domain.errors import AttemptError
from jobs.domain.models import ProviderSpec
from jobs.providers.base import Call, Message
from jobs.providers.openai_chat import OpenAIChatProvider
from tests.support.openai_server import Fault, OpenAIServer, Reply, answer, openai_server, status

KEY = "sk-canary-key-0123456789"
PROMPT = "canary-prompt"
ECHO = f"you sent {PROMPT} with {KEY}"
CALL = Call("m", (Message("user", PROMPT),))

pytestmark = pytest.mark.req("X12")


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


@pytest.fixture
def provider(server: OpenAIServer) -> OpenAIChatProvider:
    return OpenAIChatProvider(ProviderSpec("main", "openai", server.base_url), KEY, ())


def everything_about(error: BaseException | None, depth: int = 0) -> str:
    """All that a report of `error` could show: texts, attributes and chained errors."""
    if error is None or depth > 5:
        return ""
    parts = [repr(error), str(error), repr(vars(error)), repr(error.args)]
    request = getattr(error, "request", None)
    if request is not None:
        parts += [repr(request.headers.raw), repr(request.content)]
    parts += [everything_about(link, depth + 1) for link in (error.__cause__, error.__context__)]
    return "\n".join(parts)


@pytest.mark.parametrize(
    "reply",
    [
        status(400, error_code=KEY, message=ECHO),
        status(401, error_code=ECHO, message=ECHO),
        status(429, message=ECHO, headers=(("Retry-After", ECHO), ("x-request-id", KEY))),
        status(500, message=ECHO),
        Reply(status=500, body=ECHO.encode(), content_type="text/plain"),
        Reply(status=422, body=b'{"error": "%s"}' % ECHO.encode()),
        answer(ECHO.encode()),
        answer({"choices": ECHO}),
        answer({ECHO: ECHO}),
        Reply(status=302, body=ECHO.encode(), headers=(("Location", f"/{KEY}"),)),
        Reply(fault=Fault.CLOSE_AT_ONCE),
        Reply(fault=Fault.RESET_MID_BODY),
        Reply(headers=(("bad header", ECHO),)),
    ],
)
def test_no_failure_tells_key_or_prompt(
    server: OpenAIServer,
    provider: OpenAIChatProvider,
    reply: Reply,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.answer_next(reply)

    with caplog.at_level(logging.DEBUG), pytest.raises(AttemptError) as caught:
        provider.complete(CALL)

    seen = everything_about(caught.value) + caplog.text
    assert "canary" not in seen
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_nothing_of_the_environment_reaches_a_provider(server: OpenAIServer) -> None:
    script = f"""
        from jobs.domain.models import ProviderSpec
        from jobs.providers.base import Call, Message
        from jobs.providers.openai_chat import OpenAIChatProvider
        spec = ProviderSpec("main", "openai", {server.base_url!r})
        call = Call("m", (Message("user", {PROMPT!r}),))
        print(OpenAIChatProvider(spec, {KEY!r}, ()).complete(call).text)
    """
    leaks = {
        "OPENAI_API_KEY": "env-leak",
        "OPENAI_ADMIN_KEY": "env-leak",
        "OPENAI_ORG_ID": "env-leak",
        "OPENAI_PROJECT_ID": "env-leak",
        "OPENAI_WEBHOOK_SECRET": "env-leak",
        "OPENAI_BASE_URL": "http://127.0.0.1:1/env-leak",
        "OPENAI_CUSTOM_HEADERS": "X-Leak: env-leak\nAuthorization: env-leak\nUser-Agent: env-leak",
        "HTTP_PROXY": "http://127.0.0.1:1",
        "ALL_PROXY": "http://127.0.0.1:1",
        "http_proxy": "http://127.0.0.1:1",
        "OPENAI_LOG": "debug",
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **leaks},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.strip() == "Hello.", done.stderr
    assert done.stderr == "", "OPENAI_LOG writes no call into the log"
    (request,) = server.requests
    assert "env-leak" not in repr(request.headers)
    assert {name for name, _ in request.headers} == {
        "host",
        "content-type",
        "content-length",
        "accept",
        "accept-encoding",
        "user-agent",
        "authorization",
    }


def test_a_success_is_not_logged_either(
    server: OpenAIServer, provider: OpenAIChatProvider, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        provider.complete(CALL)

    assert "canary" not in caplog.text
    assert [record for record in caplog.records if record.name.startswith("openai")] == []
