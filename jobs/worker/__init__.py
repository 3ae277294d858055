"""Who does the work: tickets become claims, claims become attempts, attempts end in a value."""
