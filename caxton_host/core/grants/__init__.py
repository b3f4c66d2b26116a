"""What an agent may do, and what it has done so far."""
