"""The shipped agents in the sandbox that they are shipped for."""

from __future__ import annotations

from pathlib import Path

from caxton_host.building import find_shared
from caxton_host.core.calls import Completed, Denied, Outcome, reply
from caxton_host.core.limits import Limits
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Ending, Guest
from caxton_host.sandbox import WasmSandbox


class Tools:
    """A door with a few answers."""

    def __init__(self, answers: dict[str, Outcome]) -> None:
        self.answers = answers
        self.calls: list[str] = []

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        del params, fuel
        self.calls.append(name.decode())
        nothing = Denied(code="not_granted", rule=None, message="no grant")
        status, body = reply(self.answers.get(name.decode(), nothing))
        return Answer(status, codec.encode(body), 1_700_000_000_000_001)

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        raise AssertionError(f"{batch!r} at {fuel}")

    def log(self, level: int, text: bytes) -> None:
        self.calls.append(f"log {level}: {text.decode()}")


async def _run(name: str, value: object, tools: Tools, folder: Path) -> Ending:
    module = find_shared(f"agents/{name}/{name}.wasm").read_bytes()
    async with WasmSandbox(folder, bytes(32)) as sandbox:
        prepared = await sandbox.prepare(module, Limits(), "run")
        guest = Guest(
            domain=name,
            entry="run",
            limits=Limits(),
            input=codec.encode(value),
            seed=bytes(32),
            now=1_700_000_000_000_000,
        )
        return await sandbox.run(prepared, guest, tools)


async def test_weather_needs_nothing_but_its_door(tmp_path: Path) -> None:  # law 1
    tools = Tools({"weather": Completed(message="Lima: fog")})
    ending = await _run("weather", {"location": "Lima"}, tools, tmp_path)
    assert (ending.kind, ending.code, ending.message) == ("returned", 0, "")
    assert ending.output is not None
    result = codec.decode(ending.output, limit=1 << 20)
    assert isinstance(result, dict)
    assert result["summary"] == "Lima: fog"
    assert result["denied"] is True
    assert tools.calls == [
        "weather",
        "log 1: Lima: fog",
        "mcp__webhook__forecast",
        "mcp__demo__echo",
    ]


async def test_a_long_answer_crosses_the_border_once(tmp_path: Path) -> None:
    tools = Tools({"tell": Completed(message="x" * 300_000)})
    wanted = {"tool": "tell", "n": 2, "text": "again"}
    ending = await _run("echo", wanted, tools, tmp_path)
    assert (ending.kind, ending.code, ending.message) == ("returned", 0, "")
    assert ending.output == codec.encode(2)
    assert tools.calls == ["tell", "tell"]
