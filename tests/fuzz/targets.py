"""
What reads bytes from outside, and what it may do with them: read them, or refuse them.

A target takes bytes and raises what nobody may see. What a target accepts must also be
the same when it is read in another way.
"""

from __future__ import annotations

import io
import json
import random  # noqa: TID251 -- seeded: where frames are split
import runpy
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from caxton_host.config.load import load_bytes
from caxton_host.core.limits import Limits
from caxton_host.core.log.bundle import parse_bundle
from caxton_host.core.log.witnesses import parse_submission
from caxton_host.errors import BadBytes, ConfigError, ModuleRefused, UsageError
from caxton_host.lib import codec
from caxton_host.lib.signing import WitnessKey
from caxton_host.sandbox import wire
from caxton_host.sandbox.gate import check
from caxton_host.store.bundle_store import check_bundle
from tests.components import GOOD, component
from tests.others import NODE
from tests.unit.config.test_load import EXAMPLE
from tests.unit.core.log.test_witnesses import WHOLE, cosigned
from tests.unit.evidence.logs import OLD, public
from tests.unit.evidence.mutations import mutations
from tests.unit.evidence.test_page import SCRIPTS

ROOT = Path(__file__).parents[2]
LIMITS = Limits()
_VALUE: Any = {
    "a": [1, -1, 2**63, 1.5, None, True, "é", "x" * 300],
    "b": {"c": [[[[]]]], "d": "1" * 40},
}


_ODD_TOML = (
    *("-1", "0", "1e400", "nan", "true", "9223372036854775808", "1979-05-27", "[]"),
    *('""', "{}", '"*"', '["*/*"]', '"${env:CRM_TOKEN}"', '"${env:X:-y}"', '"1e9h"'),
    *('"\\u0000"', '["a", 1, [2]]', '{ a = { b = "c" } }', f'"{"x" * 999}"', '"-5s"'),
    *("[" * 99 + "]" * 99, '"99999999999999999999d"', '"(a+)+$"', '"../../x"'),
)


@dataclass(frozen=True, slots=True)
class Target:
    """
    One reader.

    Attributes:
        check: Reads bytes; whatever it raises is a finding.

        seeds: What it accepts, to be changed.

        cases: The cases themselves, if they are not changed *seeds*.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]] = list
    cases: Callable[[int], Iterator[bytes]] | None = None


def _codec(data: bytes) -> None:
    for read in (codec.decode, codec.load_json):
        try:
            value = read(data, limit=1 << 16)
        except BadBytes:
            continue
        encoded = codec.encode(value)
        again = codec.decode(encoded, limit=1 << 20, nodes=codec.RESULT_NODES)
        assert codec.encode(again) == encoded
    try:
        items = codec.split_batch(data)
    except BadBytes:
        return
    assert sum(len(name or b"") + len(params) for name, params in items) <= len(data)


def _configuration(data: bytes) -> None:
    secret = "canary-4711-canary"  # noqa: S105
    with tempfile.TemporaryDirectory() as name:
        environ = {"HOME": name, "CRM_TOKEN": secret}
        try:
            load_bytes(data, Path(name, "caxton.toml"), environ=environ, cwd=Path(name))
        except ConfigError as exc:
            assert exc.fix  # noqa: PT017 -- what a user reads
            assert secret not in f"{exc} {exc.fix}"  # noqa: PT017


def _files(seed: int) -> Iterator[bytes]:
    """Yield configurations of which some values, keys or lines are others."""
    chance = random.Random(seed)  # noqa: S311
    texts = [EXAMPLE]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        blocks = page.read_text().split("```toml\n")[1:]
        texts += ["version = 1\n" + block.partition("```")[0] for block in blocks]
    every = [line for text in texts for line in text.splitlines()]
    while True:
        lines = chance.choice(texts).splitlines()
        for _ in range(chance.choice((1, 1, 2, 3))):
            at = chance.randrange(len(lines))
            key, _, value = lines[at].partition(" = ")
            match chance.randrange(5):
                case 0 | 1:
                    lines[at] = f"{key} = {chance.choice(_ODD_TOML)}"
                case 2:
                    lines.insert(at, chance.choice(every))
                case 3:
                    lines[at] = f"{chance.choice(every).partition(' = ')[0]} = {value}"
                case _:
                    lines.insert(chance.randrange(len(lines)), lines.pop(at))
        yield "\n".join(lines).encode()


def _frames(data: bytes) -> None:
    whole, parts = ([*_split(data, sizes)] for sizes in (False, True))
    assert whole == parts
    readers: dict[int, Callable[[bytes, Limits], object]] = {
        wire.CALL: wire.read_call,
        wire.CALLS: wire.read_calls,
        wire.END: wire.read_end,
        wire.LOG: lambda body, _: wire.read_log(body),
    }
    for kind, _, body in whole:
        try:
            readers[kind](body, LIMITS)
        except wire.WireError:
            continue


def _split(data: bytes, apart: bool) -> Iterator[tuple[int, int, bytes]]:  # noqa: FBT001
    chance, caps = random.Random(len(data)), wire.to_host(LIMITS)  # noqa: S311
    inbox = wire.Inbox(lambda kind, _: caps.get(kind, -1))
    while data:
        room = inbox.room()
        size = min(chance.randrange(1, 9) if apart else len(data), len(room), len(data))
        room[:size] = data[:size]
        data = data[size:]
        try:
            yield from inbox.received(size)
        except wire.WireError:
            return


def _ends() -> list[bytes]:
    ends = [
        wire.End(kind="returned", fuel=7, output=codec.encode(_VALUE)),
        wire.End(kind="trap", message="unreachable"),
        wire.End(kind="limit", limit="fuel"),
    ]
    calls = [
        wire.call(1, b"echo", codec.encode(_VALUE), 9),
        wire.calls(1, codec.encode([["echo", {}]]), 9),
        wire.log(1, 2, b"hello"),
    ]
    return [b"".join([*calls, wire.end(1, end)]) for end in ends]


def _gate(data: bytes) -> None:
    try:
        check(data, LIMITS, "run")
    except ModuleRefused as exc:
        assert exc.fix  # noqa: PT017 -- what a user reads


def _modules() -> list[bytes]:
    paths = [ROOT / "agents" / name / f"{name}.wasm" for name in ("echo", "weather")]
    return [*(path.read_bytes() for path in paths), component(GOOD)]


def _submission(data: bytes) -> None:
    try:
        asked = parse_submission(data)
    except BadBytes:
        return
    assert parse_submission(asked.to_bytes()) == asked


def _submissions() -> list[bytes]:
    other = WitnessKey(name="w2", seed=b"x" * 32)
    note = cosigned(5, other).text().encode()
    return [WHOLE, b"old 0\n\n" + note]


def _bundle(data: bytes) -> None:
    for trusted in ([public(OLD)], []):
        verdict, _ = _second()(io.BytesIO(data), trusted)
        try:
            bundle = parse_bundle(iter(io.BytesIO(data).readlines()))
            ours: str = check_bundle(bundle, trusted).verdict
        except BadBytes:
            ours = "broken"
        except UsageError:
            ours = "of a later version"
        assert ours == verdict, f"{ours} and {verdict}"
        page = _of_page(data, trusted)
        assert page == ours.replace("of a later version", "broken"), (ours, page)


def _of_page(data: bytes, trusted: list[bytes]) -> str:
    """Return what the verifier of the page says, which is asked line by line."""
    asked = {"data": b64encode(data).decode(), "keys": [key.hex() for key in trusted]}
    node = _node()
    assert node.stdin
    assert node.stdout
    node.stdin.write(f"{json.dumps(asked)}\n")
    node.stdin.flush()
    found: str = json.loads(node.stdout.readline())["verdict"]
    return found


@cache
def _node() -> subprocess.Popen[str]:
    script = ROOT / "tests" / "unit" / "evidence" / "page_verdicts.mjs"
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [NODE, script, *SCRIPTS], stdin=pipe, stdout=pipe, text=True
    )


@cache
def _second() -> Callable[..., tuple[str, int]]:
    script = ROOT / "docs" / "reference" / "verify_bundle.py"
    found: Callable[..., tuple[str, int]] = runpy.run_path(str(script))["judge"]
    return found


TARGETS = {
    "bundle": Target(_bundle, cases=mutations),
    "codec": Target(_codec, lambda: [codec.encode(_VALUE), codec.encode([_VALUE] * 3)]),
    "configuration": Target(_configuration, cases=_files),
    "toml": Target(_configuration, lambda: [EXAMPLE.encode()]),
    "frames": Target(_frames, _ends),
    "gate": Target(_gate, _modules),
    "submission": Target(_submission, _submissions),
}
