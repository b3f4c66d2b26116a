"""Event-sourced capability host for sandboxed agents."""

__version__ = "0.1.0"
