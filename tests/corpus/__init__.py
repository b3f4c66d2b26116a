"""Logs of every kind of run, written by released versions of this host."""
