"""Load test: many concurrent clients of one host."""
