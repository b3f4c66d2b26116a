"""Hours of calls in minutes of a machine: what leaks, and what gets lost."""
