"""What can an operator have proven on a live system? One module a kind of ground."""
