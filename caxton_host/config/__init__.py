"""
Configuration: ``caxton.toml`` and the files that it imports, as frozen values.

    files -> trees -> readers, table by table -> Config

Nothing here connects to a server, a store or a sandbox. Every error names the file,
the line and the key, shows no value, and says how to fix it.
"""

from __future__ import annotations

from .load import load, load_parts
from .model import Agent, Audit, Config, OAuth, Serve
from .paths import Paths
from .sections import json_schema
from .show import describe
from .source_checks import check_grant

__all__ = [
    "Agent",
    "Audit",
    "Config",
    "OAuth",
    "Paths",
    "Serve",
    "check_grant",
    "describe",
    "json_schema",
    "load",
    "load_parts",
]
