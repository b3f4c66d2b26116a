"""The service of a host: runs for principals, in the background."""
