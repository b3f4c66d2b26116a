"""Many clients at once before one host."""
