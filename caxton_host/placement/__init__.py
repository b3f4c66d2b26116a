"""Engines that place runs; see `caxton_host.ports.placement`."""
