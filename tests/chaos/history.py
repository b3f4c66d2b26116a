"""
Check the history of a fleet, by the documented format of the log alone.

    python -I tests/chaos/history.py URL LEDGER SAID FAULTS

It imports nothing of the host. LEDGER has a line for each effect, written by the tool
servers; SAID is what clients were told, FAULTS what was done to which host and when,
both in JSON. The hashes are those of docs/reference/bundle.md.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack  # noqa: TID251 -- nothing of the host may be imported here
import psycopg

EFFECTS = {"look": "read", "pay": "keyed", "send": "unsafe"}
ENDS = ("RunCompleted", "RunFailed", "RunCancelled")
OVER = ("completed", "failed", "cancelled")
OUTCOMES = ("ToolCompleted", "ToolFailed", "ToolDenied")
#: What a run is before each event, and after it.
STATES = {
    "RunQueued": ({""}, "queued"),
    "RunStarted": ({"", "queued"}, "running"),
    "RunResumed": ({"running", "suspended"}, "running"),
    "RunSuspended": ({"running"}, "suspended"),
    **{
        end: ({"queued", "running", "suspended"}, over)
        for end, over in zip(ENDS, OVER, strict=True)
    },
}
EVENTS = """\
SELECT stream, seq, type, schema_version, recorded_at, trace_id, span_id,
  digest, hash, salt, payload
FROM events LEFT JOIN payloads USING (position) ORDER BY stream, seq"""
JOBS = "SELECT queueing_lock, status::text FROM procrastinate_jobs"
LOST = {"host_lost", "host_started"}


@dataclass
class Run:
    """What the events of one run say."""

    state: str = ""
    starts: int = 0
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    hosts: list[str] = field(default_factory=list)


@dataclass
class History:
    """
    What was found.

    Attributes:
        wrong: Violations, a line each.

        waits: Milliseconds, by what was waited for.
    """

    faults: list[tuple[int, str, str]]
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    runs: dict[str, Run] = field(default_factory=lambda: defaultdict(Run))
    waits: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _last: tuple[str, int, bytes, int] = ("", 0, bytes(32), 0)
    _since: int = 0

    def add(self, row: tuple[Any, ...]) -> None:
        """Verify the hash of the next event, and follow its run."""
        stream, seq, kind, version, at, trace, span, digest, hash_, salt, payload = row
        if stream != self._last[0]:
            self._last = stream, 0, bytes(32), 0
        _, before, previous, then = self._last
        envelope = msgpack.packb([1, stream, seq, kind, version, at, trace, span])
        if salt is None or sha(salt, payload) != digest:
            self.wrong.append(f"{stream} {seq}: its payload is not that of its digest")
        if seq != before + 1 or sha(previous, envelope, digest) != hash_:
            self.wrong.append(f"{stream} {seq}: the chain is broken")
        if at < then:
            self.wrong.append(f"{stream} {seq}: recorded before the event before it")
        self._last = stream, seq, hash_, at
        self.counts["events"] += 1
        if stream.startswith("run/"):
            said = msgpack.unpackb(payload or b"\x80")
            self._follow(stream[4:], self.runs[stream[4:]], kind, at, said)

    def _follow(
        self, name: str, run: Run, kind: str, at: int, said: dict[str, Any]
    ) -> None:
        before, expected = run.state, True
        if kind.startswith("Tool"):
            expected = before == "running" and _called(run, kind, said)
        elif kind in STATES:
            allowed, run.state = STATES[kind]
            expected = before in allowed
            self._changed(run, kind, before, at, said)
        if not expected:
            self.wrong.append(f"{name}: {kind} {said} of a run that is {before}")

    def _changed(
        self, run: Run, kind: str, before: str, at: int, said: dict[str, Any]
    ) -> None:
        if kind == "RunStarted":
            run.starts += 1
            run.hosts.append(said["host"])
            if before:
                self._waited("queue", at - self._since)
        elif kind == "RunResumed":
            self._taken_over(run, before, at, said)
        elif kind == "RunSuspended":
            self.counts[f"suspended: {said['reason']}"] += 1
        elif kind in ENDS:
            self.counts[f"ended: {said.get('kind') or kind}"] += 1
        self._since = at

    def _taken_over(self, run: Run, before: str, at: int, said: dict[str, Any]) -> None:
        self.counts[f"resumed: {said['reason']}"] += 1
        hit = [one for one in self.faults if one[2] == run.hosts[-1] and one[0] < at]
        if before == "suspended":
            self._waited("hand-over", at - self._since)
        elif said["reason"] in LOST and hit:
            self._waited(f"takeover after {hit[-1][1]}", at - hit[-1][0])
            self._waited("takeover", at - hit[-1][0])
        run.hosts.append(said["host"])

    def _waited(self, what: str, microseconds: int) -> None:
        self.waits[what].append(microseconds // 1000)

    def compare_effects(self, effects: Counter[tuple[str, str]]) -> None:
        """Compare the calls with what the tools did."""
        keys: dict[str, str] = {}
        for name, run in self.runs.items():
            for number, call in run.calls.items():
                key, tool = call["idempotency_key"], call["tool"]
                done = effects[tool, key]
                what = f"{name} call {number}, {tool}"
                if key in keys:
                    self.wrong.append(f"{what}: has the key of another call")
                keys[key] = tool
                if call["effect"] != EFFECTS[tool]:
                    self.wrong.append(f"{what}: is recorded as {call['effect']}")
                if done > 1 and call["effect"] != "read":
                    self.counts["double effects"] += 1
                    self.wrong.append(f"{what}: happened {done} times")
                outcome = call.get("outcome", "open")
                self.counts[outcome] += 1
                if outcome == "ToolCompleted" and not done:
                    self.wrong.append(f"{what}: succeeded, and did not happen")
                unsent = outcome == "ToolDenied" or call.get("sent") == "no"
                if unsent and done and not call["retried"]:
                    self.wrong.append(f"{what}: was not sent, and happened")
        for tool, key in effects:
            if keys.get(key) != tool:
                self.wrong.append(f"{tool} happened without a call: {key}")
        self.counts["effects"] = effects.total()

    def compare_states(self, rows: dict[str, str]) -> None:
        """Compare the runs with the table of runs: all have ended, or wait."""
        for name in rows.keys() | self.runs.keys():
            run = self.runs[name]
            self.counts[f"run: {run.state}"] += 1
            if rows.get(name) != run.state:
                self.wrong.append(f"{name} is {run.state}, its row {rows.get(name)}")
            waits = {EFFECTS[run.calls[call]["tool"]] for call in run.open}
            self.counts["open intents"] += len(run.open)
            if run.state in {"queued", "running"}:
                self.wrong.append(f"{name} is {run.state}: nobody drives it")
            if run.state == "suspended" and waits != {"unsafe"}:
                self.wrong.append(f"{name} is suspended, and waits for {waits or '-'}")
            if run.state != "suspended" and waits:
                self.wrong.append(f"{name} is {run.state} with an open call")

    def compare_keys(
        self, said: dict[str, dict[str, Any]], known: dict[str, str]
    ) -> None:
        """Compare the runs with what clients were told of each key."""
        for key, one in said.items():
            told = {*one["runs"], known.get(hashlib.sha256(key.encode()).hexdigest())}
            if len(told) != 1 or not told <= self.runs.keys():
                self.wrong.append(f"the key {key} has the runs {told}")
                continue
            run = self.runs[one["runs"][0]]
            if run.starts != 1 and run.state not in OVER:
                self.wrong.append(f"the run of {key} has {run.starts} starts")
            if one["read"] and {*one["read"]} != {run.state}:
                self.wrong.append(f"{key} was {one['read']}, and is {run.state}")
        of_keys = {run for one in said.values() for run in one["runs"]}
        self.wrong += [f"{run} has no key" for run in self.runs.keys() - of_keys]
        self.counts |= {"keys": len(said), "runs": len(of_keys)}


def _called(run: Run, kind: str, said: dict[str, Any]) -> bool:
    """Follow a call, and return whether this event may come next."""
    call = said["call"]
    if kind == "ToolInvoked":
        run.calls[call] = said | {"retried": False}
        run.open.add(call)
        return bool(call == len(run.calls))
    expected = call in run.open
    if kind == "ToolRetried":
        run.calls[call]["retried"] = True
    elif kind in OUTCOMES:
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
        for run, status in connection.execute(JOBS):
            found.counts["jobs of dead hosts"] += status == "doing"
            if status != "doing":
                found.wrong.append(f"a job of {run} is left, {status}")
    found.compare_effects(effects)
    found.compare_states(dict(states))
    found.compare_keys(json.loads(said), dict(keys))
    return found


if __name__ == "__main__":
    texts = [Path(name).read_text("utf-8") for name in sys.argv[3:5]]
    history = main(*sys.argv[1:3], *texts)
    waits = {what: sorted(each) for what, each in sorted(history.waits.items())}
    report = {"counts": dict(history.counts), "wrong": history.wrong, "waits": waits}
    sys.stdout.write(json.dumps(report))
