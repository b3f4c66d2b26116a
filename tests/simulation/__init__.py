"""Simulation of whole hosts in virtual time, with faults drawn from a seed."""
