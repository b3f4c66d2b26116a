"""Failure of each write of a scene, one at a time."""
