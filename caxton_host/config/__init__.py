"""
What the operator says: ``caxton.toml``, and what it imports.

    files -> trees -> readers, table by table -> Config

Nothing here reaches a server, a store or a sandbox. Every complaint names file and
key, shows no value, and says how to go on.
"""

from __future__ import annotations

from .edit import (
    add_server,
    append_servers,
    change_server,
    check_references,
    init_text,
    remove_server,
)
from .importers import Foreign, import_foreign
from .load import load, load_parts
from .model import Agent, Audit, Config, ContextVar, Expose, OAuth, Serve
from .paths import Paths
from .sections import (
    FIXED,
    TOP,
    json_schema,
    passwords,
    restart_sections,
    store_mistake,
)
from .setting_origins import SETTINGS, origins
from .show import describe
from .variables import known_variables, private_variables, run_variables

__all__ = [
    "FIXED",
    "SETTINGS",
    "TOP",
    "Agent",
    "Audit",
    "Config",
    "ContextVar",
    "Expose",
    "Foreign",
    "OAuth",
    "Paths",
    "Serve",
    "add_server",
    "append_servers",
    "change_server",
    "check_references",
    "describe",
    "import_foreign",
    "init_text",
    "json_schema",
    "known_variables",
    "load",
    "load_parts",
    "origins",
    "passwords",
    "private_variables",
    "remove_server",
    "restart_sections",
    "run_variables",
    "store_mistake",
]
