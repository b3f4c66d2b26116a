"""A log in lists, as a host would write it, and bundles of its runs."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from caxton_host.core.calls import JSON
from caxton_host.core.log.bundle import (
    Earlier,
    Erasure,
    Header,
    Part,
    Sealed,
    write_bundle,
)
from caxton_host.core.log.chain import GENESIS, envelope, event_hash, payload_digest
from caxton_host.core.log.checkpoint import (
    Checkpoint,
    Note,
    Signature,
    key_id,
    origin_of,
)
from caxton_host.core.log.events import (
    Event,
    LogWritten,
    RunCompleted,
    RunErased,
    from_payload,
    to_payload,
)
from caxton_host.core.log.tree import PART, Frontier, part_root, prove, prove_growth
from caxton_host.lib import codec
from caxton_host.lib.signing import Rotation

from ..store.fakes import run_started

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
OLD, NEW, FORGER = (bytes([number]) * 32 for number in (1, 2, 3))


def public(seed: bytes) -> bytes:
    return Rotation(old=seed, new=seed).public_key()


def signed(checkpoint: Checkpoint, *seeds: bytes) -> Note:
    notes = [Rotation(old=seed, new=seed).sign(checkpoint) for seed in seeds]
    return Note.of(checkpoint, [note.signatures[0] for note in notes])


@dataclass(slots=True)
class Log:
    """All events in order, with their streams."""

    events: list[tuple[str, Sealed]] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    erasures: dict[str, Sealed] = field(default_factory=dict)

    def of(self, stream: str) -> list[Sealed]:
        return [event for name, event in self.events if name == stream]

    def append(self, stream: str, event: Event) -> Sealed:
        return self.put(stream, type(event).__name__, to_payload(event))

    def put(
        self, stream: str, type_: str, said: Mapping[str, JSON], trace: str = "ab" * 16
    ) -> Sealed:
        """Append an event of any type, whatever it says."""
        before = self.of(stream)
        seq = len(before) + 1
        number = len(self.events)
        payload = codec.encode(said)
        salt = sha256(b"salt %d" % number).digest()[:16]
        digest = payload_digest(salt, payload)
        ids = (trace, "cd" * 8) if number % 2 else (None, None)
        at = 1_700_000_000_000_000 + number
        head = envelope(stream, seq, type_, 1, at, *ids)
        hash_ = event_hash(before[-1].hash if before else GENESIS, head, digest)
        sealed = Sealed(
            seq=seq,
            type=type_,
            schema_version=1,
            recorded_at=at,
            trace_id=ids[0],
            span_id=ids[1],
            hash=hash_,
            salt=salt,
            payload=payload,
            digest=digest,
        )
        self.events.append((stream, sealed))
        return sealed

    def run(
        self, name: str, lines: int = 2, forked_from: dict[str, JSON] | None = None
    ) -> str:
        stream = f"run/{name}"
        self.append(stream, replace(run_started(), forked_from=forked_from))
        for n in range(1, lines + 1):
            self.append(stream, LogWritten(n=n, level="info", text=f"line {n}"))
        done = RunCompleted(output=None, output_sha256="00" * 32, fuel=lines)
        self.append(stream, done)
        return stream

    def erase(self, stream: str, said: RunErased | None = None) -> None:
        """Remove the payloads of a stream; *said* is what its erasure says."""
        name, count = stream.removeprefix("run/"), len(self.of(stream))
        event = RunErased(run=name, actor=ANN, reason="asked", events=count)
        self.erasures[stream] = self.append("host/1", said or event)
        self.remove(stream, range(1, count + 1))

    def remove(self, stream: str, numbers: Container[int]) -> None:
        """Remove payloads, as somebody could who writes the database."""
        self.events = [
            (
                name,
                replace(event, salt=None, payload=None)
                if name == stream and event.seq in numbers
                else event,
            )
            for name, event in self.events
        ]

    def _place(self, stream: str, event: Sealed) -> tuple[int, tuple[bytes, ...]]:
        index = self.events.index((stream, event))
        (proof,) = prove(self.hashes, [index])
        return index, tuple(proof)

    def _erasure(self, event: Sealed) -> Erasure:
        index = self.hashes.index(event.hash)
        (proof,), stream = prove(self.hashes, [index]), self.events[index][0]
        previous = self.of(stream)[event.seq - 2].hash
        return Erasure(
            stream=stream, previous=previous, index=index, proof=tuple(proof)
        )

    @property
    def hashes(self) -> list[bytes]:
        return [event.hash for _, event in self.events]

    def checkpoint(self, size: int | None = None) -> Checkpoint:
        tree = Frontier()
        tree.extend(self.hashes[:size])
        origin = origin_of(self.hashes[0])
        return Checkpoint(origin=origin, size=tree.size, root=tree.root())

    def bundle(
        self,
        *streams: str | tuple[str, int],
        by: Sequence[bytes] = (OLD,),
        earlier: Sequence[int] = (),
        key: bytes | None = None,
    ) -> bytes:
        parts: list[Part] = []
        events: list[Sealed] = []
        for entry in streams:
            stream, count = entry if isinstance(entry, tuple) else (entry, None)
            own = self.of(stream)[:count]
            index, proof = self._place(stream, own[-1])
            erased = None
            if recorded := self.erasures.get(stream):
                erased = self._erasure(recorded)
            parts.append(
                Part(
                    stream=stream,
                    events=len(own),
                    index=index,
                    proof=proof,
                    erased=erased,
                )
            )
            events += [*own, *([recorded] if recorded else [])]
        header = Header(
            run=parts[-1].stream.removeprefix("run/"),
            checkpoint=signed(self.checkpoint(), *by).text().encode(),
            key=key or public(by[0]),
            parts=tuple(parts),
            earlier=tuple(
                Earlier(
                    checkpoint=signed(self.checkpoint(size), by[0]).text().encode(),
                    proof=tuple(consistency(self.hashes, size)),
                )
                for size in earlier
            ),
            blobs=len(self.blobs),
        )
        blobs = [self.blobs[digest] for digest in sorted(self.blobs)]
        return b"".join(write_bundle(header, events, blobs))


def consistency(hashes: Sequence[bytes], old: int) -> list[bytes]:
    """Return the proof that a log begins with its first *old* events."""
    starts = range(0, len(hashes), PART)
    roots = [part_root(hashes[at : at + PART]) for at in starts]

    def part(number: int) -> Sequence[bytes]:
        return hashes[PART * number : PART * (number + 1)]

    return prove_growth(roots, part, old, len(hashes))


def small() -> Log:
    """Return a log of three runs, one of them a fork of another, and a host."""
    log = Log()
    log.append("host/1", LogWritten(n=1, level="info", text="begin"))
    log.run("a")
    forked = log.of("run/a")[1]
    log.run("b", forked_from={"run": "a", "seq": forked.seq, "hash": forked.hash.hex()})
    again = log.of("run/b")[2]
    log.run("c", forked_from={"run": "b", "seq": 3, "hash": again.hash.hex()})
    log.append("host/1", LogWritten(n=2, level="info", text="end"))
    data = b"\0asm of no use"
    log.blobs[sha256(data).hexdigest()] = data
    return log


def unknown(note: Note) -> Note:
    """Return *note* with one more signature, of a key that nobody knows."""
    name = note.checkpoint.origin
    other = Signature(name=name, key_id=key_id(name, bytes(32)), raw=bytes(64))
    return Note.of(note.checkpoint, [*note.signatures, other])


def vectors() -> Mapping[str, tuple[bytes, str]]:
    """Return bundles by name, and what a verifier that trusts `OLD` says of each."""
    log = small()
    run, fork = log.bundle("run/a"), log.bundle(("run/a", 2), ("run/b", 3), "run/c")
    again = small()
    again.events = [(n, e) for n, e in again.events if n != "run/b"]
    edited = _edited(small())
    return {
        "run": (run, "intact"),
        "run-of-two-keys": (log.bundle("run/a", by=(OLD, NEW)), "intact"),
        "run-since": (log.bundle("run/a", earlier=(1, 7, 8, 13, 14)), "intact"),
        "run-not-ended": (log.bundle(("run/a", 3)), "intact"),
        **_queued(),
        "fork": (fork, "intact"),
        **_erased(),
        **_odd(run),
        "other-key": (log.bundle("run/a", by=(FORGER,)), "signer_unknown"),
        "rebuilt-by-other-key": (
            edited.bundle("run/a", by=(FORGER,)),
            "signer_unknown",
        ),
        "key-of-another": (
            log.bundle("run/a", by=(FORGER,), key=public(OLD)),
            "broken",
        ),
        "key-not-the-signers": (log.bundle("run/a", key=public(NEW)), "broken"),
        "fork-without-parent": (log.bundle("run/c"), "broken"),
        "fork-of-less": (log.bundle(("run/a", 1), ("run/b", 3), "run/c"), "broken"),
        "run-called-a-fork": (log.bundle("run/a", "run/b"), "broken"),
        "payload": (_swap(run, b'"payload":"', b'"payload":"AAAA'), "broken"),
        "salt": (_swap(run, b'"salt":"', b'"salt":"00', drop=2), "broken"),
        "time": (_swap(run, b'"at":1', b'"at":2', drop=0), "broken"),
        "type": (_swap(run, b"LogWritten", b"LogWrittes"), "broken"),
        "trace": (_swap(run, b'"trace":"ab', b'"trace":"aa'), "broken"),
        "event-removed": (_without(run, 2), "broken"),
        "events-swapped": (_lines(run, 0, 2, 1, 3, 4, 5), "broken"),
        "blob": (_swap(run, b'"bytes":"AGF', b'"bytes":"AGE'), "broken"),
        "cut": (run[:-40], "broken"),
        "more": (run + b"{}\n", "broken"),
        "spaces": (run.replace(b'"blobs":1', b'"blobs": 1'), "broken"),
        "a-key-twice": (run.replace(b'"blobs":1', b'"blobs":1,"blobs":1'), "broken"),
        "root": (_root(run), "broken"),
        "index": (_swap(run, b'"index":4', b'"index":3', drop=0), "broken"),
        "earlier-of-another-log": (_grafted(log, again), "broken"),
        "empty": (b"", "broken"),
        "no-checkpoint": (_swap(run, b"caxton-host/log", b"\\ncaxton-host"), "broken"),
    }


def _queued() -> Mapping[str, tuple[bytes, str]]:
    """Return bundles of runs that waited for a place: such a run is no fork."""
    log = Log()
    queued: dict[str, JSON] = {"agent": "weather", "forked_from": None}
    for run in ("run/a", "run/b"):
        log.put(run, "RunQueued", queued)
        log.append(run, run_started())
    other = Log()
    other.append("run/x", LogWritten(n=1, level="info", text="no start"))
    return {
        "begins-without-a-start": (other.bundle("run/x"), "broken"),
        "queued": (log.bundle("run/a"), "intact"),
        "queued-fork": (log.bundle("run/a", "run/b"), "broken"),
    }


def _erased() -> Mapping[str, tuple[bytes, str]]:
    """Return bundles that lack payloads: only an erasure that is in the log may."""
    whole, part, other, less, late = (small() for _ in range(5))
    whole.erase("run/a")
    part.erase("run/a")
    other.erase("run/a", RunErased(run="c", actor=ANN, reason="asked", events=4))
    less.erase("run/a", RunErased(run="a", actor=ANN, reason="asked", events=3))
    late.append("run/a", LogWritten(n=3, level="info", text="after its end"))
    late.erase("run/a", RunErased(run="a", actor=ANN, reason="asked", events=4))
    erased = whole.bundle("run/a")
    restored = small()
    restored.erase("run/a")
    restored.events[1:3] = small().events[1:3]
    whole_again = small()
    whole_again.erase("run/a")
    whole_again.events[1:5] = small().events[1:5]
    dropped = small()
    dropped.remove("run/a", [3])
    unsaid = small()
    unsaid.remove("run/a", [1, 2, 3, 4])
    own = small()
    of_own = RunErased(run="a", actor=ANN, reason="asked", events=5)
    own.erasures["run/a"] = own.append("run/a", of_own)
    own.remove("run/a", range(1, 6))
    fork, named = (("run/a", 2), ("run/b", 3), "run/c"), b'"stream":"host/1'
    return {
        "erased": (erased, "intact"),
        "erased-parent": (whole.bundle(*fork), "intact"),
        "erased-unknown-key": (whole.bundle("run/a", by=(FORGER,)), "signer_unknown"),
        "erased-of-another": (other.bundle("run/a"), "broken"),
        "erased-fewer": (less.bundle("run/a"), "broken"),
        "erased-more": (late.bundle("run/a"), "broken"),
        "erased-by-its-own-end": (own.bundle("run/a"), "broken"),
        "erased-in-a-long-name": (_swap(erased, named, named + b"h" * 300), "broken"),
        "erased-restored": (restored.bundle("run/a"), "broken"),
        "erased-and-all-restored": (whole_again.bundle("run/a"), "broken"),
        "erased-moved": (
            erased.replace(b'"erased":{"index":14', b'"erased":{"index":13'),
            "broken",
        ),
        "payload-dropped": (dropped.bundle("run/a"), "broken"),
        "payloads-dropped": (unsaid.bundle("run/a"), "broken"),
    }


def _odd(run: bytes) -> Mapping[str, tuple[bytes, str]]:
    """Return bundles whose values are of a type that only looks right."""
    header, _, rest = run.partition(b"\n")
    streams = json.loads(header)["streams"]

    def with_(**changes: object) -> bytes:
        value = {**json.loads(header), **changes}
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        return text.encode() + b"\n" + rest

    proof = streams[0]["proof"]
    return {
        "seq-true": (_swap(run, b'"seq":1', b'"seq":true'), "broken"),
        "seq-float": (_swap(run, b'"seq":1', b'"seq":1.0'), "broken"),
        "blobs-true": (with_(blobs=True), "broken"),
        "no-streams": (with_(streams=[]), "broken"),
        "streams-map": (with_(streams={}), "broken"),
        "earlier-map": (with_(earlier={}), "broken"),
        "proof-map": (
            with_(streams=[{**streams[0], "proof": dict.fromkeys(sorted(proof))}]),
            "broken",
        ),
        "stream-twice": (with_(streams=streams * 2) + rest, "broken"),
    }


def _edited(log: Log) -> Log:
    """Change an event and compute all that follows again, as an operator could."""
    again = Log(blobs=log.blobs)
    for stream, event in log.events:
        changed: dict[str, JSON] = {"n": 1, "level": "info", "text": "something else"}
        known = event.type == "LogWritten" and stream == "run/a"
        payload = changed if known else codec.decode_trusted(event.payload or b"")
        again.append(stream, _event(event.type, payload))
    return again


def _event(type_: str, payload: dict[str, JSON]) -> Event:
    return from_payload(type_, 1, payload)


def _grafted(log: Log, other: Log) -> bytes:
    """Return a bundle whose earlier checkpoint is of a log with other events."""
    sound = log.bundle("run/a", earlier=(7,))
    theirs = other.bundle("run/c", earlier=(7,))
    cut = b'"earlier":['
    mine, rest = sound.split(cut, 1)
    return (
        mine
        + cut
        + theirs.split(cut, 1)[1].split(b'],"key"', 1)[0]
        + rest[rest.index(b'],"key"') :]
    )


def _swap(data: bytes, old: bytes, new: bytes, *, drop: int = 0) -> bytes:
    at = data.index(old) + len(old)
    assert old in data
    return data[: at - len(old)] + new + data[at + drop :]


def _lines(data: bytes, *order: int) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[number] for number in order)


def _without(data: bytes, number: int) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[number]
    return b"".join(lines).replace(b'"events":4', b'"events":3')


def _root(data: bytes) -> bytes:
    """Return *data* with a root that nobody signed."""
    at = data.index(b"\\n14\\n") + 6
    return data[:at] + (b"B" if data[at : at + 1] == b"A" else b"A") + data[at + 1 :]
