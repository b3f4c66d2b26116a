"""
OpenTelemetry: the spans of runs, calls and attempts; metrics; log records.

    invoke_agent weather                INTERNAL
      execute_tool weather              INTERNAL, one a call, denied ones too
        tools/call get_weather          CLIENT, one an attempt; none in a replay

An `Observer` is told what happens, and passes it on to its sinks: spans (`spans`),
metrics (`metrics`) and log lines (`lines`). Names follow the conventions for generative
AI and for MCP (https://github.com/open-telemetry/semantic-conventions-genai); names of
our own begin with ``caxton.``. Parameters and results are not put on a span unless that
was opted in: the event log has them. The only owner of opentelemetry, which is imported
only if an end point is set or a host is served.
"""

from __future__ import annotations

from .export import observe
from .looks import Point
from .observer import NoTelemetry, Observer
from .sinks import Sink

__all__ = ["NoTelemetry", "Observer", "Point", "Sink", "observe"]
