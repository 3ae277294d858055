"""Who answers a call: OpenAI-compatible HTTP servers and the mock."""
