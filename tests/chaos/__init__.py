"""The kill loop: real hosts, workers and tool servers, killed at random times."""
