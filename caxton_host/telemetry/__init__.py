"""
OpenTelemetry: the spans of runs, calls and attempts; metrics; log records.

    invoke_agent weather                INTERNAL
      execute_tool weather              INTERNAL, one a call, denied ones too
        tools/call get_weather          CLIENT, one an attempt; none in a replay

Names follow the conventions for generative AI and for MCP
(https://github.com/open-telemetry/semantic-conventions-genai); what they do not
know is under ``caxton.``. Parameters and results are not put on a span unless that
was opted in: the event log has them. The only owner of opentelemetry, which is
imported when somebody may want to know: an end point is set, or a host is served.
"""

from __future__ import annotations

from .null import NoTelemetry
from .observe import observe
from .observed import Observed

__all__ = ["NoTelemetry", "Observed", "observe"]
