"""Values that cross every layer: a tool call and what became of it."""

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

#: What the log keeps of an answer: all of it, or its digest.
Record: TypeAlias = Literal["full", "hash"]

#: What agent and log get of an answer: all of it, or its message.
Reply: TypeAlias = Literal["full", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """
    One request of an agent, named by its position in the run.

    Attributes:
        number: 1 for the run's first call, and so on.

        name: What the agent calls the tool.

        params: The decoded parameters, or ``None`` if the bytes were bad.
            What is judged is what is sent.

        digest: SHA-256 of the agent's own bytes, in hex. Two calls are the same
            if these are: decoded values will not do, since in Python
            ``1 == True == 1.0``.

        fuel: What the agent had burnt when it called. Fuel is deterministic
            under one engine, so another figure is an early sign of divergence.

        size: How many bytes of its own the agent used for the parameters.

        fault: Why the bytes were bad, or ``""``.

        over: The limit that this attempt breaks, or ``""``. It ends the run.
    """

    number: int
    name: str
    params: dict[str, JSON] | None = field(compare=False)
    digest: str
    fuel: int = field(default=0, compare=False)
    size: int = field(default=0, compare=False)
    fault: str = field(default="", compare=False)
    over: str = field(default="", compare=False)


#: What becomes of an answer that is too large: none, or a digest in its place.
OverLimit: TypeAlias = Literal["fail", "cut"]

#: What repeating a call of that effect does is what calling it once does.
REPEATABLE: frozenset[Effect] = frozenset({"read", "idempotent", "keyed"})

#: What is not there yet may be there later; anything else fails the same way again.
_PASSING: frozenset[FailureKind] = frozenset({"transport", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """
    How often a call that failed is sent again, if its effect allows it.

    Attributes:
        attempts: How often it is sent in all.

        backoff: Seconds before the second send; doubled for each further one.
    """

    attempts: int = 1
    backoff: float = 0.2

    def again(
        self, effect: Effect, kind: FailureKind, sent: Sent, *, sends: int
    ) -> bool:
        """
        Return whether a call that failed is sent again.

        Args:
            effect: Of its tool.

            kind: How it failed.

            sent: Whether any of its sends may have reached the server.

            sends: How many there were.

        >>> Retry(attempts=2).again("unsafe", "timeout", "unknown", sends=1)
        False
        """
        if sends >= self.attempts or kind not in _PASSING:
            return False
        return sent == "no" or effect in REPEATABLE

    def pause(self, key: str, sends: int) -> float:
        """
        Return how many seconds to wait before the next send.

        Calls that failed together are not to be sent together, so half of it hangs
        on the *key* of the call.
        """
        share = int.from_bytes(sha256(f"{key} {sends}".encode()).digest()[:4]) / 2**32
        pause = self.backoff * 2.0 ** min(sends - 1, 16)
        return min(pause, _LONGEST_PAUSE) * (0.5 + share / 2)


_LONGEST_PAUSE = 60.0

_LIKELIER: Mapping[Sent, int] = {"no": 0, "unknown": 1, "yes": 2}


def likelier(one: Sent, other: Sent) -> Sent:
    """
    Return whether a server may have acted, of what is known of two sends.

    >>> likelier("unknown", "no")
    'unknown'
    """
    return one if _LIKELIER[one] >= _LIKELIER[other] else other


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """
    Where an exposed name leads. Pinned for a run when it starts.

    Attributes:
        server: A server of the configuration, or a group of webhooks.

        tool: The tool, by the server's own name.

        definition_sha256: Digest of the definition that was offered, or ``None``
            if the server was down when the run started.

        effect: What repeating a call may do, by the operator's word.

        record: What the log keeps of its answers.

        reply: What agent and log get of its answers.

        retry: How often a call is sent.

        over_limit: What becomes of an answer that is too large.

        key_argument: The parameter in which the idempotency key is sent, or ``None``.
            Not pinned: it is what the operator says when the call is sent.

        guessed: The tool was read from the agent's own words, since its server could
            not list its tools. So it is no label of a metric.
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
    The tool answered, well or with an error of its own.

    Attributes:
        is_error: The tool says that it failed.

        message: A short text for people.

        data: Every content block, and ``structuredContent`` if there is one.

        blobs: Parts kept by digest: ``{"sha256", "bytes", "media_type"}``.

        duration_us: From the first byte sent to the answer, over all attempts and
            the pauses between them; of a resumed call, since it was resumed.

        attempts: How often the call was sent.

        bytes: Size of the answer on the wire.

        cut: Not the answer itself, but what the log keeps of it. See `cut`.

        cached: It is the answer to an earlier call. Nothing was sent.

        withheld: ``{"sha256", "bytes"}`` of an answer whose data nobody gets.

        contents: The bytes of the blobs, by digest, until they are in the log.

        told: Makes the message of the data, where it can be made of these alone.
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
    contents: Mapping[str, builtins.bytes] = field(
        default_factory=dict[str, builtins.bytes], compare=False, repr=False
    )
    told: Callable[[dict[str, JSON]], str] | None = field(
        default=None, compare=False, repr=False
    )


def cut(done: Completed) -> Completed:
    """
    Return what the log keeps of an answer that is to be kept as a digest only.

    The digest is of the JSON text of ``{"data", "message"}`` in UTF-8, keys in order,
    no space between: whoever has the answer can show that it is the one.

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
    Return what is left of an answer that has more than *limit* bytes.

    Its message is kept, as far as it goes. In the place of its data stands the digest
    of the whole, as `cut` has it; here the agent sees no more either.

    >>> shortened(Completed(message="clear", data=[1]), 3).message
    'cle'
    """
    short = done.message[: min(limit, _MESSAGE)]
    if isinstance(done.data, dict) and done.data.keys() == {"$cut"}:
        return replace(done, message=short)
    return replace(cut(done), message=short, cut=False)


def withheld(done: Completed) -> Completed:
    """
    Return an answer without its data. A digest as of `cut` is for the log alone.

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
    The tool was to be asked, and no answer of its own came back.

    Attributes:
        code: That of the server's own error, or ``None``.
    """

    kind: FailureKind
    sent: Sent
    message: str
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """
    The tool was never asked.

    Attributes:
        code: ``not_granted``, ``denied``, ``expired``, ``order``, ``too_large``,
            ``params``, ``schema``, ``budget``, ``rate``, ``busy``, ``approval``,
            ``bad_request``, ``limit`` or ``error``.

        rule: The rule that decided, or ``None`` where the lack of one did.

        message: A text for the agent. Names nothing it does not know already.
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
