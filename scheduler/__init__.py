"""What happens by the clock? The table of ticks and the process that fires them."""
