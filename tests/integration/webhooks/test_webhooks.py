"""Webhooks as tools, against a real server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.config import load
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.call_terms import Terms
from caxton_host.core.text.jsonpath import JsonPath
from caxton_host.core.text.redact import MASK, Redactor
from caxton_host.core.tools.webhooks import SERVER, Webhook
from caxton_host.errors import LeaseLost, ToolError
from caxton_host.ports.tools import ToolRequest
from caxton_host.webhooks import WebhookTools

from .conftest import Server

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "webhooks.md"
FLAGS = re.MULTILINE | re.DOTALL

SKY = '{"sky": {"now": "clear"}}'
CANARY = "canary-4711-canary"
AS_JSON = "Content-Type: application/json; charset=utf-8"


def hook(server: Server, path: str = "/{city}", **options: object) -> Webhook:
    chosen: dict[str, object] = {"name": "weather", "allow_private": True, **options}
    return Webhook(url=server.url + path, **chosen)  # type: ignore[arg-type]  # a test's


async def call(
    webhook: Webhook, params: dict[str, JSON], pin: str | None = None
) -> Completed:
    async with WebhookTools(
        {webhook.name: webhook}, redact=Redactor([CANARY])
    ) as tools:
        return await tools.call_tool(request(params, pin=pin))


def request(
    params: dict[str, JSON], *, tool: str = "weather", pin: str | None = None
) -> ToolRequest:
    return ToolRequest(
        run_id="r",
        call=1,
        server=SERVER,
        tool=tool,
        params=params,
        definition_sha256=pin,
        idempotency_key="0123abcd",
    )


async def failure(webhook: Webhook, params: Mapping[str, JSON]) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await call(webhook, dict(params))
    return caught.value


@pytest.fixture
def weather(server: Server) -> Server:
    server.answers(SKY.encode(), AS_JSON)
    return server


def answer(*texts: str | JSON) -> JSON:
    """Return the data of an answer: its texts, and what is structured, if it is."""
    *said, last = texts
    data: dict[str, JSON] = {"structuredContent": last}
    if isinstance(last, str):
        said, data = [*texts], {}
    return {"content": [{"type": "text", "text": text} for text in said], **data}


async def test_parameters_fill_the_address_and_the_rest_is_the_body(
    weather: Server,
) -> None:
    done = await call(
        hook(weather, "/v1/{city}?unit={unit}"),
        {"city": "New York", "unit": "C", "days": 3, "detail": {"wind": True}},
    )
    head, body = weather.requests[0]
    assert head.startswith("POST /v1/New%20York?unit=C HTTP/1.1\r\n")
    assert json.loads(body) == {"days": 3, "detail": {"wind": True}}
    assert weather.sent_headers["content-type"] == "application/json"
    assert done.data == answer(SKY, json.loads(SKY))
    assert not done.is_error
    assert done.bytes == 25
    assert done.duration_us > 0


async def test_same_key_names_every_attempt_of_a_call(weather: Server) -> None:
    # law 7
    await call(hook(weather), {"city": "Seattle"})
    assert weather.sent_headers["idempotency-key"] == "0123abcd"


async def test_without_a_body_none_is_sent(weather: Server) -> None:
    await call(hook(weather, method="GET", body="none"), {"city": "Seattle"})
    head, body = weather.requests[0]
    assert head.startswith("GET /Seattle HTTP/1.1\r\n")
    assert body == b""
    assert "content-type" not in weather.sent_headers


async def test_header_of_the_operator_takes_the_place_of_ours(weather: Server) -> None:
    headers = {"CONTENT-TYPE": "application/vnd.x+json", "Authorization": "Bearer x"}
    await call(hook(weather, headers=headers), {"city": "Seattle"})
    assert weather.requests[0][0].lower().count("content-type") == 1
    assert weather.sent_headers["content-type"] == "application/vnd.x+json"
    assert weather.sent_headers["authorization"] == "Bearer x"


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("../../admin", "/v1/..%2F..%2Fadmin/now"),
        ("a?b=c#d", "/v1/a%3Fb%3Dc%23d/now"),
        ("%2e%2e%2f", "/v1/%252e%252e%252f/now"),
        ("x HTTP/1.1\r\nX: y", "/v1/x%20HTTP%2F1.1%0D%0AX%3A%20y/now"),
        ("@evil.example", "/v1/%40evil.example/now"),
        ("\\\\evil", "/v1/%5C%5Cevil/now"),
        ("Zürich", "/v1/Z%C3%BCrich/now"),
        ("{unit}", "/v1/%7Bunit%7D/now"),
        (-7, "/v1/-7/now"),
        (True, "/v1/true/now"),
        (0.5, "/v1/0.5/now"),
    ],
)
async def test_value_stays_within_its_segment(
    weather: Server, value: JSON, sent: str
) -> None:
    await call(hook(weather, "/v1/{city}/now"), {"city": value})
    assert weather.requests[0][0].startswith(f"POST {sent} HTTP/1.1\r\nHost: 127.0.0.1")


async def test_value_stays_within_its_query(weather: Server) -> None:
    await call(hook(weather, "/?q={q}&key=1"), {"q": "a&key=2#../x"})
    head = weather.requests[0][0]
    assert head.startswith("POST /?q=a%26key%3D2%23..%2Fx&key=1 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "parameter 'city' is missing"),
        ({"city": None}, "parameter 'city' is missing"),
        ({"city": ["a"]}, "parameter 'city' is not a text or a number"),
        ({"city": ""}, "parameter 'city' is empty"),
        ({"city": ".."}, "a parameter is a path of its own: '.' or '..'"),
        ({"city": "."}, "a parameter is a path of its own: '.' or '..'"),
        ({"city": "a", "b": 1, "a": 2}, "no such parameter: 'a', 'b'"),
    ],
)
async def test_parameters_that_do_not_fit_are_an_error_of_the_tool_unsent(
    weather: Server, params: dict[str, JSON], message: str
) -> None:
    done = await call(hook(weather, method="GET", body="none"), params)
    assert (done.is_error, done.message) == (True, message)
    assert weather.connections == 0


async def test_query_value_may_be_empty(weather: Server) -> None:
    await call(hook(weather, "/?q={q}"), {"q": ""})
    assert weather.requests[0][0].startswith("POST /?q= HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, SKY),
        ({"message_field": "sky.now"}, "clear"),
        ({"message_field": "sky.later"}, SKY),
        ({"message_template": "It is {sky.now}."}, "It is clear."),
    ],
)
async def test_message_is_picked_out_of_the_body(
    weather: Server, options: dict[str, str], message: str
) -> None:
    done = await call(hook(weather, **options), {"city": "Seattle"})
    assert done.message == message


async def test_page_shows_the_answer_and_a_table_that_can_be_read(
    server: Server, tmp_path: Path
) -> None:
    page = PAGE.read_text("utf-8")
    written, shown = re.findall(r"^```(?:toml|json)\n(.*?)^```$", page, FLAGS)
    file = tmp_path / "caxton.toml"
    file.write_text(written)
    found = load(file, environ={"FORECAST_TOKEN": CANARY}, cwd=tmp_path).webhooks
    assert found["forecast"].concurrency == 8

    data = json.loads(shown)
    server.answers(data["content"][0]["text"].encode(), AS_JSON)
    done = await call(hook(server, message_field="summary"), {"city": "Oslo"})
    assert (done.data, done.message) == (data, "dry")


async def test_text_is_its_own_message(server: Server) -> None:
    server.answers("grüezi".encode(), "Content-Type: text/plain")
    done = await call(hook(server), {"city": "Seattle"})
    assert done.message == "grüezi"
    assert done.data == answer("grüezi")


@pytest.mark.parametrize("body", ["[1, 2]", "7", "null"])
async def test_json_that_is_no_object_is_wrapped_as_mcp_has_it(
    server: Server, body: str
) -> None:
    server.answers(body.encode(), AS_JSON)
    done = await call(hook(server), {"city": "Seattle"})
    assert done.data == answer(body, {"result": json.loads(body)})


async def test_nothing_is_a_result_too(server: Server) -> None:
    server.says(b"HTTP/1.1 204 No Content\r\n\r\n")
    done = await call(hook(server), {"city": "Seattle"})
    assert (done.data, done.message) == (answer("HTTP 204"), "HTTP 204")


@pytest.mark.parametrize("status", ["404 Not Found", "503 Service Unavailable"])
async def test_status_of_an_error_is_an_error_of_the_tool(
    server: Server, status: str
) -> None:
    server.answers(b"no such city", status=status)
    done = await call(hook(server), {"city": "Nowhere"})
    assert done.is_error
    assert done.message == f"HTTP {status[:3]}\nno such city"
    assert done.data == answer(f"HTTP {status[:3]}", "no such city")


async def test_error_in_json_has_its_status_and_its_data(server: Server) -> None:
    server.answers(SKY.encode(), AS_JSON, status="404 Not Found")
    done = await call(hook(server, message_field="sky.now"), {"city": "Nowhere"})
    assert (done.is_error, done.message) == (True, "clear")
    assert done.data == answer("HTTP 404", SKY, json.loads(SKY))


async def test_secret_in_an_answer_is_masked(server: Server) -> None:
    # law 8
    said = json.dumps({"echo": f"Bearer {CANARY}", CANARY: [CANARY]}).encode()
    server.answers(said, AS_JSON)
    done = await call(hook(server, message_field="echo"), {"city": "Seattle"})
    assert CANARY not in repr(done)
    assert done.message == "Bearer [redacted]"


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (b"{", AS_JSON),
        (b"[" * 100 + b"]" * 100, AS_JSON),
        (b'{"a": 1, "a": 2}', AS_JSON),
        (b'{"a": NaN}', "Content-Type: application/problem+json"),
        (b"\xff\xfe\x00", "Content-Type: image/png"),
    ],
)
async def test_answer_that_no_log_could_hold_is_refused(
    server: Server, body: bytes, header: str
) -> None:
    # law 9
    server.answers(body, header)
    error = await failure(hook(server), {"city": "Seattle"})
    assert (error.kind, error.sent) == ("invalid_result", "yes")


EVENTS = "Content-Type: text/event-stream; charset=utf-8"


def streamed(*texts: str, end: str = "data: [DONE]") -> bytes:
    parts = [{"index": 0, "delta": {"content": text}} for text in texts]
    events = [f"data: {json.dumps({'choices': [part]})}\n\n" for part in parts]
    return "".join([*events, end, "\n\n"]).encode()


async def test_streamed_completion_is_one_answer(server: Server) -> None:
    server.answers(streamed("It is ", "noon."), EVENTS)
    field = "choices.0.message.content"
    done = await call(hook(server, message_field=field), {"city": "Seattle"})
    message: JSON = {"content": "It is noon."}
    choices: JSON = [{"index": 0, "message": message}]
    completion: JSON = {"choices": choices, "object": "chat.completion"}
    assert done.data == answer(json.dumps(completion), completion)
    assert done.message == "It is noon."


async def test_secret_that_is_streamed_in_pieces_is_masked(server: Server) -> None:
    # law 8
    server.answers(streamed(CANARY[:9], CANARY[9:]), EVENTS)
    done = await call(hook(server), {"city": "Seattle"})
    assert CANARY not in json.dumps(done.data) + done.message
    assert MASK in done.message


async def test_error_in_a_streamed_completion_is_an_error_of_the_tool(
    server: Server,
) -> None:
    server.answers(streamed("It is", end='data: {"error": {"code": 529}}'), EVENTS)
    done = await call(hook(server), {"city": "Seattle"})
    assert done.is_error
    assert done.data == answer('{"error": {"code": 529}}', {"error": {"code": 529}})


async def test_streamed_completion_that_breaks_off_is_refused(server: Server) -> None:
    server.answers(streamed("It is", end=""), EVENTS)
    error = await failure(hook(server), {"city": "Seattle"})
    assert (error.kind, error.sent) == ("invalid_result", "yes")


async def test_another_stream_of_events_is_its_text(server: Server) -> None:
    server.answers(b"event: tick\ndata: 1\n\n", EVENTS)
    done = await call(hook(server), {"city": "Seattle"})
    assert done.data == answer("event: tick\ndata: 1\n\n")


async def test_answer_over_its_size_is_refused(server: Server) -> None:
    server.answers(b"x" * 101)
    error = await failure(hook(server, max_result=100), {"city": "Seattle"})
    assert (error.kind, error.sent) == ("too_large", "yes")


async def test_answer_that_never_comes_is_a_timeout(server: Server) -> None:
    # Long enough to connect on a busy machine: what is not sent is another error.
    error = await failure(hook(server, timeout=1.0), {"city": "Seattle"})
    assert (error.kind, error.sent) == ("timeout", "unknown")


async def test_call_may_be_less_patient_than_its_webhook(server: Server) -> None:
    impatient = replace(request({"city": "Seattle"}), timeout=1.0)
    async with WebhookTools({"weather": hook(server, timeout=60.0)}) as tools:
        with pytest.raises(ToolError) as caught:
            await tools.call_tool(impatient)
    assert (caught.value.kind, caught.value.sent) == ("timeout", "unknown")


CLEAN = f'{{"user": {{"name": "Ada", "email": "{MASK}"}}}}'


@pytest.mark.parametrize(
    ("field", "message"), [("user.name", "Ada"), ("user.email", MASK), (None, CLEAN)]
)
async def test_message_is_made_of_what_a_rule_leaves(
    server: Server, field: str | None, message: str
) -> None:
    server.answers(b'{"user": {"name": "Ada", "email": "ada@example.org"}}', AS_JSON)
    done = await call(hook(server, message_field=field), {"city": "Seattle"})
    terms = Terms(redact=(JsonPath.parse("$.user.email"),))

    clean = terms.conceal(done)

    assert (clean.message, clean.data) == (message, answer(CLEAN, json.loads(CLEAN)))


async def test_why_nothing_was_sent_is_told_under_any_rule(server: Server) -> None:
    done = await call(hook(server), {})
    terms = Terms(redact=(JsonPath.parse("$..city"),))

    assert terms.conceal(done) == done


# -- calls at a time -------------------------------------------------------------


class Door:
    """Holds every answer of a server back until it is opened."""

    def __init__(self, server: Server) -> None:
        self._open = asyncio.Event()
        server.answers(b"{}", AS_JSON)
        answer = server.script
        assert answer is not None

        async def later(writer: asyncio.StreamWriter) -> None:
            await self._open.wait()
            await answer(writer)

        server.script = later

    def open(self) -> None:
        self._open.set()


async def until(server: Server, requests: int) -> None:
    async with asyncio.timeout(10):
        while len(server.requests) < requests:  # noqa: ASYNC110 -- of another task
            await asyncio.sleep(0.01)


async def test_call_that_waits_for_its_turn_is_not_late(server: Server) -> None:
    door = Door(server)
    one = hook(server, concurrency=1)
    second = replace(request({"city": "Oslo"}), timeout=0.2)
    async with WebhookTools({"weather": one}) as tools, asyncio.TaskGroup() as group:
        group.create_task(tools.call_tool(request({"city": "Seattle"})))
        await until(server, 1)
        waiting = group.create_task(tools.call_tool(second))
        await asyncio.sleep(0.4)
        sent, done = len(server.requests), waiting.done()
        door.open()
    assert (sent, done) == (1, False)
    assert not waiting.result().is_error


async def test_no_call_waits_for_a_connection_within_its_timeout(
    server: Server,
) -> None:
    door = Door(server)
    hooks = {
        name: hook(server, name=name, concurrency=number)
        for name, number in (("weather", 40), ("other", 3))
    }
    async with WebhookTools(hooks) as tools, asyncio.TaskGroup() as group:
        for name in (*["weather"] * 41, *["other"] * 4):
            asked = request({"city": "Seattle"}, tool=name)
            group.create_task(tools.call_tool(asked))
        await until(server, 43)
        door.open()
    assert len(server.requests) == 45


async def test_call_says_whether_it_waits_for_its_turn(server: Server) -> None:
    turns: list[str] = []

    @contextmanager
    def queued() -> Generator[None]:
        turns.append("waits")
        yield
        turns.append("goes")

    door = Door(server)
    asked = replace(request({"city": "Seattle"}), queued=queued)
    async with WebhookTools({"weather": hook(server, concurrency=1)}) as tools:
        first = asyncio.create_task(tools.call_tool(asked))
        await until(server, 1)
        second = asyncio.create_task(tools.call_tool(asked))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert turns == ["waits", "goes", "waits"]
        door.open()
        await first
        await tools.call_tool(asked)
    assert turns[3:] == ["waits", "goes"]


async def test_call_that_may_not_go_when_its_turn_comes_leaves_its_place(
    weather: Server,
) -> None:
    @contextmanager
    def queued() -> Generator[None]:
        yield
        raise LeaseLost("")

    asked = request({"city": "Seattle"})
    async with WebhookTools({"weather": hook(weather, concurrency=1)}) as tools:
        with pytest.raises(LeaseLost):
            await tools.call_tool(replace(asked, queued=queued))
        assert weather.requests == []
        await tools.call_tool(asked)


async def test_private_host_needs_the_word_of_the_operator(weather: Server) -> None:
    error = await failure(hook(weather, allow_private=False), {"city": "Seattle"})
    assert (error.kind, error.sent) == ("transport", "no")
    assert weather.connections == 0


async def test_error_shows_no_parameter(server: Server) -> None:
    server.answers(b"", "Location: /", status="301 Moved")
    error = await failure(hook(server, "/?token={t}"), {"t": CANARY})
    assert CANARY not in str(error)


async def test_unknown_webhook_was_never_sent() -> None:
    async with WebhookTools({}) as tools:
        with pytest.raises(ToolError) as caught:
            await tools.call_tool(request({}, tool="nothing"))
    assert (caught.value.kind, caught.value.sent) == ("transport", "no")


async def test_offer_is_made_without_sending_anything(server: Server) -> None:
    # law 6
    tools = WebhookTools(
        {"weather": hook(server, description="The sky", effect="read")}
    )
    offered = await tools.offered([SERVER, "other"])
    (offer,) = offered.offers
    assert (offer.server, offer.tool) == ("webhook", "weather")
    assert offer.exposed == "mcp__webhook__weather"
    assert (offer.description, offer.effect) == ("The sky", "read")
    assert offered.servers[SERVER]["address"] == server.url
    assert server.connections == 0
    assert await tools.offered(["other"]) == await WebhookTools({}).offered([SERVER])


async def test_definition_pins_what_is_called_but_no_secret(server: Server) -> None:
    async def pin(webhook: Webhook, secret: str = CANARY) -> str:
        tools = WebhookTools({"weather": webhook}, redact=Redactor([secret]))
        (offer,) = (await tools.offered([SERVER])).offers
        assert secret.encode() not in offer.definition
        return offer.definition_sha256

    pinned = await pin(hook(server, f"/?token={CANARY}", headers={"A": CANARY}))
    fresh = "other-secret-0815"
    rotated = hook(server, f"/?token={fresh}", headers={"A": fresh})
    assert await pin(rotated, fresh) == pinned
    assert await pin(hook(server, "/else", headers={"A": CANARY})) != pinned


async def test_changed_webhook_is_not_called(weather: Server) -> None:
    with pytest.raises(ToolError) as caught:
        await call(hook(weather), {"city": "Seattle"}, pin="0" * 64)
    assert (caught.value.kind, caught.value.sent) == ("changed", "no")
    assert weather.connections == 0
    tools = WebhookTools({"weather": hook(weather)})
    (offer,) = (await tools.offered([SERVER])).offers
    done = await call(hook(weather), {"city": "Seattle"}, pin=offer.definition_sha256)
    assert not done.is_error


async def test_webhook_may_give_agents_its_message_alone(weather: Server) -> None:
    one = hook(weather, reply="message", message_field="gone")
    tools = WebhookTools({"weather": one})
    (offer,) = (await tools.offered([SERVER])).offers
    assert offer.reply == "message"
    done = await call(one, {"city": "Seattle"})
    assert done.message == "weather returned 1 field"


async def test_own_name_of_a_webhook(server: Server) -> None:
    tools = WebhookTools({"weather": hook(server, expose_as="sky")})
    (offer,) = (await tools.offered([SERVER])).offers
    assert offer.exposed == "sky"


async def test_template_does_not_put_a_secret_together(server: Server) -> None:
    # law 8
    parts = {"first": CANARY[:6], "second": CANARY[6:]}
    server.answers(json.dumps(parts).encode(), "Content-Type: application/json")
    done = await call(
        hook(server, message_template="{first}{second}"), {"city": "Seattle"}
    )
    assert done.message == MASK
