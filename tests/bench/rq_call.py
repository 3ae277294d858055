"""What does a user of plain RQ write to call a model? The SDK at the top, one call inside."""

from __future__ import annotations

from openai import OpenAI


def ask(base_url: str, model: str, text: str) -> str | None:
    """One chat completion; RQ forks a child for each call, so no client outlives it."""
    with OpenAI(base_url=base_url, api_key="unused", max_retries=0) as client:
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}]
        )
    return answer.choices[0].message.content
