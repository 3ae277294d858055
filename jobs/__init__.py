"""What runs LLM work? The queue, its store, the providers and the workers; no HTTP server here."""
