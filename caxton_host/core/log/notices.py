"""
Notices: what people are told of, once for one cause.

    event -> cause -> its group is quiet -> one notice at once
                   -> one of its group was told within the window -> counted
    the window ends, and some were counted -> one notice of all of them

A lost server is told of once it has stayed away for a moment: most restart at once. The
state is kept with the place in the log, and all of it follows from the log, so what is
sent again after a crash has the same id.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import quote

from ..calls import JSON
from ..names import is_called, run_of
from .events import Recorded, ServerEvent

#: Of each type: what it says, the page of one, and the page of several.
TYPES: Mapping[str, tuple[str, str, str]] = {
    "approval": (
        "Agent {agent}: call {call}, of {tool}, waits for an approval.",
        *("/ui/inbox?run={run}", "/ui/inbox"),
    ),
    "question": (
        "Agent {agent}: call {call}, of {tool}, asks a question.",
        *("/ui/inbox?run={run}", "/ui/inbox"),
    ),
    "in_doubt": (
        "Agent {agent}: a person has to decide about call {call}, which is in doubt.",
        *("/ui/runs/{run}", "/ui/runs?state=suspended&reason=in_doubt"),
    ),
    "failed": (
        "Agent {agent}: a run failed ({kind}).",
        *("/ui/runs/{run}", "/ui/runs?state=failed&agent={agent}"),
    ),
    "server_lost": (
        "Tool server {server} is not connected ({kind}).",
        *("/ui/servers/{server}", "/ui/servers/{server}"),
    ),
    "server_back": (
        "Tool server {server} is connected again.",
        *("/ui/servers/{server}", "/ui/servers/{server}"),
    ),
    "audit": ("The log is not in order ({kind}).", *("/ui/evidence", "/ui/evidence")),
    "frozen": ("Calls are frozen: {kind} {name}.", *("/ui/runs", "/ui/runs")),
    "test": ("This is a test of notices. Nothing happened.", *("/ui/runs", "/ui/runs")),
}
#: Those that events cause.
CAUSES = tuple(name for name in TYPES if name != "test")

Facts: TypeAlias = dict[str, str | int]
_Cause: TypeAlias = tuple[str, Facts] | None


def _lost(event: Any, kind: str = "lost") -> _Cause:  # noqa: ANN401 -- one of three
    return "server_lost", {**_server(event), "kind": kind}


def _server(event: ServerEvent) -> Facts:
    known: Facts = {"server": event.server}
    return known if event.domain is None else {**known, "domain": event.domain}


#: The events that people are told of.
EVENTS: Mapping[str, Callable[[Any], _Cause]] = {
    "ApprovalRequested": lambda e: ("approval", _call(e)),
    "QuestionAsked": lambda e: ("question", _call(e)) if e.to == "people" else None,
    "RunSuspended": lambda e: (
        ("in_doubt", {"call": e.call}) if e.reason == "in_doubt" else None
    ),
    "RunFailed": lambda e: ("failed", {"kind": e.kind}),
    "ServerLost": _lost,
    "ServerFailed": _lost,
    "ServerDisabled": lambda e: _lost(e, "given up"),
    "ServerConnected": lambda e: ("server_back", _server(e)),
    "AuditFailed": lambda e: ("audit", {"kind": e.what}),
    # The name of a token may be that of a person.
    "Frozen": lambda e: (
        "frozen",
        {"kind": e.kind, "name": "" if e.kind == "token" else e.name},
    ),
}

_LONGEST = 128
#: Others may steer a terminal, or mean something in a chat.
_ODD = re.compile(r"[^\w./ -]")
#: Groups, and servers that are away, at a time.
_MOST = 200
_SECOND_US = 1_000_000
#: How long a server has to be away. A commit that is late by less changes no notice.
_AWAY_US, _LATE_US = 10 * _SECOND_US, 2 * _SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """
    What people are told.

    Attributes:
        id: Derived from the events that it is about.

        at: When the newest of them was recorded: microseconds since 1970.

        count: How many they are.

        facts: Of the newest.
    """

    id: str
    type: str
    at: int
    facts: Facts
    count: int = 1

    @classmethod
    def of_fault(cls, text: str, at: int) -> Notice:
        """Return the notice that an event was found to be changed."""
        found = hashlib.sha256(text.encode()).hexdigest()[:32]
        return cls(id=found, type="audit", at=at, facts={"kind": "changed event"})

    @property
    def group(self) -> str:
        """What it is counted with."""
        about = (self.facts.get(key) for key in ("agent", "server", "kind"))
        return f"{self.type} {next(filter(None, about), '')}"

    def after(self, former: Notice | None) -> Notice:
        """Return the notice of this and a *former* one."""
        if former is None:
            return self
        return replace(
            self,
            id=hashlib.sha256(f"{former.id} {self.id}".encode()).hexdigest()[:32],
            count=former.count + self.count,
        )

    def to_document(self, console: str | None) -> dict[str, JSON]:
        """Return the ``caxton.notice/v1`` document; *console*: the URL of a host."""
        says, one, several = TYPES[self.type]
        said = says.format(**self.facts)
        path = one if self.count == 1 else several
        safe = {key: quote(str(value), safe="") for key, value in self.facts.items()}
        at = datetime.fromtimestamp(self.at / _SECOND_US, UTC)
        return {
            "$type": "caxton.notice/v1",
            "id": self.id,
            "type": self.type,
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "count": self.count,
            "text": said if self.count == 1 else f"{self.count} times: {said}",
            "link": f"{console.rstrip('/')}{path.format(**safe)}" if console else None,
            "data": {**self.facts},
        }


def cause_of(recorded: Recorded, agent: str | None) -> Notice | None:
    """Return the notice of an event alone; *agent*: of its run."""
    run_id = run_of(recorded.stream)
    found = EVENTS[recorded.type](recorded.event) if recorded.event else None
    # What a called run means for the one that called it, that one says.
    if found is None or (recorded.type == "RunFailed" and is_called(run_id)):
        return None
    type_, facts = found
    if run_id:
        facts = {"agent": agent or "", "run": run_id, **facts}
    clean = {k: _clean(v) if isinstance(v, str) else v for k, v in facts.items()}
    at = recorded.recorded_at
    return Notice(id=recorded.hash.hex()[:32], type=type_, at=at, facts=clean)


def _call(event: Any) -> Facts:  # noqa: ANN401 -- one of two
    return {"call": event.call, "tool": f"{event.server}/{event.tool}"}


def _clean(text: str) -> str:
    return _ODD.sub("?", text[:_LONGEST])


@dataclass(slots=True)
class Windows:
    """
    What was told lately, and what is counted since.

    Attributes:
        window: Microseconds in which one notice of a group is told.

        types: The types of notices that are told.

        ends: The end of the window of each group.

        counted: The notices since that began.

        away: Servers that are not connected, and what is to be told of each, if that
            is not done.
    """

    window: int
    types: Collection[str]
    ends: dict[str, int] = field(default_factory=dict[str, int])
    counted: dict[str, Notice] = field(default_factory=dict[str, Notice])
    away: dict[str, Notice | None] = field(default_factory=dict[str, Notice | None])

    def take(self, cause: Notice) -> list[Notice]:
        """Return what is to be told at once, now that *cause* came."""
        told = self.due(cause.at)
        if self._matters(cause):
            told += self._told(cause)
        return told

    def due(self, now: int) -> list[Notice]:
        """Return what is to be told, as time has passed."""
        told: list[Notice] = []
        for server, lost in self.away.items():
            if lost and lost.at + _AWAY_US <= now:
                self.away[server] = None
                told += self._told(lost)
        for group, end in [*self.ends.items()]:
            if end + _LATE_US > now:
                continue
            if group in self.counted:
                told.append(self.counted.pop(group))
                self.ends[group] = end + self.window
            else:
                del self.ends[group]
        return told

    def _told(self, cause: Notice) -> list[Notice]:
        if cause.type not in self.types:
            return []
        group = cause.group if len(self.ends) < _MOST else cause.type
        if group not in self.ends:
            self.ends[group] = cause.at + self.window
            return [cause]
        self.counted[group] = cause.after(self.counted.get(group))
        return []

    def _matters(self, cause: Notice) -> bool:
        """Return whether *cause* is to be told now; note which servers are away."""
        names = (cause.facts.get(key) for key in ("server", "domain"))
        server = " ".join(str(name) for name in names if name)
        if cause.type == "server_back":
            return self.away.pop(server, cause) is None
        if cause.type != "server_lost":
            return True
        given_up = cause.facts["kind"] != "lost"
        if given_up or server not in self.away:
            self.away[server] = None if given_up else cause
        if len(self.away) > _MOST:
            del self.away[next(iter(self.away))]
        return given_up

    def to_json(self, cursor: str) -> str:
        """Return all of this, and a place in the log, as text."""
        return json.dumps({"cursor": cursor, **_kept(self)})

    @classmethod
    def from_json(
        cls, text: str, window: int, types: Collection[str]
    ) -> tuple[Windows, str]:
        """Return what `to_json` was given."""
        found: dict[str, Any] = json.loads(text)
        counted = {key: _notice(one) for key, one in found["counted"].items()}
        away = {key: one and _notice(one) for key, one in found["away"].items()}
        return cls(window, types, found["ends"], counted, away), found["cursor"]


def _notice(said: Mapping[str, Any]) -> Notice:
    # A later release may have written it, with more.
    return Notice(**{one.name: said[one.name] for one in fields(Notice)})


def _kept(windows: Windows) -> dict[str, Any]:
    found = asdict(windows)
    return {key: found[key] for key in ("ends", "counted", "away")}


def signed(
    notice_id: str, at: int, body: bytes, secrets: Collection[bytes]
) -> dict[str, str]:
    """
    Return the headers of a webhook, with one signature for each secret.

    See https://www.standardwebhooks.com. *at*: seconds since 1970.
    """
    content = f"{notice_id}.{at}.".encode() + body
    marks = (hmac.digest(one, content, "sha256") for one in secrets)
    return {
        "webhook-id": notice_id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(f"v1,{b64encode(m).decode()}" for m in marks),
    }
