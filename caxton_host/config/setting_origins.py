"""Where each setting came from that the environment can make."""

from __future__ import annotations

from collections.abc import Mapping

from .key_lines import Lines
from .load import STORE_VARIABLE
from .model import Config
from .paths import CONFIG_VARIABLE, STATE_VARIABLE
from .serve import VARIABLES, variable

#: Settings by their dotted keys, with their variables. ``config`` and ``state`` have no
#: key: these are the file itself, and the folder of keys and tokens.
SETTINGS: Mapping[str, str] = {
    "config": CONFIG_VARIABLE,
    "state": STATE_VARIABLE,
    "store.url": STORE_VARIABLE,
    **{f"serve.{key}": name for key, name in VARIABLES.items()},
}


def origins(
    config: Config, environ: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """
    Return where each setting came from: an option, a variable, a line, or ``default``.

    Args:
        config: What was loaded.

        environ: What it was loaded with.

        options: Settings that the command line made, to the option.
    """
    text = config.path.read_text("utf-8-sig") if config.path else ""
    lines, file = Lines(text), config.path.name if config.path else ""
    found: dict[str, str] = {}
    for setting, name in SETTINGS.items():
        line = lines.known.get(tuple(setting.split(".")))
        given = options.get(setting) or (name if variable(environ, name) else "")
        found[setting] = given or (f"{file}:{line}" if line else "default")
    return found
