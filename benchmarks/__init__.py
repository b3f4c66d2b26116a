"""Runnable comparisons with peers. ``python -m benchmarks --help``."""
