"""Whole hosts in virtual time, on a world that fails as its seed says."""
