"""What each kind of job does with its attempt."""
