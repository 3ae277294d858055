"""How does an outcome reach whoever waits for it? Signed, and until it is taken."""
