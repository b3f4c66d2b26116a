"""Who does what this process does."""

from __future__ import annotations

import os

from ..core.calls import JSON


def local_actor() -> dict[str, JSON]:
    """Return the actor of this process: a user of the operating system."""
    import pwd  # noqa: PLC0415 -- not there on Windows, which is refused first

    try:
        # Not getpass: that asks the environment, where anything can stand.
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return {"kind": "local", "id": name, "authenticated": False}
