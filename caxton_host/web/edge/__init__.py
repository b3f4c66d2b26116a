"""The edge: every request is bounded and authenticated here."""
