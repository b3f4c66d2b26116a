"""
What ``caxton agent dev`` does next: a table of states, and what a person may type.

A key that needs a run waits for the end of one that is under way. A change stops a run
that is under way, and the next one begins when that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

#: ``busy``: something is under way; ``again``: it is being stopped, and a run follows;
#: ``replaying``, ``explaining``: that follows its end; ``leaving``: it is being
#: stopped, and the command ends.
Phase: TypeAlias = Literal[
    "idle", "busy", "again", "replaying", "explaining", "leaving", "over"
]
#: ``changed``: a watched file; ``ended``: what was under way; the others are keys.
Signal: TypeAlias = Literal["changed", "ended", "run", "replay", "explain", "quit"]
Action: TypeAlias = Literal["", "run", "replay", "explain", "stop"]

KEYS: Mapping[str, Signal] = MappingProxyType(
    {"\r": "run", "\n": "run", "r": "replay", "e": "explain", "q": "quit"}
)
HELP = "enter: run again   r: replay   e: explain a call   q: quit"

_STEPS: Mapping[tuple[Phase, Signal], tuple[Phase, Action]] = MappingProxyType(
    {
        ("idle", "changed"): ("busy", "run"),
        ("idle", "run"): ("busy", "run"),
        ("idle", "replay"): ("busy", "replay"),
        ("idle", "explain"): ("busy", "explain"),
        ("idle", "quit"): ("over", ""),
        ("busy", "ended"): ("idle", ""),
        ("busy", "changed"): ("again", "stop"),
        ("busy", "run"): ("again", "stop"),
        ("busy", "quit"): ("leaving", "stop"),
        ("busy", "replay"): ("replaying", ""),
        ("busy", "explain"): ("explaining", ""),
        ("replaying", "ended"): ("busy", "replay"),
        ("replaying", "changed"): ("again", "stop"),
        ("replaying", "run"): ("again", "stop"),
        ("replaying", "quit"): ("leaving", "stop"),
        ("explaining", "ended"): ("busy", "explain"),
        ("explaining", "changed"): ("again", "stop"),
        ("explaining", "run"): ("again", "stop"),
        ("explaining", "quit"): ("leaving", "stop"),
        ("again", "ended"): ("busy", "run"),
        ("again", "quit"): ("leaving", ""),
        ("leaving", "ended"): ("over", ""),
    }
)


def step(phase: Phase, signal: Signal) -> tuple[Phase, Action]:
    """
    Return the next phase, and what to do.

    >>> step("idle", "changed"), step("busy", "changed"), step("busy", "replay")
    (('busy', 'run'), ('again', 'stop'), ('replaying', ''))
    """
    return _STEPS.get((phase, signal), (phase, ""))
