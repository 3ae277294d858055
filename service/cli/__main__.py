"""Which command line runs with `python -m service.cli`? The same as `genqueue`."""

from service.cli.main import main

main()
