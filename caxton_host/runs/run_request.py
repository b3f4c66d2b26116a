"""
Requests for runs and forks, and the events that their logs begin with.

These events hold everything that the guest is given.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from ..config import Agent
from ..core import clients
from ..core.calls import JSON, Completed
from ..core.commands import ABI, Command
from ..core.grants.bounds import TODAY, Bound, bounds_of, reached
from ..core.grants.call_terms import Terms
from ..core.grants.forks import Point
from ..core.grants.grants import Grant
from ..core.grants.tool_catalog import Catalogue, shown
from ..core.limits import Limits
from ..core.log.events import Event, RunQueued, RunStarted, settled
from ..core.programs import Program
from ..core.text.redact import Redactor
from ..core.tools.contexts import BUILT_IN, PROMPT, prompted
from ..errors import BadBytes, UsageError
from ..lib import codec
from ..ports.sandbox import Prepared
from .command_files import check_command
from .modules import Code, check_input

_log = logging.getLogger("caxton_host")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """
    A request for a run.

    Attributes:
        agent: The name of the agent.

        module: The bytes of the module.

        program: What that executes, if it is a runtime.

        names: The agent's own names for tools, to ``(server, tool)``.

        actor: Who asks: ``{kind, id, authenticated}``.

        trigger: What started it; see `RunScope`.

        prompt: A template that becomes its variable ``prompt``, filled in.

        private: Variables for servers only, never for the agent or the log.

        trace: The W3C trace context of the caller: ``traceparent`` and, if given,
            ``tracestate`` and ``baggage``. Other keys are ignored.

        command: What a WASI program is given; its arguments without its name.

        files: The bytes of its files, by their digests.

        bounds: The grants that bind it beside that of its agent.

        called_by: The number of the call that it answers, if a run calls it.

        callers: The runs that wait for it, the top one first.

        carried: Of a session, what the one before it counted.

        unvouched: The names of variables that no operator gave: no source of values.

        task_ttl: See `RunStarted`.

        priority: See `RunQueued`.

        signatures: See `RunStarted`.
    """

    agent: str
    module: bytes
    actor: dict[str, JSON]
    program: Program | None = None
    entry: str = "run"
    input: JSON = None
    context: dict[str, JSON] = field(default_factory=dict[str, JSON])
    limits: Limits = field(default_factory=Limits)
    grant: Grant = field(default_factory=Grant)
    names: Mapping[str, tuple[str, str]] = field(
        default_factory=dict[str, tuple[str, str]]
    )
    trigger: str = "cli"
    prompt: str | None = None
    private: Mapping[str, JSON] = field(default_factory=dict[str, JSON], repr=False)
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    command: Command = field(default_factory=Command)
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    bounds: tuple[Bound, ...] = ()
    called_by: int | None = None
    callers: tuple[str, ...] = ()
    carried: dict[str, JSON] | None = None
    unvouched: Collection[str] = ()
    task_ttl: int | None = None
    priority: int = 0
    signatures: tuple[JSON, ...] = ()

    @classmethod
    def of(cls, agent: Agent, code: Code, actor: dict[str, JSON]) -> Self:
        """Return the request of an actor for a run of an agent that executes *code*."""
        return cls(
            agent=agent.name,
            module=code.module,
            program=code.program,
            entry=agent.entry,
            input=code.input,
            prompt=agent.prompt,
            limits=agent.limits,
            grant=agent.grant,
            names=agent.names,
            actor=actor,
            command=code.command,
            files=code.files,
            priority=agent.priority,
            signatures=code.signatures,
        )

    def from_queue(self, queued: RunQueued, files: Mapping[str, bytes]) -> Self:
        """
        Return this request, of its agent as it is now, as the one that was queued.

        What its agent is granted now binds the run beside what it was granted then.

        Args:
            queued: The event.

            files: The bytes of its files, by their digests.

        Raises:
            UsageError: It is bound by a grant of an unknown form.
        """
        given = Grant.from_payload(queued.grants)
        bounds = bounds_of(queued.bounds)
        if grants_digest(self.grant) != queued.grants_sha256:
            bounds = (*bounds, Bound(name=TODAY, grant=self.grant))
        return replace(
            self,
            grant=given,
            bounds=bounds,
            input=queued.input,
            context=queued.context,
            trigger=queued.trigger,
            trace={key: str(value) for key, value in (queued.trace or {}).items()},
            command=Command.from_payload(queued.command),
            files=files,
            unvouched=tuple(map(str, queued.unvouched)),
            task_ttl=queued.task_ttl,
        )

    def servers(self, known: Collection[str]) -> list[str]:
        """Return those of the *known* servers whose tools it may call, or names."""
        others = [bound.grant for bound in self.bounds]
        named = {server for server, _ in self.names.values()}
        for one in others:
            named.intersection_update(one.servers(known))
        named.update(reached([self.grant, *others], known))
        return [name for name in known if name in named]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """
    A request for a fork.

    Attributes:
        run_id: The parent: the run that is forked.

        seq: The last event of the parent that the fork inherits.

        actor: Who asks: ``{kind, id, authenticated}``.

        grant: What the fork may do, instead of the grants of the parent.

        module: The module that it runs, or ``None`` for that of the parent.

        program: The same of its program.

        signatures: Of what replaces them; see `RunStarted`.

        edited: Replaces the answer of the call of that event.

        private: Variables for servers only, never for the agent or the log.

        bounds: Narrowings that bind the fork beside those of its parent.
    """

    run_id: str
    seq: int
    actor: dict[str, JSON]
    grant: Grant
    module: bytes | None = None
    program: Program | None = None
    signatures: tuple[JSON, ...] = ()
    edited: Completed | None = None
    private: Mapping[str, JSON] = field(default_factory=dict[str, JSON], repr=False)
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """
    What the host adds to a request.

    Attributes:
        prepared: The compiled module.

        servers: What is known of the servers behind the tools.

        host: The stream of the host.

        seed: 32 random bytes. A fork uses them from its first own call on.

        resources: The resources that were read for the context, or ``None``.

        unlisted: Servers that could not list their tools.
    """

    prepared: Prepared
    servers: Mapping[str, dict[str, JSON]]
    host: str | None
    seed: bytes
    resources: dict[str, JSON] | None = None
    unlisted: tuple[str, ...] = ()


def with_prompt(
    request: RunRequest, context: Mapping[str, JSON], run_id: str
) -> dict[str, JSON]:
    """Return the variables of a run with its prompt, if its agent has one."""
    if request.prompt is None:
        return {**context}
    built_in = zip(BUILT_IN, (run_id, request.agent, request.trigger), strict=True)
    filled = prompted(
        request.prompt, context, dict(built_in), longest=request.limits.input
    )
    if filled.problem:
        _log.warning(
            "the prompt of %s stays as it is: %s", request.agent, filled.problem
        )
    elif filled.unknown:
        names = ", ".join(f"{{{name}}}" for name in filled.unknown)
        _log.warning("the prompt of %s keeps %s", request.agent, names)
    return {**context, PROMPT: filled.text}


def check_request(request: RunRequest, redact: Redactor) -> None:
    """
    Check the input of a run. Call this before a server is started for it.

    Args:
        request: The request.

        redact: Removes secrets from the input, which the agent does not get.

    Raises:
        UsageError: The input cannot be recorded, is too large, or does not match the
            ``input_schema`` of the agent; or what a WASI program is given cannot be.
    """
    if request.program is not None:
        _check_secrets(request.program, redact)
    if redact.value([*request.signatures]) != [*request.signatures]:
        raise UsageError(
            f"a signature of {request.agent} holds a secret of the configuration",
            fix="sign again, with another trusted comment: caxton agent sign",
        )
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
    check_input(request.module, value)
    check_command(request.module, request.command, request.files, redact)


def _check_secrets(program: Program, redact: Redactor) -> None:
    for part in program.blobs.values():
        text = part.decode()
        if redact.text(text) != text:
            raise UsageError(
                f"the program {program.name} holds a secret of the configuration",
                fix="leave it out: servers get their secrets from the configuration",
            )


def queued_as(
    request: RunRequest, host: str | None, redact: Redactor
) -> tuple[RunQueued, Mapping[str, bytes]]:
    """
    Return the event that a run is queued with, and what is kept with it, by digest.

    Args:
        request: The request.

        host: See `RunQueued`.

        redact: Removes secrets from input, context, command and trace.
    """
    program = request.program
    digest = codec.sha256(request.module)
    queued = RunQueued(
        agent=request.agent,
        actor=request.actor,
        module_sha256=digest,
        input=redact.value(request.input),
        context=redact.value(request.context),
        grants=request.grant.to_payload(),
        grants_sha256=grants_digest(request.grant),
        trigger=request.trigger,
        host=host,
        priority=request.priority,
        program=program.to_payload() if program else None,
        command=redact.value(request.command.to_payload()),
        bounds=tuple(bound.to_payload() for bound in request.bounds),
        unvouched=tuple(sorted(request.unvouched)),
        trace=redact.value(dict[str, JSON](request.trace)),
        task_ttl=request.task_ttl,
        signatures=request.signatures,
    )
    kept = {digest: request.module, **request.files}
    return queued, {**kept, **(program.blobs if program else {})}


def started_as(
    request: RunRequest, setting: Setting, catalogue: Catalogue, redact: Redactor
) -> RunStarted:
    """
    Return the event that a new run begins with.

    Args:
        request: The request.

        setting: What the host adds.

        catalogue: The names that the run has for tools.

        redact: Removes secrets from input and context.
    """
    command = None
    if setting.prepared.abi == ABI:
        args = (request.agent, *request.command.args)
        command = replace(request.command, args=args).to_payload()
    return RunStarted(
        agent=request.agent,
        actor=request.actor,
        module_sha256=setting.prepared.sha256,
        abi=setting.prepared.abi,
        entry=request.entry,
        input=redact.value(request.input),
        context=redact.value(request.context),
        limits=request.limits.to_payload(),
        seed=setting.seed.hex(),
        grants=request.grant.to_payload(),
        grants_sha256=grants_digest(request.grant),
        catalogue=catalogue.to_payload(),
        servers=dict(setting.servers),
        host=setting.host,
        engine=setting.prepared.engine,
        resources=setting.resources,
        unlisted=setting.unlisted,
        program=request.program.to_payload() if request.program else None,
        command=redact.value(command),
        bounds=tuple(bound.to_payload() for bound in request.bounds),
        parent=request.callers[-1] if request.callers else None,
        vouched=_vouched(request, setting.prepared.abi),
        called_by=request.called_by,
        callers=request.callers,
        carried=request.carried,
        task_ttl=request.task_ttl,
        signatures=request.signatures,
    )


def _vouched(request: RunRequest, abi: str) -> dict[str, JSON] | None:
    """Return what of a request is a source of values; ``None``: all of it."""
    found: dict[str, JSON] = {}
    if request.callers or abi == clients.ABI:
        found["input"] = []
    if others := request.context.keys() & {*request.unvouched}:
        found.setdefault("input", ["$"])
        found["context"] = [*sorted(request.context.keys() - others)]
    return found or None


def forked_as(
    request: ForkRequest, setting: Setting, before: RunStarted, point: Point
) -> tuple[RunStarted, *tuple[Event, ...]]:
    """
    Return the events that a fork begins with.

    Args:
        request: The request.

        setting: What the host adds.

        before: The first event of the parent.

        point: Where the parent is forked.
    """
    program = None if request.module else before.program
    signatures = request.signatures if request.module else before.signatures
    if request.program is not None:
        program, signatures = request.program.to_payload(), request.signatures
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
        task_ttl=None,
        called_by=None,
        callers=(),
        program=program,
        signatures=signatures,
        forked_from={
            "run": request.run_id,
            "seq": point.last.seq,
            "hash": point.last.hash.hex(),
        },
    )
    invoked = point.edited
    if invoked is None or request.edited is None:
        return (started,)
    others = [request.grant, *(bound.grant for bound in bounds_of(before.bounds))]
    terms = Terms.of_call(invoked, Grant.from_payload(before.grants), others)
    given = shown(before.catalogue, invoked.name, terms.conceal(request.edited))
    return started, settled(invoked.call, given)


def grants_digest(grant: Grant) -> str:
    """Return the digest that events name a grant by, in hex."""
    return codec.sha256(codec.canonical(grant.to_payload()))
