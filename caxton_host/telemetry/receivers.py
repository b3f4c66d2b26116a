"""Where spans, metrics and logs are sent to, and what is said if nobody takes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

__all__ = ["address", "hushed", "reporting", "resource"]


def address(signal: str, endpoint: str | None, environ: Mapping[str, str]) -> str:
    """
    Return where a signal is sent to, or ``""``: nowhere.

    Args:
        signal: ``traces``, ``metrics`` or ``logs``.

        endpoint: The base URL, if it was said.

        environ: Where to look for it otherwise, as OpenTelemetry says.
    """
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    base = endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if own and not endpoint:
        return own
    return f"{base.rstrip('/')}/v1/{signal}" if base else ""


def resource(environ: Mapping[str, str]) -> Resource:
    """Return who sends it."""
    from opentelemetry.sdk.resources import Resource

    name = environ.get("OTEL_SERVICE_NAME", "caxton_host")
    return Resource.create({"service.name": name})


def hushed() -> None:
    """Have the vendor say nothing: it would once a batch, and with tracebacks."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


def reporting(exporter: Any, lost: Callable[[], None]) -> None:  # noqa: ANN401 -- of any signal
    """Have *lost* called whenever *exporter* fails."""
    send = exporter.export

    def export(*batch: Any, **options: Any) -> Any:  # noqa: ANN401 -- as it is
        result = send(*batch, **options)
        if result.name != "SUCCESS":
            lost()
        return result

    exporter.export = export
