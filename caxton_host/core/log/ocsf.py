"""
Ended calls as API Activity of the Open Cybersecurity Schema Framework, OCSF 1.6.0.

A record names the event that it was made of by its hash, and holds no parameters and no
answer: those stay in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..calls import JSON
from .events import ToolCompleted, ToolDenied, ToolFailed
from .runs import ExportLine, call_of

VERSION = "1.6.0"
_CLASS, _OTHER = 6003, 99
_LONGEST = 1_000
_SUCCESS, _FAILURE = (1, "Success"), (2, "Failure")
_INFORMATIONAL, _LOW, _MEDIUM = (1, "Informational"), (2, "Low"), (3, "Medium")
_ALLOWED, _DENIED = (1, "Allowed"), (2, "Denied")
#: Status and severity by outcome.
_JUDGED: Mapping[str, tuple[tuple[int, str], tuple[int, str]]] = MappingProxyType(
    {
        "ok": (_SUCCESS, _INFORMATIONAL),
        "tool_error": (_FAILURE, _LOW),
        "failed": (_FAILURE, _LOW),
        "denied": (_FAILURE, _MEDIUM),
    }
)


def api_activity(line: ExportLine, release: str) -> dict[str, JSON] | None:
    """
    Return the record of a call that ended, or ``None`` for another event.

    Args:
        line: The event that ended it.

        release: Of this package.
    """
    recorded, outcome = line.recorded, line.outcome
    if outcome is None:
        return None
    (status_id, status), (severity_id, severity) = _JUDGED[outcome]
    action_id, action = _DENIED if outcome == "denied" else _ALLOWED
    server, _, tool = (line.tool or "").partition("/")
    code, detail, more = _details(line)
    record: dict[str, JSON] = {
        "metadata": {
            "version": VERSION,
            "uid": recorded.hash.hex(),
            "event_code": recorded.type,
            "correlation_uid": line.run,
            "sequence": recorded.seq,
            "profiles": ["security_control"],
            "product": {
                "name": "caxton-host",
                "vendor_name": "caxton-host",
                "version": release,
            },
        },
        "time": recorded.recorded_at // 1_000,
        "category_uid": 6,
        "category_name": "Application Activity",
        "class_uid": _CLASS,
        "class_name": "API Activity",
        "activity_id": _OTHER,
        "activity_name": "Call",
        "type_uid": 100 * _CLASS + _OTHER,
        "type_name": "API Activity: Call",
        "severity_id": severity_id,
        "severity": severity,
        "status_id": status_id,
        "status": status,
        "status_code": code,
        "status_detail": detail[:_LONGEST],
        "action_id": action_id,
        "action": action,
        "disposition_id": 2 if outcome == "denied" else 1,
        "disposition": "Blocked" if outcome == "denied" else "Allowed",
        "actor": {"app_name": line.agent or "unknown", **_user(line)},
        "src_endpoint": {"svc_name": "caxton-host", "name": line.agent or "unknown"},
        "api": {
            "operation": tool or "unknown",
            "request": {"uid": f"{line.run}/{call_of(recorded)}"},
            **({"service": {"name": server}} if server else {}),
        },
        "unmapped": {"trace_id": recorded.trace_id, **more},
    }
    if line.tool:
        record["resources"] = [{"name": line.tool, "type": "tool"}]
    return record


def _details(line: ExportLine) -> tuple[str, str, dict[str, JSON]]:
    """Return the code of an outcome, its text, and what else there is."""
    event = line.recorded.event
    if isinstance(event, ToolDenied):
        return event.code, event.message, {"rule": event.rule}
    if isinstance(event, ToolFailed):
        return event.kind, event.message, {"sent": event.sent}
    assert isinstance(event, ToolCompleted)  # noqa: S101 -- nothing else has an outcome
    return line.outcome or "", "", {"duration_us": event.duration_us}


def _user(line: ExportLine) -> dict[str, JSON]:
    who = line.actor
    if who is None:
        return {}
    kind, name = str(who.get("kind")), str(who.get("id"))
    return {"user": {"name": name, "uid": f"{kind}/{name}", "type": kind}}
