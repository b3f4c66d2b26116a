"""Record one run on the servers of a configuration as a cassette."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..app.tool_setup import open_tools
from ..config import Agent, Config, Paths, load
from ..core.names import nearest
from ..core.text.redact import Redactor
from ..errors import BadBytes, UsageError
from ..ports.sandbox import Sandbox
from ..telemetry import NoTelemetry
from .cassette import Cassette, parse, write
from .runs import Scene, Task, live


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """
    Runs one agent of a configuration.

    Attributes:
        config: The configuration. Its database is not used.

        agent: The agent.

        tokens: The folder of the tokens of logins.
    """

    config: Config
    agent: Agent
    tokens: Path | None = None

    @classmethod
    def of(
        cls, path: Path | None, agent: str, environ: Mapping[str, str], cwd: Path
    ) -> Recorder:
        """
        Return the recorder of an agent.

        Args:
            path: The configuration, or ``None`` to look for one.

            agent: Its name there.

            environ: Where variables are looked up.

            cwd: The folder to look in.

        Raises:
            UsageError: The configuration is broken, or has no such agent.
        """
        config = load(path, environ=environ, cwd=cwd)
        if agent in config.executed:
            tokens = Paths.of(environ).tokens
            return cls(config=config, agent=config.executed[agent], tokens=tokens)
        known = ", ".join(sorted(config.executed)) or "none"
        meant = nearest(agent, [*config.executed]) or next(iter(config.executed), None)
        raise UsageError(
            f"no agent {agent!r} to record; the configuration has: {known}",
            fix=f"pass agent={meant!r}" if meant else f"add [agents.{agent}] to it",
        )

    async def record(
        self, sandbox: Sandbox, module: bytes, task: Task
    ) -> tuple[str, Cassette]:
        """
        Run the agent on the real servers, and return its cassette, as text too.

        Raises:
            UsageError: The run cannot be a cassette.

            CaxtonError: As of `Host.start`.
        """
        redact = Redactor(self.config.secrets)
        connected = open_tools(
            self.config, redact, NoTelemetry(), lambda _: None, tokens=self.tokens
        )
        async with connected as tools:
            scene = Scene(
                agent=self.agent.name,
                tools=tools,
                servers=self.config.granted_servers,
                grant=self.agent.grant,
                names=self.agent.names,
                redact=redact,
            )
            history, blobs = await live(sandbox, module, scene, task)
        text = write(history, blobs)
        try:
            return text, parse(text)
        except BadBytes as exc:
            raise UsageError(
                f"the run is too large for a cassette: {exc}",
                fix="record a shorter run",
            ) from None

    def whole(self, task: Task) -> Task:
        """
        Return *task*, completed from the configuration.

        Raises:
            UsageError: A required variable is missing.
        """
        context = {**task.context}
        for key, variable in self.config.context.items():
            if key in context:
                continue
            if variable.required:
                raise UsageError(
                    f"the run variable {key!r} is required",
                    fix=f"pass context={{{key!r}: ...}}",
                )
            if variable.default is not None:
                context[key] = variable.default
        return replace(
            task,
            context=context,
            entry=task.entry or self.agent.entry,
            limits=task.limits or self.agent.limits,
        )
