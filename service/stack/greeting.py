"""What does the stack tell the person who started it? Addresses, the samples, lines to paste."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from service.stack.dev_access import DevAccess
from service.stack.sample import GENERATIONS, GenerationAnswer, SampleAnswer, generation_body
from service.stack.sample_chat import CHAT, MESSAGE, ChatAnswer

MOCK_PROVIDER = "mock"


def addresses(base_url: str, redis: str, access: DevAccess) -> str:
    """Where things are; key and token are shown because they open this stack only."""
    return f"""
  Redis       {redis}
  API         {base_url}
  API docs    {base_url}/docs
  API key     {access.key}   (org dev, user dev)
  Team token  {access.token}   (team dev)
  Client key  {access.client_key}   (of the formation, for /v1/chat)

  Another data folder: make run ARGS="--data DIR"; another port: PORT=9000 make run
"""


def export_lines(access: DevAccess, redis_url: str | None) -> str:
    """Commands to paste into another terminal, after which the lines of the documents and
    `genqueue` work there; without the address of a Redis that the environment named itself."""
    programs = shlex.quote(str(Path(sys.executable).parent))
    address = f"REDIS_URL={redis_url} " if redis_url else ""
    return f"""For another terminal:
  export GENQUEUE_KEY={access.key} TEAM_TOKEN={access.token} CLIENT_KEY={access.client_key}
  export {address}PATH={programs}:"$PATH"
"""


def sample(answer: SampleAnswer) -> str:
    """The sample and its answer; says so where the text is made up."""
    lines = [
        f"Sample prompt: {answer.prompt}",
        f"Answer:        {answer.text}",
        f"               (job {answer.job_id}, {answer.took_s:.2f} s)",
    ]
    if answer.provider == MOCK_PROVIDER:
        lines += [
            "This text is made up: the mock provider answered. For real answers set the key of a",
            "provider, such as OPENAI_API_KEY, and name one of its models in the request.",
        ]
    return "\n".join(lines)


def generation(answer: GenerationAnswer) -> str:
    """The sample generation with its fields, or why it was refused."""
    lines = [f"\nSample generation: {answer.prompt}"]
    if answer.refusal:
        return "\n".join([*lines, f"Refused:           {answer.refusal}"])
    lines.append(f"Text:              {answer.text}")
    lines += [f"Field:             {name} = {value}" for name, value in answer.fields.items()]
    lines.append(f"                   (generation {answer.generation_id}, {answer.took_s:.2f} s)")
    if not answer.fields:
        lines += [
            "No fields were asked for: a real model would read them out of the text, and a sample",
            "spends nothing. GENQUEUE_EXTRACTION_MODEL=mock-1 has the mock do it.",
        ]
    return "\n".join(lines)


def chat(answer: ChatAnswer) -> str:
    """The sample turn, what it answered when it failed, and what came of it."""
    return "\n".join(
        [
            f"\nSample turn:   {answer.message}",
            f"Answer:        {answer.text}",
            f"Outcome:       {answer.status}: {answer.result}",
            f"               (request {answer.request_id}, {answer.took_s:.2f} s)",
        ]
    )


def curl_lines(base_url: str, access: DevAccess, output_fields: Mapping[str, str]) -> str:
    """Commands to paste: one submits a prompt, one a generation."""
    body = json.dumps(generation_body("run-1", output_fields))
    return f"""
Your turn:
  curl -s {base_url}/v1/prompt -H 'Authorization: Bearer {access.key}' \\
    -H 'Content-Type: application/json' -d '{{"prompt": "Why is the sky blue?"}}'

Twice, the second time for the result:
  curl -s {base_url}{GENERATIONS} -H 'Authorization: Bearer {access.token}' \\
    -H 'Content-Type: application/json' -d '{body}'

A chat turn, which goes on in the background where it fails:
  curl -s {base_url}{CHAT} -H 'X-Muxi-Client-Key: {access.client_key}' -H 'X-Muxi-User-Id: dev' \\
    -H 'Content-Type: application/json' -d '{{"message": "{MESSAGE}"}}'"""
