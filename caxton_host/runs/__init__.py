"""The life of a run: start, drive, resume, fork, replay, cancel, explain."""
