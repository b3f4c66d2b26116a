"""The clock and the user of this machine."""

from __future__ import annotations

import os
import time

from ..core.calls import JSON


class SystemClock:
    """Asks the operating system for the time."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start."""
        return time.monotonic()


def local_actor() -> dict[str, JSON]:
    """Return the actor of this process: its user in the operating system."""
    import pwd  # noqa: PLC0415 -- not there on Windows, which is refused first

    try:
        # Not getpass: that reads environment variables, which anyone can set.
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return {"kind": "local", "id": name, "authenticated": False}
