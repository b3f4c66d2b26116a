"""Runs that go on in the background of a host that serves."""
