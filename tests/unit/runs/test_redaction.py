"""What passes through a run holds no secret, whoever put it there: law 8."""

from __future__ import annotations

from dataclasses import replace

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.log.events import to_payload
from caxton_host.core.text.redact import MASK, Redactor
from caxton_host.errors import ToolError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.runs.run_request import queued_as
from caxton_host.testing import FakeTools
from tests.canaries import forms, found_in
from tests.scene import ANSWERS, Scene, Watched, ended, pack

SECRET = 'canary"/<&+~ü of a run!'  # noqa: S105 -- made up
SPELT = [*forms(SECRET).values()]
NESTED: JSON = {"keys": {form: [form] for form in SPELT}, "texts": [*SPELT]}


async def telling(door: Door, guest: Guest) -> Ending:
    """Tell the secret in every way that an agent has."""
    del guest
    for form in SPELT:
        door.log(1, form.encode())
    door.log(2, (" ".join(SPELT) * 20).encode())
    for name in (b"weather", b"mcp__demo__fail", b"rm"):
        await door.call(name, pack(said=NESTED), 1)
    return ended(NESTED)


async def test_nothing_that_an_agent_tells_is_recorded_as_it_is() -> None:  # law 8
    refused = ToolError("protocol", "yes", " ".join(SPELT))
    tools = FakeTools(
        {
            **ANSWERS,
            ("demo", "get_weather"): Completed(message=MASK, data={}),
            ("demo", "fail"): refused,
        }
    )
    watched = Watched(telling)
    scene = Scene(watched, tools=tools, redact=Redactor([SECRET]))
    scene.limit(log=2000)
    scene.request.context["who"] = NESTED
    object.__setattr__(scene.request, "input", NESTED)

    events = await scene.run()

    places = {
        f"{number} {type(event).__name__}": codec.encode(to_payload(event))
        for number, event in enumerate(events)
    }
    [guest] = watched.guests
    places |= {"input": guest.input, "context": guest.context["who"]}
    places |= {f"answer {n}": a.reply for n, a in enumerate(watched.answers)}
    assert found_in([SECRET], places) == []
    assert MASK.encode() in places["input"]
    # law 5: what was taken out is no difference.
    assert (await scene.replay()).verdict == "identical"


def test_a_run_is_queued_without_what_its_caller_hid_in_a_trace() -> None:  # law 8
    given = {"traceparent": "00-a-b-01", "tracestate": f"vendor={SECRET}"}
    request = replace(Scene(Watched(telling)).request, trace=given)
    queued, _ = queued_as(request, None, Redactor([SECRET]))
    assert queued.trace == {**given, "tracestate": f"vendor={MASK}"}
