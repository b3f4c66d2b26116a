"""The kill loop: real hosts, workers and tool servers that die at random instants."""
