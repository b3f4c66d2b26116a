"""A host over HTTP: who may come in, what is there, and where it listens."""
