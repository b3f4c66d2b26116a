"""Logs of every kind of run, as versions of this host wrote them."""
