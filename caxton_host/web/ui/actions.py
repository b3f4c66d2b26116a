"""What forms do: each is an operation of the API, with the fields of the form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from ...core.calls import JSON
from ..edge.messages import Refusal
from . import access
from .asking import Asking, number
from .views import Shown, json_of

Fields: TypeAlias = Mapping[str, str]
#: Returns where to go on, or what is shown only now; ``None``: back to the page.
Action: TypeAlias = Callable[[Asking, Fields], Awaitable[str | Shown | None]]

_SELECTED = "run:"
_FIELD = "field:"
#: Fields of a server that are a table: what parts a line in two.
_TABLES = {"env": "=", "headers": ":"}


def _simple(id_: str, *names: str) -> Action:
    """Return the action of an operation whose body has the fields with these names."""

    async def act(asking: Asking, fields: Fields) -> None:
        body: JSON = {name: fields[name] for name in names if name in fields}
        path = {name: fields[name] for name in ("run", "name") if name in fields}
        await asking.of(id_, body, **{k: v for k, v in path.items() if k not in names})

    return act


async def _resolve(asking: Asking, fields: Fields) -> None:
    body: dict[str, JSON] = {
        "seq": _seq(fields),
        "choice": fields.get("choice", ""),
        "reason": fields.get("reason", ""),
    }
    if body["choice"] == "result":
        body["result"] = _result(fields["result"])
    await asking.of("resolveCall", body, run=fields["run"])


async def _fork(asking: Asking, fields: Fields) -> str:
    body: dict[str, JSON] = {"seq": _seq(fields)}
    if fields.get("result", "").strip():
        body["result"] = _result(fields["result"])
    new = await asking.of("forkRun", body, run=fields["run"])
    return f"/ui/runs/{new['run_id']}"


def _seq(fields: Fields) -> int:
    seq = number(fields.get("seq", ""))
    if seq is None:
        raise Refusal("bad-request", "seq: not the number of an event")
    return seq


def _result(text: str) -> JSON:
    """Return the answer of a tool: JSON as it is, and a text as its only part."""
    if text.lstrip().startswith("{"):
        return json_of(text, "result")
    return {"content": [{"type": "text", "text": text}]}


async def _approval(asking: Asking, fields: Fields) -> None:
    what = fields.get("what", "")
    if what not in {"approveCall", "denyCall"}:
        raise Refusal("bad-request", "what: approve or deny")
    body: JSON = {"reason": fields.get("reason", "")}
    await asking.of(what, body, run=fields["run"], seq=_seq(fields))


async def _answer(asking: Asking, fields: Fields) -> None:
    body: dict[str, JSON] = {"reason": fields.get("reason", "")}
    run, seq = fields["run"], _seq(fields)
    if fields.get("what") == "accept":
        shown = await asking.of("listApprovals", limit=100)
        asked = [o for o in shown["questions"] if (o["run_id"], o["seq"]) == (run, seq)]
        kinds: Any = (
            asked[0]["form"]["properties"] if asked and asked[0]["form"] else {}
        )
        body["content"] = {
            name: _typed(kinds.get(name, {}), text, name)
            for key, text in fields.items()
            if key.startswith(_FIELD) and text
            for name in [key.removeprefix(_FIELD)]
        }
    await asking.of("answerQuestion", body, run=run, seq=seq)


def _typed(schema: Mapping[str, Any], text: str, name: str) -> JSON:
    return text if schema.get("type", "string") == "string" else json_of(text, name)


async def _runs(asking: Asking, fields: Fields) -> None:
    """Cancel or resume the selected runs."""
    selected = [
        key.removeprefix(_SELECTED) for key in fields if key.startswith(_SELECTED)
    ]
    if not selected:
        raise Refusal(
            "bad-request", "no run is selected", fix="select some in the list"
        )
    what = fields.get("what", "")
    if what not in {"cancel", "resume"}:
        raise Refusal("bad-request", "what: cancel or resume")
    body: JSON = {"reason": fields.get("reason", "")} if what == "cancel" else {}
    for run in selected:
        await asking.of(f"{what}Run", body, run=run)


async def _test(asking: Asking, fields: Fields) -> None:
    found = await asking.of("testServer", name=fields["name"])
    if not found["answers"]:
        raise Refusal("server-unavailable", f"it does not answer: {found['problem']}")


def _server(id_: str) -> Action:
    async def act(asking: Asking, fields: Fields) -> None:
        body: dict[str, JSON] = {}
        if program := fields.get("program", "").strip():
            body["command"] = [program, *_lines(fields, "words")]
        for name in ("url", "transport"):
            if text := fields.get(name, "").strip():
                body[name] = text
        for name, mark in _TABLES.items():
            pairs = (line.partition(mark) for line in _lines(fields, name))
            table: dict[str, JSON] = {
                key.strip(): said.strip() for key, _, said in pairs
            }
            if table:
                body[name] = table
        name = fields.get("name", "")
        if id_ == "addServer":
            await asking.of(id_, {"name": name, **body})
        else:
            await asking.of(id_, body, name=name)

    return act


def _lines(fields: Fields, name: str) -> list[str]:
    return [line for line in fields.get(name, "").splitlines() if line.strip()]


#: The names of actions, what each does, and what is said once it is done.
ACTIONS: Mapping[str, tuple[Action, str]] = {
    "cancelRun": (_simple("cancelRun", "reason"), "The run is asked to end."),
    "resumeRun": (_simple("resumeRun"), "The run goes on."),
    "forkRun": (_fork, "This is the fork."),
    "resolveCall": (_resolve, "The call is resolved."),
    "approval": (_approval, "Your decision is recorded."),
    "answer": (_answer, "Your answer is recorded."),
    "runs": (_runs, "Done with the selected runs."),
    "testServer": (_test, "The server answers."),
    "restartServer": (_simple("restartServer", "reason"), "The hosts restart it."),
    "addServer": (_server("addServer"), "The server is added."),
    "changeServer": (_server("changeServer"), "The server is changed."),
    "removeServer": (_simple("removeServer"), "The server is removed."),
    "startVerification": (access.start, "The log is being verified."),
    "eraseRun": (access.erased, "The data of the run is erased."),
    "createToken": (access.made, ""),
    "revokeToken": (access.revoked, "The token is revoked."),
    "thaw": (_simple("thaw", "kind", "name", "reason"), "It is thawed."),
}
