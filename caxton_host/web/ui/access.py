"""Evidence and access: what proves the log, who may call, and which hosts there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.calls import JSON
from ...core.grants.principals import SCOPES
from ...core.log.runs import GOING_ON
from ...service.token_making import lifetime
from ..edge.messages import Refusal
from .asking import Asking, Shown, View
from .views import may

_SCOPE = "scope:"
#: What is typed of the id of a run to erase it, as lists show it.
_TYPED = 13
_LASTS = ("1h", "12h", "7d", "30d", "90d", "365d", "never")


async def evidence(asking: Asking) -> Shown:
    """Show what proves that the log is whole, and what is frozen."""
    frozen: Any = await asking.maybe("listFreezes")
    due: Any = await asking.maybe("listSchedules") or {"schedules": []}
    found = await asking.maybe("showVerification")
    return Shown(
        template="evidence",
        title="Evidence",
        values={
            "checkpoint": await asking.maybe("newestCheckpoint"),
            "verification": found,
            "counting": found is not None and found["verified"] is not None,
            "freezes": frozen and frozen["freezes"],
            "schedules": due["schedules"],
            "may": may(asking),
        },
    )


async def erase(asking: Asking) -> Shown:
    """Show what it means to erase a run, and ask."""
    found = await asking.of("showRun", run=asking.request.path_params["run"])
    return Shown(
        template="erase",
        title="Erase a run",
        values={
            "run": found,
            "goes_on": found["state"] in GOING_ON,
            "typed": found["run_id"][:_TYPED],
            "may": may(asking),
        },
    )


async def access(asking: Asking) -> Shown:
    """Show the tokens of callers, and the hosts of the log."""
    found, hosts = await asking.maybe("listTokens"), await asking.maybe("listHosts")
    tokens: list[dict[str, Any]] | None = found and found["tokens"]
    mine = [one["expires_at"] for one in tokens or () if one["id"] == asking.who.id]
    ends = mine[0] if mine and asking.who.kind == "token" else None
    now = asking.desk.service.host.clock.now()
    lasts = [one for one in _LASTS if ends is None or now + lifetime(one) * 1e6 <= ends]
    return Shown(
        template="access",
        title="Access",
        values={
            "tokens": tokens,
            "hosts": hosts and hosts["hosts"],
            "scopes": {
                one: about for one, about in SCOPES.items() if asking.who.may(one)
            },
            "lasts": lasts,
            "ends": ends,
        },
    )


async def start(asking: Asking, fields: Mapping[str, str]) -> None:
    """Begin to verify the log."""
    await asking.of("startVerification", {"full": "full" in fields})


async def erased(asking: Asking, fields: Mapping[str, str]) -> str:
    """Erase a run, once the beginning of its id is typed."""
    run, keep = fields["run"], "keep_file" in fields
    typed = fields.get("confirm", "").strip()
    if len(typed) < _TYPED or not run.startswith(typed):
        raise Refusal(
            "bad-request",
            "confirm: it is not the beginning of the id; nothing was erased",
            fix=f"type {run[:_TYPED]}",
        )
    body: JSON = {"reason": fields["reason"], "keep_file": keep}
    done = await asking.of("eraseRun", body, run=run)
    if not (done["scrubbed"] or keep):
        raise Refusal(
            "conflict",
            "the run is erased, but the database file could not be rewritten, and may "
            "still contain the data",
            fix="see `caxton audit erase --help`",
        )
    return f"/ui/runs/{run}"


async def made(asking: Asking, fields: Mapping[str, str]) -> Shown:
    """Make a token, and show it this once."""
    body: dict[str, JSON] = {
        "name": fields["name"],
        "expires": fields["expires"],
        "scopes": [
            key.removeprefix(_SCOPE) for key in fields if key.startswith(_SCOPE)
        ],
    }
    for name in ("agents", "roles"):
        if words := fields.get(name, "").split():
            body[name] = [*words]
    for name in ("tenant", "session"):
        if text := fields.get(name, "").strip():
            body[name] = text
    token = await asking.of("createToken", body)
    return Shown(template="token", title="A new token", values={"made": token})


async def revoked(asking: Asking, fields: Mapping[str, str]) -> None:
    """Revoke a token."""
    await asking.of("revokeToken", name=fields["id"])


VIEWS: Mapping[str, View] = {
    "/evidence": evidence,
    "/runs/{run}/erase": erase,
    "/access": access,
}
