"""
What a run is to be, and the events that its log begins with.

Everything that the guest is given is in them, and nothing else is given to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from . import codec
from .core.calls import JSON, Completed
from .core.catalogue import Catalogue
from .core.events import Event, RunStarted
from .core.forks import Point
from .core.grants import Grant
from .core.limits import Limits
from .core.payloads import settled
from .core.redact import Redactor
from .errors import BadBytes, UsageError
from .ports import Prepared

__all__ = [
    "ForkRequest",
    "RunRequest",
    "Setting",
    "forked_as",
    "grants_digest",
    "started_as",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """
    What a run is to be.

    Attributes:
        agent: Its name, also its trust domain.

        module: The bytes of the module.

        names: The agent's own names for tools, to ``(server, tool)``.

        actor: Who asks: ``{kind, id, authenticated}``.

        trigger: What began it; see `RunScope`.
    """

    agent: str
    module: bytes
    actor: dict[str, JSON]
    entry: str = "run"
    input: JSON = None
    context: dict[str, JSON] = field(default_factory=dict[str, JSON])
    limits: Limits = field(default_factory=Limits)
    grant: Grant = field(default_factory=Grant)
    names: Mapping[str, tuple[str, str]] = field(
        default_factory=dict[str, tuple[str, str]]
    )
    trigger: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """
    What a fork is to be.

    Attributes:
        run_id: The run that it leaves.

        seq: Behind which event of that.

        actor: Who asks: ``{kind, id, authenticated}``.

        grant: What it may do. The grants of its parent count no longer.

        module: What it runs, or ``None``: the module of its parent.

        edited: Instead of what the call of that event answered.
    """

    run_id: str
    seq: int
    actor: dict[str, JSON]
    grant: Grant
    module: bytes | None = None
    edited: Completed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """
    What a host adds to what was asked for.

    Attributes:
        prepared: The module.

        servers: What is known of the servers behind the tools.

        host: The stream of the host.

        seed: 32 random bytes. A fork draws from them behind the point of the fork.
    """

    prepared: Prepared
    servers: Mapping[str, dict[str, JSON]]
    host: str | None
    seed: bytes


def started_as(
    request: RunRequest, setting: Setting, catalogue: Catalogue, redact: Redactor
) -> RunStarted:
    """
    Return the event that a new run begins with.

    Args:
        request: What was asked for.

        setting: Where it is to run.

        catalogue: The names it has for tools.

        redact: Takes secrets out of input and context.

    Raises:
        UsageError: The input cannot be recorded, or is too large.
    """
    value = redact.value(request.input)
    try:
        size = len(codec.encode(value))
    except BadBytes as exc:
        raise UsageError(f"the input is {exc}", fix="pass what JSON can say") from None
    if size > request.limits.input:
        raise UsageError(
            f"the input has {size} bytes, of {request.limits.input} allowed",
            fix="pass less, or raise limits.input of the agent",
        )
    return RunStarted(
        agent=request.agent,
        actor=request.actor,
        module_sha256=setting.prepared.sha256,
        abi=setting.prepared.abi,
        entry=request.entry,
        input=value,
        context=redact.value(request.context),
        limits=request.limits.to_payload(),
        seed=setting.seed.hex(),
        grants=request.grant.to_payload(),
        grants_sha256=grants_digest(request.grant),
        catalogue=catalogue.to_payload(),
        servers=dict(setting.servers),
        host=setting.host,
        engine=setting.prepared.engine,
    )


def forked_as(
    request: ForkRequest, setting: Setting, before: RunStarted, point: Point
) -> list[Event]:
    """
    Return the events that a fork begins with.

    Args:
        request: What was asked for.

        setting: Where it is to run.

        before: How its parent began.

        point: Where it leaves that.
    """
    started = replace(
        before,
        actor=request.actor,
        module_sha256=setting.prepared.sha256,
        abi=setting.prepared.abi,
        seed=setting.seed.hex(),
        grants=request.grant.to_payload(),
        grants_sha256=grants_digest(request.grant),
        servers=dict(setting.servers),
        host=setting.host,
        engine=setting.prepared.engine,
        parent=None,
        forked_from={
            "run": request.run_id,
            "seq": point.last.seq,
            "hash": point.last.hash.hex(),
        },
    )
    if point.edited is None or request.edited is None:
        return [started]
    return [started, settled(point.edited.call, request.edited)]


def grants_digest(grant: Grant) -> str:
    """Return the digest that events name a grant by, in hex."""
    return codec.sha256(codec.canonical(grant.to_payload()))
