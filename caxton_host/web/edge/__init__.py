"""The outermost ring: every request is bounded and authenticated here."""
