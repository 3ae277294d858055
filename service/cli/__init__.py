"""What can an operator do from a shell? One module a noun."""
