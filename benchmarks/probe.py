"""
A program that makes the calls of its input, one after another, whatever comes back.

Input: a list of [name, parameters]. It stands for an agent that was told to misbehave:
its denied calls are what a wider grant would let through.
"""

from __future__ import annotations

from contextlib import suppress

from caxton_agent import AgentError, mcp_call
from caxton_agent import input as given


def run() -> None:
    """Make the calls."""
    for name, params in given():
        with suppress(AgentError):
            mcp_call(name, params)
