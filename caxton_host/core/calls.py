"""A tool call and its outcome: the values that every layer shares."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Literal, TypeAlias

from ..errors import FailureKind, Sent

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

Effect: TypeAlias = Literal["read", "idempotent", "keyed", "unsafe"]

#: What the log keeps of an answer: the whole, or its digest.
Record: TypeAlias = Literal["full", "hash"]

#: What agent and log get of an answer: the whole, or its message.
Reply: TypeAlias = Literal["full", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """
    One call of an agent, identified by its position in the run.

    Attributes:
        number: 1 for the run's first call, and so on.

        name: The exposed name of the tool.

        params: The decoded parameters, or ``None`` if the bytes were invalid.
            Grants judge these, and the tool gets these.

        digest: SHA-256 of the agent's own bytes, in hex. Calls are compared by it and
            not by decoded values, since in Python ``1 == True == 1.0``.

        fuel: The fuel that the agent had used. It is deterministic under one engine,
            so a different figure is an early sign of divergence.

        size: The size of the parameters in the agent's own bytes.

        fault: Why the bytes are invalid, or ``""``.

        over: The limit that this attempt exceeds, or ``""``. It ends the run.
    """

    number: int
    name: str
    params: dict[str, JSON] | None = field(compare=False)
    digest: str
    fuel: int = field(default=0, compare=False)
    size: int = field(default=0, compare=False)
    fault: str = field(default="", compare=False)
    over: str = field(default="", compare=False)


#: An answer that is too large is a failure, or is replaced by its digest.
OverLimit: TypeAlias = Literal["fail", "cut"]

#: Effects of calls that may be repeated.
REPEATABLE: frozenset[Effect] = frozenset({"read", "idempotent", "keyed"})

#: Failures that may pass; any other would fail in the same way again.
_PASSING: frozenset[FailureKind] = frozenset({"transport", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """
    How often a failed call is sent again, if its effect allows it.

    Attributes:
        attempts: The number of sends, the first included.

        backoff: Seconds before the second send; doubled for each further one.
    """

    attempts: int = 1
    backoff: float = 0.2

    def again(
        self, effect: Effect, kind: FailureKind, sent: Sent, *, sends: int
    ) -> bool:
        """
        Return whether to send a failed call again.

        Args:
            effect: The effect class of its tool.

            kind: The kind of the failure.

            sent: Whether any send may have reached the server.

            sends: The number of sends so far.

        >>> Retry(attempts=2).again("unsafe", "timeout", "unknown", sends=1)
        False
        """
        if sends >= self.attempts or kind not in _PASSING:
            return False
        return sent == "no" or effect in REPEATABLE

    def pause(self, key: str, sends: int) -> float:
        """
        Return the seconds to wait before the next send.

        Half of it depends on the *key* of the call, so that calls that failed together
        are not sent together.
        """
        share = int.from_bytes(sha256(f"{key} {sends}".encode()).digest()[:4]) / 2**32
        pause = self.backoff * 2.0 ** min(sends - 1, 16)
        return min(pause, _LONGEST_PAUSE) * (0.5 + share / 2)


_LONGEST_PAUSE = 60.0

_LIKELIER: Mapping[Sent, int] = {"no": 0, "unknown": 1, "yes": 2}


def likelier(one: Sent, other: Sent) -> Sent:
    """
    Return whether a server may have acted, given what is known of two sends.

    >>> likelier("unknown", "no")
    'unknown'
    """
    return one if _LIKELIER[one] >= _LIKELIER[other] else other


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """
    The tool that an exposed name leads to. Pinned for a run when it starts.

    Attributes:
        server: A server of the configuration, or a group of webhooks.

        tool: The tool, by the server's own name.

        definition_sha256: Digest of the definition that was offered, or ``None``
            if the server was down when the run started.

        effect: The effect class, by configuration.

        record: What the log keeps of its answers.

        reply: What agent and log get of its answers.

        retry: How often a call is sent.

        over_limit: How an answer that is too large is handled.

        key_argument: The parameter in which the idempotency key is sent, or ``None``.
            Not pinned: the configuration at the time of the send counts.

        guessed: The name of the tool was parsed from the agent's own text, since its
            server could not list its tools. So metrics do not use it as a label.
    """

    server: str
    tool: str
    definition_sha256: str | None = None
    effect: Effect = "unsafe"
    record: Record = "full"
    reply: Reply = "full"
    retry: Retry = field(default_factory=Retry)
    over_limit: OverLimit = "fail"
    key_argument: str | None = None
    guessed: bool = False

    def shown(self, done: Completed) -> Completed:
        """Return what agent and log get of an answer."""
        return withheld(done) if self.reply == "message" else done


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """
    The tool answered, with a result or an error of its own.

    Attributes:
        is_error: The tool reports an error.

        message: A short text for people.

        data: Every content block, and ``structuredContent`` if there is one.

        blobs: Parts kept by digest: ``{"sha256", "bytes", "media_type"}``.

        duration_us: From the first byte sent to the answer, over all attempts and
            the pauses between them; of a resumed call, since it was resumed.

        attempts: How often the call was sent.

        bytes: Size of the answer on the wire.

        cut: This is the digest that the log keeps instead of the answer. See `cut`.

        cached: It is the answer to an earlier call. Nothing was sent.

        withheld: ``{"sha256", "bytes"}`` of the data that agent and log do not get.

        settles: What the call has spent in truth of budgets that the answer settles,
            by key. The gateway sets it.

        reached: ``SERVER/TOOL`` of what the run of an agent called to answer.

        contents: The bytes of the blobs, by digest, until they are in the log.

        told: Makes the message from the data, where these suffice.
    """

    is_error: bool = False
    message: str = ""
    data: JSON = None
    blobs: tuple[dict[str, JSON], ...] = ()
    duration_us: int = 0
    attempts: int = 1
    bytes: int = 0
    cut: bool = False
    cached: bool = False
    withheld: dict[str, JSON] | None = None
    settles: dict[str, int] | None = None
    reached: tuple[JSON, ...] = ()
    contents: Mapping[str, builtins.bytes] = field(
        default_factory=dict[str, builtins.bytes], compare=False, repr=False
    )
    told: Callable[[dict[str, JSON]], str] | None = field(
        default=None, compare=False, repr=False
    )


def cut(done: Completed) -> Completed:
    """
    Return the digest form of an answer, which the log keeps in its place.

    The digest is of the JSON text of ``{"data", "message"}`` in UTF-8, keys in order,
    no space between. So the answer can be compared with the log later.

    >>> cut(Completed(message="clear")).data["$cut"]["bytes"]
    31
    """
    kept: JSON = {"$cut": _digest(done)}
    return replace(done, message="", data=kept, blobs=(), contents={}, cut=True)


def _digest(done: Completed) -> dict[str, JSON]:
    text = json.dumps(
        {"data": done.data, "message": done.message},
        ensure_ascii=False,
        sort_keys=True,
        separators=(",", ":"),
    ).encode()
    return {"sha256": sha256(text).hexdigest(), "bytes": len(text)}


#: Characters that are left of the message of an answer that is cut.
_MESSAGE = 64 * 1024


def shortened(done: Completed, limit: int) -> Completed:
    """
    Return an answer of more than *limit* bytes with a digest in place of its data.

    Its message is cut to *limit* characters. The digest is the one of `cut`, and the
    agent gets the same.

    >>> shortened(Completed(message="clear", data=[1]), 3).message
    'cle'
    """
    short = done.message[: min(limit, _MESSAGE)]
    if isinstance(done.data, dict) and done.data.keys() == {"$cut"}:
        return replace(done, message=short)
    return replace(cut(done), message=short, cut=False)


def withheld(done: Completed) -> Completed:
    """
    Return an answer without its data. Only the log gets a digest, as by `cut`.

    >>> done = withheld(Completed(message="clear", data={"sky": "clear"}))
    >>> done.message, done.data, done.withheld["bytes"]
    ('clear', None, 42)
    """
    if done.data is None:
        return done
    return replace(
        done, data=None, blobs=(), contents={}, withheld=_digest(done), told=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """
    The call was allowed, and the tool gave no answer.

    Attributes:
        code: The code of the server's own error, or ``None``.
    """

    kind: FailureKind
    sent: Sent
    message: str
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """
    The call was denied. Nothing was sent.

    Attributes:
        code: ``not_granted``, ``denied``, ``expired``, ``order``, ``too_large``,
            ``params``, ``schema``, ``budget``, ``rate``, ``busy``, ``approval``,
            ``bad_request``, ``limit`` or ``error``.

        rule: The rule that decided; ``None``: no rule allows the call.

        message: A text for the agent. It contains nothing that the agent cannot know.
    """

    code: str
    rule: str | None
    message: str


Outcome: TypeAlias = Completed | Failed | Denied

OK, TOOL_ERROR, DENIED, FAILED, BAD_REQUEST = range(5)


def reply(outcome: Outcome) -> tuple[int, Mapping[str, JSON]]:
    """
    Return the status and the map that an agent gets for *outcome*.

    >>> reply(Completed(message="clear", data={"sky": "clear"}))
    (0, {'status': 'ok', 'message': 'clear', 'data': {'sky': 'clear'}})
    >>> reply(Denied(code="not_granted", rule=None, message="no grant"))[0]
    2
    """
    if isinstance(outcome, Completed):
        if not outcome.is_error:
            return OK, {
                "status": "ok",
                "message": outcome.message,
                "data": outcome.data,
            }
        return TOOL_ERROR, _problem(
            "tool_error", "tool_error", outcome.message, outcome.data
        )
    if isinstance(outcome, Failed):
        return FAILED, _problem(
            "failed", outcome.kind, outcome.message, server_code=outcome.code
        )
    if outcome.code == "bad_request":
        return BAD_REQUEST, _problem("bad_request", "bad_request", outcome.message)
    return DENIED, _problem("denied", outcome.code, outcome.message)


def _problem(
    status: str,
    code: str,
    message: str,
    data: JSON = None,
    *,
    server_code: int | None = None,
) -> Mapping[str, JSON]:
    error: dict[str, JSON] = {"code": code, "message": message}
    if server_code is not None:
        error["server_code"] = server_code
    return {"status": status, "message": message, "data": data, "error": error}
