"""What forms do: each is an operation of the API, with the fields of the form."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ...config.narrowing import written
from ...core.calls import JSON
from ...errors import CaxtonError
from ..edge.messages import Refusal, problem_of
from . import access, grants, servers
from .asking import Action, Asking, Fields, Shown, number
from .forms import json_of, typed

_SELECTED = "run:"


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
    run = fields["run"]
    if body["choice"] == "result":
        told = await asking.of("callContext", run=run, seq=body["seq"])
        content = typed(told["output_schema"], fields)
        text = fields["result"]
        body["result"] = (
            _result(text)
            if text.strip() or not content
            else {
                "content": [{"type": "text", "text": json.dumps(content)}],
                "structuredContent": content,
            }
        )
    await asking.of("resolveCall", body, run=run)


async def _fork(asking: Asking, fields: Fields) -> str:
    body: dict[str, JSON] = {"seq": _seq(fields)}
    if fields.get("result", "").strip():
        body["result"] = _result(fields["result"])
    if (text := fields.get("narrow", "")).strip():
        body["narrow"] = {**written(text).tree}
    new = await asking.of("forkRun", body, run=fields["run"])
    return f"/ui/runs/{new['run_id']}"


def _seq(fields: Fields) -> int:
    seq = number(fields.get("seq", ""))
    if seq is None:
        raise Refusal("bad-request", "seq: not the number of an event")
    return seq


def _result(text: str) -> JSON:
    """Return the answer of a tool: JSON as it is, and a text as its only part."""
    if not text.strip():
        fix = 'type it; {"content": []} is an empty one'
        raise Refusal("bad-request", "result: no answer is given", fix=fix)
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
        shown = await asking.of("listApprovals", run=run, limit=100)
        asked = [one for one in shown["questions"] if one["seq"] == seq]
        body["content"] = {**typed(asked[0]["form"], fields)} if asked else {}
    await asking.of("answerQuestion", body, run=run, seq=seq)


async def _runs(asking: Asking, fields: Fields) -> Shown:
    """Cancel or resume the selected runs, and show what came of each."""
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
    came: list[dict[str, str]] = []
    for run in selected:
        try:
            state = (await asking.of(f"{what}Run", body, run=run))["state"]
            came.append({"run": run, "state": state, "refusal": ""})
        except (Refusal, CaxtonError) as exc:
            if len(selected) == 1:
                raise
            problem = problem_of(exc).document()
            refusal = f"{problem['detail']} To fix: {problem['fix']}"
            came.append({"run": run, "state": "", "refusal": refusal})
    return Shown(
        template="came",
        title=f"{what.capitalize()} several runs",
        values={"came": came},
    )


#: The names of actions, what each does, and what is said once it is done.
ACTIONS: Mapping[str, tuple[Action, str]] = {
    "cancelRun": (_simple("cancelRun", "reason"), "The run is asked to end."),
    "resumeRun": (_simple("resumeRun"), "The run goes on."),
    "forkRun": (_fork, "This is the fork."),
    "resolveCall": (_resolve, "The call is resolved."),
    "approval": (_approval, "Your decision is recorded."),
    "answer": (_answer, "Your answer is recorded."),
    "runs": (_runs, "Done with the selected runs."),
    "startVerification": (access.start, "The log is being verified."),
    "eraseRun": (access.erased, "The data of the run is erased."),
    "createToken": (access.made, ""),
    "revokeToken": (access.revoked, "The token is revoked."),
    "thaw": (_simple("thaw", "kind", "name", "reason"), "It is thawed."),
    **grants.ACTIONS,
    **servers.ACTIONS,
}
