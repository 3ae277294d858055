"""The rules of genqueue: pure functions and frozen values, standard library only."""
