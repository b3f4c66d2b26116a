"""Access: the tokens of callers, and the hosts of the log."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any
from uuid import UUID

from starlette.responses import Response

from ...core.calls import JSON
from ...core.grants.principals import SCOPES
from ...core.log.runs import RunFilter
from ...errors import ForbiddenError
from ...service.token_making import (
    Wanted,
    check_strength,
    check_wanted,
    lifetime,
    make,
    token_document,
)
from .operations import Answer, Asked, Operation, answer, takes

_RUNS = 1_000
_WORDS: dict[str, JSON] = {
    "type": "array",
    "maxItems": 50,
    "items": {"type": "string", "minLength": 1, "maxLength": 64},
}
_WORD: dict[str, JSON] = {"type": "string", "minLength": 1, "maxLength": 64}


async def tokens(asked: Asked) -> Response:
    """Return all tokens."""
    now = asked.service.host.clock.now()
    rows = await asked.service.store.tokens.all()
    return answer(
        {
            "$type": "caxton.tokens/v1",
            "tokens": [token_document(row, now) for row in rows],
        }
    )


async def create(asked: Asked) -> Response:
    """Make a token, which is shown this once."""
    service, body, who = asked.service, asked.body, asked.who
    _check_known(asked)
    given: dict[str, Any] = {name: body[name] for name in _TEXTS if name in body}
    for name in _LISTS:
        if name in body:
            given[name] = tuple(body[name])  # type: ignore[arg-type]  # its schema
    wanted = Wanted(seconds=lifetime(str(body["expires"])), **given)
    config, now = service.config(), service.host.clock.now()
    check_wanted(wanted, config)
    token, row = make(wanted, config, now, secrets.token_bytes)
    own = await service.store.tokens.find(who.id) if who.kind == "token" else None
    check_strength(who, own, row)
    async with asked.desk.keeping(who.actor) as keeper:
        await keeper.add_token(row)
    return answer({**token_document(row, now), "token": token.text}, 201)


async def revoke(asked: Asked) -> Response:
    """Revoke a token."""
    _check_known(asked)
    now = asked.service.host.clock.now()
    async with asked.desk.keeping(asked.who.actor) as keeper:
        await keeper.revoke_token(asked.path["name"], now)
    row = await asked.service.store.tokens.find(asked.path["name"])
    assert row is not None  # noqa: S101 -- it was revoked
    return answer(token_document(row, now))


def _check_known(asked: Asked) -> None:
    if not asked.who.authenticated and asked.desk.anybody:
        raise ForbiddenError(
            "this host takes callers without a token, and they cannot make or revoke "
            "tokens of others",
            fix="caxton serve token create, on the host",
        )


async def hosts(asked: Asked) -> Response:
    """Return the hosts of the log: those alive, and those that left runs behind."""
    store = asked.service.store
    living = await store.leases.hosts()
    running = await store.reader.runs(_RUNS, RunFilter(state="running"))
    driven = Counter(row.owner for row in running if row.owner)
    found: list[JSON] = [
        {
            "$type": "caxton.host/v1",
            "host": name,
            "alive": name in living,
            "this": name == asked.service.host.stream,
            "started_at": _started(name),
            "runs": driven[name],
        }
        for name in sorted({*living, *driven})
    ]
    return answer({"$type": "caxton.hosts/v1", "hosts": found})


def _started(host: str) -> int | None:
    """
    Return when a host has started, by its name: a UUID of version 7.

    >>> _started("host/018bcfe5-6800-7000-8000-000000000000"), _started("host/1")
    (1700000000000000, None)
    """
    try:
        return (UUID(host.removeprefix("host/")).int >> 80) * 1000
    except ValueError:
        return None


_TEXTS = ("name", "tenant", "session")
_LISTS = ("scopes", "agents", "roles")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="listTokens",
        method="GET",
        path="/tokens",
        about="List all tokens of the log, oldest first, those revoked too. No answer "
        "has the secret of one.",
        scopes=("admin",),
        handler=tokens,
        answers={200: Answer(about="The tokens.", schema="Tokens")},
    ),
    Operation(
        id="createToken",
        method="POST",
        path="/tokens",
        about="Make a token. Its text is in this answer, and nowhere else. It may no "
        "more than the caller, and lasts no longer than the caller's own token.",
        scopes=("admin",),
        handler=create,
        body=takes(
            ["expires"],
            name={"type": "string", "maxLength": 64},
            scopes={"type": "array", "maxItems": 5, "items": {"enum": [*SCOPES]}},
            agents=_WORDS,
            roles=_WORDS,
            tenant=_WORD,
            session=_WORD,
            expires={"type": "string", "maxLength": 20},
        ),
        answers={201: Answer(about="The token.", schema="NewToken")},
        problems=("refused",),
    ),
    Operation(
        id="revokeToken",
        method="DELETE",
        path="/tokens/{name}",
        about="Revoke a token by its id, for ever, from the next request on.",
        scopes=("admin",),
        handler=revoke,
        answers={200: Answer(about="The revoked token.", schema="Token")},
        problems=("not-found",),
    ),
    Operation(
        id="listHosts",
        reads=True,
        method="GET",
        path="/hosts",
        about="List the hosts of the log: those that hold their lease, and those that "
        "do not and left runs behind; with how many runs each drives.",
        scopes=("auditor",),
        handler=hosts,
        answers={200: Answer(about="The hosts.", schema="Hosts")},
    ),
)
