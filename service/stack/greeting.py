"""What does the stack tell the person who started it? Addresses, the sample, a line to paste."""

from service.stack.sample import SampleAnswer

MOCK_PROVIDER = "mock"


def addresses(base_url: str, redis: str, key: str) -> str:
    """Where things are; `key` is the development key, shown because it opens this stack only."""
    return f"""
  Redis     {redis}
  API       {base_url}
  API docs  {base_url}/docs
  API key   {key}   (org dev, user dev)
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


def curl_line(base_url: str, key: str) -> str:
    """A command to paste: submits a prompt and shows the job."""
    return f"""
Your turn:
  curl -s {base_url}/v1/prompt -H 'Authorization: Bearer {key}' \\
    -H 'Content-Type: application/json' -d '{{"prompt": "Why is the sky blue?"}}'"""
