"""
Golden runs: bundles of recorded runs, over which the agent of today is executed.

Nothing in a bundle is interpreted before it is verified, and nothing is sent.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ..app.bootstrap import library_of
from ..config import Paths, load_parts
from ..config.model import CALLER, Agent
from ..core.analysis.tracing import tool_of
from ..core.calls import JSON
from ..core.log.bundle import Bundle
from ..core.log.checkpoint import fingerprint, parse_key
from ..core.log.events import RunStarted, ToolInvoked
from ..core.names import stream_of
from ..errors import BadBytes, UnexpectedRun, UsageError
from ..lib.signing import Keyring
from ..ports.sandbox import Sandbox
from ..runs.modules import Library, shown
from ..runs.recording import Recording
from ..runs.replay import Options, replay
from ..store.bundle_store import BundleStore, check_bundle, read_bundle
from ..telemetry import NoTelemetry
from .replaying import compared
from .runs import plain

_ID = len("018bcfe5-6800")
_MAX_INPUT = 200


@dataclass(frozen=True, slots=True)
class GoldenRuns:
    """
    The golden runs of a project.

    Attributes:
        agents: Those of its configuration, by name.

        library: Reads their files.

        keys: Public keys whose bundles are believed.
    """

    agents: Mapping[str, Agent]
    library: Library
    keys: Collection[bytes]

    @classmethod
    def of(
        cls,
        config: Path | None,
        keys: Sequence[str],
        environ: Mapping[str, str],
        cwd: Path,
    ) -> Self:
        """
        Return those of a project. No credential is read.

        Args:
            config: Its configuration, or ``None`` to look for one.

            keys: Public keys; if none is given, those that the configuration trusts and
                this machine's own.

            environ: The environment.

            cwd: The folder to look in.

        Raises:
            UsageError: The configuration is broken, or a key is none.
        """
        found = load_parts(config, ("agents", "audit"), environ=environ, cwd=cwd)
        paths = Paths.of(environ)
        given = [_key(text) for text in keys]
        known = (*found.audit.trusted_keys, *Keyring(paths.state).known())
        return cls(found.executed, library_of(paths), given or known)

    def name(self, path: Path) -> str:
        """
        Return agent, run and tools of a bundle.

        Raises:
            UsageError: It is not verified.
        """
        bundle, tools, agent = self._believed(path), list[str](), ""
        for one in BundleStore(bundle).recorded():
            if isinstance(one.event, RunStarted):
                agent = one.event.agent
            elif isinstance(one.event, ToolInvoked) and one.stream == stream_of(
                bundle.header.run
            ):
                tools.append(tool_of(one.event))
        called = "-".join(tools).replace("/", ".") or "no-call"
        return f"{agent}-{bundle.header.run[:_ID]}-{called}"

    async def check(self, path: Path, sandbox: Sandbox) -> None:
        """
        Execute the agent of today over a bundle, or judge a session again.

        Raises:
            UnexpectedRun: It differs; the first difference.

            UsageError: The bundle is not verified, or it cannot be executed.
        """
        bundle = self._believed(path)
        store, run_id = BundleStore(bundle), bundle.header.run
        recording = await Recording.load(run_id, store)
        found = await replay(
            run_id,
            store=store,
            sandbox=sandbox,
            telemetry=NoTelemetry(),
            options=self._today(recording, bundle),
        )
        if found.not_kept:
            raise found.not_kept
        if found.divergence is None:
            return
        where, agent = found.divergence, recording.started.agent
        at = f"event {where.seq}" if where.seq else "the end of the log"
        of = f" of run {where.run}" if where.run else ""
        values = compared(f"{at}{of}, {where.path}", where.recorded, where.replayed)
        again = f"caxton run {agent} {_given(recording.started.input)}"
        raise UnexpectedRun(
            f"{plain(agent)} differs from run {run_id}: {values}",
            fix="change the agent; or, if this is right, record a run that replaces it:"
            f"\n  {plain(again)}"
            f"\n  caxton runs replace {shown(path)} @last",
            divergence=where,
        )

    def _believed(self, path: Path) -> Bundle:
        """Return a bundle that is intact and signed by a known key."""
        try:
            bundle = read_bundle(path)
        except BadBytes as exc:
            raise _unverified(path, str(exc), _ANEW) from None
        found = check_bundle(bundle, self.keys)
        if found.faults:
            raise _unverified(path, str(found.faults[0]), _ANEW)
        if found.verdict != "intact":
            raise _unverified(
                path,
                "it is signed by a key that is not trusted, with the fingerprint "
                f"{fingerprint(bundle.header.key)}",
                "ask its owner, by another way, for the public key; then give it with "
                "--caxton-key, or in [audit] trusted_keys",
            )
        return bundle

    def _today(self, recording: Recording, bundle: Bundle) -> Options:
        """Return what is executed: the agent of today, or what was recorded."""
        started = recording.started
        agent = self.agents.get(started.agent)
        if recording.is_session:
            return Options()
        if agent is None or agent.program == CALLER:
            if started.module_sha256 not in bundle.blobs:
                raise UsageError(
                    f"neither the project nor the bundle has {plain(started.agent)}",
                    fix="add the agent to the configuration, or export the run with "
                    "caxton runs sample --code",
                )
            return Options()
        code = self.library.code(agent, None)
        return Options(against=code.module, program=code.program)


_ANEW = "restore the file from version control, or export the run again"


def _unverified(path: Path, why: str, fix: str) -> UsageError:
    return UsageError(f"{plain(path.name)} is not verified: {plain(why)}", fix=fix)


def _key(text: str) -> bytes:
    found = parse_key(text)
    if found is None:
        raise UsageError(
            f"--caxton-key {text} is no public key",
            fix="give the 64 digits of caxton audit key",
        )
    return found


def _given(value: JSON) -> str:
    text = json.dumps(value)
    return f"-i {shlex.quote(text)}" if len(text) <= _MAX_INPUT else "-i INPUT"
