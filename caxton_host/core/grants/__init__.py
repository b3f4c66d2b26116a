"""Grants, decisions about calls, and the journal of a run."""
