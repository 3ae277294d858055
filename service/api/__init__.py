"""Which routes are there? One module a noun."""
