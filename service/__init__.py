"""How do people and programs reach genqueue? The HTTP API, the command line and the local stack."""
