"""Create agents from templates, and build them with the compilers of languages."""

from __future__ import annotations

from .build import Built, build_agent, source_of
from .shipped import find_shared, languages, new_agent

__all__ = ["Built", "build_agent", "find_shared", "languages", "new_agent", "source_of"]
