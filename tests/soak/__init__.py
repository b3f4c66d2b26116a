"""Soak test: a host under constant load, checked for leaks and lost calls."""
