"""How does the whole of genqueue run on one machine? Redis, API and worker under one command."""
