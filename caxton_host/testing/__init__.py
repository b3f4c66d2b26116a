"""What tests need: the fakes of all ports (`fakes`)."""

from __future__ import annotations

from .fakes import FakeClock, FakeEntropy, FakeSandbox, FakeTools, Script, offer

__all__ = [
    "FakeClock",
    "FakeEntropy",
    "FakeSandbox",
    "FakeTools",
    "Script",
    "offer",
]
