"""Which figures does genqueue promise, and what are they on this machine? `make bench`."""
