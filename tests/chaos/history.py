"""
Check the history of a fleet, by the documented format of the log alone.

    python -I tests/chaos/history.py URL LEDGER SAID FAULTS

LEDGER has the effects of tools, SAID what clients were told, FAULTS what was done to
whom. Nothing of the host is imported; docs/reference/bundle.md describes the hashes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgpack  # noqa: TID251 -- as above
import psycopg

EFFECTS = {"look": "read", "pay": "keyed", "send": "unsafe"}
UNDER_WAY = {"queued", "running", "suspended"}
OVER = ("completed", "failed", "cancelled")
OUTCOMES = ("ToolCompleted", "ToolFailed", "ToolDenied")
STATES = {  # what a run is before each event, and after it
    "RunQueued": ({""}, "queued"),
    "RunStarted": ({"", "queued"}, "running"),
    "RunResumed": ({"running", "suspended"}, "running"),
    "RunSuspended": ({"running"}, "suspended"),
    "RunCompleted": (UNDER_WAY, "completed"),
    "RunFailed": (UNDER_WAY, "failed"),
    "RunCancelled": (UNDER_WAY, "cancelled"),
}
EVENTS = """\
SELECT stream, seq, type, schema_version, recorded_at, trace_id, span_id, digest, hash,
salt, payload FROM events LEFT JOIN payloads USING (position) ORDER BY stream, seq"""
JOBS = "SELECT queueing_lock FROM procrastinate_jobs WHERE status <> 'doing'"
Said: TypeAlias = dict[str, Any]


@dataclass
class Run:
    state: str = ""
    calls: dict[int, Said] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    hosts: list[str] = field(default_factory=list)


@dataclass
class History:
    faults: list[tuple[int, str, str]]
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    runs: dict[str, Run] = field(default_factory=lambda: defaultdict(Run))
    waits: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _last: tuple[str, int, bytes, int] = ("", 0, bytes(32), 0)
    _since = _then = 0

    def add(self, row: tuple[Any, ...]) -> None:
        """Verify the hash of the next event, and follow its run."""
        stream, seq, kind, version, at, trace, span, digest, hash_, salt, payload = row
        same = stream == self._last[0]
        before, previous, self._then = self._last[1:] if same else (0, bytes(32), 0)
        envelope = msgpack.packb([1, stream, seq, kind, version, at, trace, span])
        if seq != before + 1 or sha(previous, envelope, digest) != hash_:
            self.wrong.append(f"{stream} {seq}: the chain is broken")
        if at < self._then:
            self.wrong.append(f"{stream} {seq}: recorded before the event before it")
        self._last = stream, seq, hash_, at
        self.counts["events"] += 1
        if salt is None or sha(salt, payload) != digest:
            self.wrong.append(f"{stream} {seq}: its payload is not that of its digest")
        elif stream.startswith("run/"):
            said = msgpack.unpackb(payload)
            self._follow(stream[4:], self.runs[stream[4:]], kind, at, said)

    def _follow(self, name: str, run: Run, kind: str, at: int, said: Said) -> None:
        before, expected = run.state, run.state not in OVER
        if kind.startswith("Tool"):
            expected = before == "running" and _called(run, kind, said)
        elif kind in STATES:
            allowed, run.state = STATES[kind]
            expected = before in allowed
            self.counts[f"{kind} {said.get('reason', said.get('kind', ''))}"] += 1
            if kind in {"RunStarted", "RunResumed"}:
                self._driven(run, before, at, said)
            self._since = at
        if not expected:
            self.wrong.append(f"{name}: {kind} {said} of a run that is {before}")

    def _driven(self, run: Run, before: str, at: int, said: Said) -> None:
        """Note how long nobody drove a run; it was killed, stopped or cut off."""
        ours = [one for one in self.faults if one[2] in run.hosts[-1:] and one[0] < at]
        if before in {"queued", "suspended"}:
            self.waits[before].append((at - self._since) // 1000)
        elif before:
            self.waits["nothing recorded"].append((at - self._then) // 1000)
            if ours and ours[-1][1] in {"kill", "stop"}:
                what = f"takeover after {ours[-1][1]}"
                self.waits[what].append((at - ours[-1][0]) // 1000)
        run.hosts.append(said["host"])
        if said.get("epoch", 1) != len(run.hosts):
            self.wrong.append(f"{said['host']} drives it as {len(run.hosts)}. of {run}")

    def compare_effects(self, effects: Counter[tuple[str, str]]) -> None:
        """Compare the calls with what the tools did."""
        keys: dict[str, str] = {}
        for name, run in self.runs.items():
            for number, call in run.calls.items():
                key, tool = call["idempotency_key"], call["tool"]
                done, what = effects[tool, key], f"{name} call {number}, {tool}"
                if keys.setdefault(key, tool) != tool:
                    self.wrong.append(f"{what}: has the key of another call")
                if done > 1 and EFFECTS[tool] != "read":
                    self.counts["double effects"] += 1
                    self.wrong.append(f"{what}: happened {done} times")
                self.counts[outcome := call.get("outcome", "open")] += 1
                if outcome == "ToolCompleted" and not done:
                    self.wrong.append(f"{what}: succeeded, and did not happen")
                sent = outcome != "ToolDenied" and call.get("sent") != "no"
                if done and not sent and not call["retried"]:
                    self.wrong.append(f"{what}: was not sent, and happened")
        unknown = [key for tool, key in effects if keys.get(key) != tool]
        self.wrong += [f"an effect without a call: {key}" for key in unknown]
        self.counts["effects"] = effects.total()

    def compare_states(self, rows: dict[str, str]) -> None:
        """Compare the runs with the table of runs: all have ended, or wait."""
        for name in rows.keys() | self.runs.keys():
            run = self.runs[name]
            self.counts[f"run: {run.state}"] += 1
            waits = {EFFECTS[run.calls[call]["tool"]] for call in run.open}
            self.counts["open intents"] += len(run.open)
            expected = {"unsafe"} if run.state == "suspended" else set()
            if rows.get(name) != run.state or run.state in {"queued", "running"}:
                self.wrong.append(f"{name} is {run.state}, its row {rows.get(name)}")
            if waits != expected:
                self.wrong.append(f"{name} is {run.state}, with open calls: {waits}")

    def compare_keys(self, said: Said, known: dict[str, str]) -> None:
        """Compare the runs with what clients were told of each key."""
        for key, one in said.items():
            told = {*one["runs"], known.get(sha(key.encode()).hex())}
            if len(told) != 1 or not told <= self.runs.keys():
                self.wrong.append(f"the key {key} has the runs {told}")
                continue
            run = self.runs[one["runs"][0]]
            if not run.hosts and run.state not in OVER:
                self.wrong.append(f"the run of {key} was not started")
            if {*one["read"]} - {run.state}:
                self.wrong.append(f"{key} was {one['read']}, and is {run.state}")
        of_keys = {run for one in said.values() for run in one["runs"]}
        self.wrong += [f"{run} has no key" for run in self.runs.keys() - of_keys]
        self.counts |= {"keys": len(said), "runs": len(of_keys)}


def _called(run: Run, kind: str, said: Said) -> bool:
    """Follow a call, and return whether this event may come next."""
    call = said["call"]
    if kind == "ToolInvoked":
        run.calls[call] = said | {"retried": False}
        run.open.add(call)
        return bool(call == len(run.calls))
    expected = call in run.open
    run.calls[call]["retried"] |= kind == "ToolRetried"
    if kind in OUTCOMES:
        run.open.discard(call)
        run.calls[call] |= {"outcome": kind} | said
    return expected


def sha(*parts: bytes) -> bytes:
    """Return the SHA-256 of *parts*, one after the other."""
    return hashlib.sha256(b"".join(parts)).digest()


def main(url: str, ledger: str, said: str, faults: str) -> History:
    """Read everything, and compare it."""
    found = History([(at, kind, host) for at, kind, host in json.loads(faults)])
    lines = (line.split() for line in Path(ledger).read_text("ascii").splitlines())
    effects = Counter((tool, key) for tool, key, _ in lines)
    with psycopg.connect(url) as connection, connection.cursor("all") as cursor:
        for row in cursor.execute(EVENTS):
            found.add(row)
        states = connection.execute("SELECT run_id, state FROM runs").fetchall()
        keys = connection.execute("SELECT key, run_id FROM submissions").fetchall()
        left = connection.execute(JOBS).fetchall()
    found.compare_effects(effects)
    found.compare_states(dict(states))
    found.compare_keys(json.loads(said), dict(keys))
    found.wrong += [f"a job of {run} is left" for (run,) in left]
    return found


if __name__ == "__main__":
    history = main(*sys.argv[1:3], *(Path(one).read_text() for one in sys.argv[3:5]))
    report = {key: getattr(history, key) for key in ("counts", "wrong", "waits")}
    sys.stdout.write(json.dumps(report))
