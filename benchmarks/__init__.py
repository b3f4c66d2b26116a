"""Benchmarks, with peers for comparison. ``python -m benchmarks --help``."""
