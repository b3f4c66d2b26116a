"""The composition root: a configuration becomes a running host."""
