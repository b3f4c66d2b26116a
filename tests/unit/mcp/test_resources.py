"""What a server has to read: bounded, chosen, filled in, and never believed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.content import PROMPTS
from caxton_host.core.names import PROMPT, READ
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.contexts import ServerResource
from caxton_host.core.tools.servers import Resources, ServerConfig
from caxton_host.errors import ToolError
from caxton_host.lib.codec import sha256
from caxton_host.mcp.resources import (
    Kept,
    good_for,
    list_entries,
    of_tool,
    read_resources,
    set_apart,
)
from caxton_host.mcp.transport.messages import Answer
from caxton_host.ports.tools import RunScope

SCOPE = RunScope(
    run_id="0198",
    agent="support",
    context={"customer_id": "8675309", "pin": "1234"},
    private=frozenset({"pin"}),
)


def listed(uri: str, name: str | None = None) -> JSON:
    return {"uri": uri} if name is None else {"uri": uri, "name": name}


def template(uri: str, name: str) -> JSON:
    return {"uriTemplate": uri, "name": name}


@dataclass
class Server:
    """A server with these lists and these contents."""

    resources: JSON = field(default_factory=list[JSON])
    templates: JSON = field(default_factory=list[JSON])
    contents: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    asked: list[str] = field(default_factory=list[str])

    async def __call__(self, method: str, params: dict[str, JSON]) -> Answer:
        if method == "resources/read":
            uri = str(params["uri"])
            self.asked.append(uri)
            if uri not in self.contents:
                raise ToolError("protocol", "yes", "the server refused resources/read")
            return Answer({"contents": self.contents[uri]}, 1000)
        key, found = {
            "resources/list": ("resources", self.resources),
            "resources/templates/list": ("resourceTemplates", self.templates),
        }[method]
        if isinstance(found, ToolError):
            raise found
        at = int(str(params.get("cursor", "0")))
        if not isinstance(found, list):
            return Answer({key: found}, 100)
        more: dict[str, JSON] = {}
        if at + 1 < len(found):
            more = {"nextCursor": str(at + 1)}
        return Answer({key: found[at : at + 1], **more}, 100)


async def read(
    server: Server,
    wanted: Resources | None = None,
    redact: Redactor | None = None,
    **variables: str,
) -> list[ServerResource]:
    config = ServerConfig(name="crm", resource_vars=variables)
    return await read_resources(
        server, config, wanted or Resources(), SCOPE, redact or Redactor()
    )


def texts(**said: str) -> Server:
    return Server(
        resources=[listed(f"crm://{key}", key) for key in said],
        contents={f"crm://{key}": [{"text": text}] for key, text in said.items()},
    )


async def test_every_page_is_read_and_json_becomes_values() -> None:
    found = await read(texts(a='{"n": 1}', b="plain", c="[1", d=" [2]", e="42"))
    assert {one.key: one.value for one in found} == {
        "a": {"n": 1},
        "b": "plain",
        "c": "[1",
        "d": [2],
        "e": "42",
    }
    assert (found[1].sha256, found[1].size) == (sha256(b"plain"), 5)


async def test_the_key_is_the_name_or_the_end_of_the_address() -> None:
    server = Server(
        resources=[
            listed("crm://x/customer", "who"),
            listed("crm://x/orders?year=1"),
            listed("file:///a/b/"),
        ],
    )
    assert [one.key for one in await read(server)] == ["who", "orders", "b"]


async def test_templates_are_filled_in_from_the_variables_of_the_run() -> None:
    uri = "crm://customers/8675309"
    server = Server(
        templates=[template("crm://customers/{customer_id}", "customer")],
        contents={uri: [{"text": '{"name": "Ada"}'}]},
    )
    [one] = await read(server, customer_id="${context.customer_id}")
    assert (one.key, one.uri, one.value) == ("customer", uri, {"name": "Ada"})


async def test_the_log_does_not_learn_a_private_value_from_an_address() -> None:
    server = Server(
        templates=[template("crm://{pin}/{who}", "x")],
        contents={"crm://1234/support": [{"text": "ok"}]},
    )
    [one] = await read(server, pin="${context.pin}", who="{agent}")
    assert (one.uri, one.value) == ("crm://redacted/support", "ok")  # law 8


async def test_a_placeholder_without_a_value_is_not_asked_for() -> None:
    server = Server(templates=[template("crm://{a}/{b}", "x")])
    [one] = await read(server, a="1", b="${context.nothing}")
    assert one.error == "resource_vars has no value for b"
    assert server.asked == []


async def test_a_placeholder_without_a_value_stays_if_that_is_wanted() -> None:
    server = Server(
        templates=[template("crm://{a}/{b}", "x")],
        contents={"crm://1/{b}": [{"text": "found"}]},
    )
    [one] = await read(server, Resources(lenient=True), a="1")
    assert one.value == "found"


async def test_bytes_are_told_by_their_digest_and_kept() -> None:
    data = b"\x89PNG\r\n"
    blob = base64.b64encode(data).decode()
    server = Server(
        resources=[listed("crm://logo.png")],
        contents={"crm://logo.png": [{"blob": blob, "mimeType": "image/png"}]},
    )
    [one] = await read(server)
    digest = sha256(data)
    assert one.value == {"media_type": "image/png", "sha256": digest, "bytes": 6}
    assert one.blobs == {digest: data}


async def test_several_contents_are_a_list() -> None:
    server = Server(
        resources=[listed("crm://dir", "dir")],
        contents={"crm://dir": [{"text": "a"}, {"text": "{}"}]},
    )
    [one] = await read(server)
    assert one.value == ["a", {}]


async def test_only_what_is_wanted_is_read() -> None:
    server = texts(a="1", b="2", ab="3")
    wanted = Resources(include=("crm://a*",), exclude=("*b",), merge="flat")
    [one] = await read(server, wanted)
    assert (one.key, one.flat, server.asked) == ("a", True, ["crm://a"])


async def test_there_is_an_end_to_how_much_is_read() -> None:
    found = await read(texts(a="1234", b="123456", c="12"), Resources(max_bytes=6))
    assert [one.error is None for one in found] == [True, False, True]
    server = texts(a="1", b="2", c="3")
    found = await read(server, Resources(max_count=1))
    assert found[-1].error == "2 more than max_count allows were not read"
    assert server.asked == ["crm://a"]


async def test_secrets_are_taken_out_of_what_is_read() -> None:
    redact = Redactor(["hunter2hunter2"])
    found = await read(texts(a="it is hunter2hunter2"), redact=redact)
    assert found[0].value == "it is [redacted]"  # law 8
    blob = base64.b64encode(b"..hunter2hunter2").decode()
    server = Server(resources=[listed("x:a")], contents={"x:a": [{"blob": blob}]})
    [one] = await read(server, redact=redact)
    assert one.error == "its bytes hold a secret"
    [one] = await read(Server(resources=[listed("x:hunter2hunter2")]), redact=redact)
    assert (one.uri, one.error) == (
        "x:[redacted]",
        "its address has characters that are not valid",
    )


@pytest.mark.parametrize(
    ("contents", "error"),
    [
        (None, "the answer has no contents"),
        ([], "the answer has no contents"),
        ([{"text": 3}], "its contents are neither text nor bytes"),
        (["text"], "its contents are neither text nor bytes"),
        ([{"blob": "%%%"}], "its bytes are not base64"),
    ],
)
async def test_contents_that_are_none_are_told(contents: JSON, error: str) -> None:
    server = Server(resources=[listed("x:a")], contents={"x:a": contents})
    assert [one.error for one in await read(server)] == [error]


async def test_one_resource_that_fails_takes_nothing_from_the_others() -> None:
    server = texts(a="1")
    server.resources = [
        "nonsense",
        {"uri": 3},
        listed("crm://gone"),
        listed("/"),
        listed("crm://a"),
    ]
    server.templates = [template("x:{", "t"), template("crm://a", "plain")]
    found = await read(server)
    assert [one.error for one in found] == [
        "it has no uri that can be used",
        "it has no uri that can be used",
        "protocol: the server refused resources/read",
        "it has no name",
        None,
        "it is not a valid template: a brace in it has no partner",
        None,
    ]


async def test_a_list_that_is_none_or_does_not_end_is_refused() -> None:
    for resources in ("nonsense", [listed("x:a")] * 200):
        with pytest.raises(ToolError):
            await read(Server(resources=resources))


async def test_a_server_need_not_know_templates() -> None:
    refusal = ToolError("protocol", "yes", "method not found")
    server = texts(a="1")
    server.templates = refusal  # type: ignore[assignment]  # raised when asked
    assert [one.value for one in await read(server)] == ["1"]
    with pytest.raises(ToolError):
        await read(Server(templates=refusal))  # type: ignore[arg-type]  # as above


async def test_a_server_that_asks_back_is_told_of() -> None:
    class Asking(Server):
        async def __call__(self, method: str, params: dict[str, JSON]) -> Answer:
            if method == "resources/read":
                return Answer({"resultType": "input_required"}, 10)
            return await super().__call__(method, params)

    [one] = await read(Asking(resources=[listed("x:a")]))
    assert one.error == "the server asks instead of answering"


PICTURE = bytes(range(256))
TEXT = base64.b64encode(PICTURE).decode()
NAME: dict[str, JSON] = {
    "sha256": sha256(PICTURE),
    "bytes": 256,
    "media_type": "image/png",
}


def apart(*content: JSON, over: int | None = 100) -> Completed:
    return set_apart(Completed(data={"content": [*content]}), over, Redactor())


def test_a_part_is_named_where_it_stood_and_its_bytes_go_along() -> None:
    block: JSON = {"type": "image", "data": TEXT, "mimeType": "image/png", "x": 1}

    done = apart(block, {"type": "text", "text": "look"}, block)

    named: JSON = {"type": "image", "data": NAME, "mimeType": "image/png", "x": 1}
    assert done.data == {"content": [named, {"type": "text", "text": "look"}, named]}
    assert (done.blobs, done.contents) == ((NAME,), {sha256(PICTURE): PICTURE})


def test_a_part_is_as_large_as_its_bytes() -> None:
    block: JSON = {"type": "image", "data": TEXT, "mimeType": "image/png"}

    assert apart(block, over=258).blobs == ()
    assert apart(block, over=255).blobs == (NAME,)


@pytest.mark.parametrize(
    "data", [None, "text", {"structuredContent": {}}, {"content": "text"}]
)
def test_what_has_no_content_stays(data: JSON) -> None:
    done = Completed(data=data)
    assert set_apart(done, 0, Redactor()) is done


@pytest.mark.parametrize(
    "block",
    [
        "text",
        {"type": "image"},
        {"type": "image", "data": 7},
        {"type": "image", "data": TEXT[:-1]},
        {"type": "image", "data": "*" * 400},
        {"type": "resource", "resource": {"text": TEXT}},
        {"type": "text", "text": TEXT},
    ],
)
def test_what_is_no_base64_stays(block: JSON) -> None:
    done = apart(block)
    assert (done.data, done.blobs) == ({"content": [block]}, ())


def test_a_type_of_no_bound_is_cut() -> None:  # law 9
    done = apart({"type": "image", "data": TEXT, "mimeType": "x\n" * 9000})
    (name,) = done.blobs
    assert len(str(name["media_type"])) < 300
    assert str(name["media_type"]).isprintable()


def promising(ttl: JSON, size: int = 10) -> Answer:
    return Answer({"contents": [], "ttlMs": ttl}, size)


def test_an_answer_is_found_until_its_time_is_over() -> None:
    now = 0.0
    kept = Kept(lambda: now)
    answer = promising(2000)
    kept.keep("resources/read", {"uri": "a"}, answer)
    assert kept.find("resources/read", {"uri": "a"}) is answer
    assert kept.find("resources/read", {"uri": "b"}) is None
    assert kept.find("resources/list", {"uri": "a"}) is None
    now = 2.0
    assert kept.find("resources/read", {"uri": "a"}) is None


@pytest.mark.parametrize("ttl", [None, 0, -1, True, "9"])
def test_nothing_is_kept_without_a_promise(ttl: JSON) -> None:
    kept = Kept(lambda: 0.0)
    kept.keep("resources/read", {}, promising(ttl))
    assert kept.find("resources/read", {}) is None


def test_what_is_kept_is_bounded() -> None:
    # law 9
    kept = Kept(lambda: 0.0)
    kept.keep("resources/read", {}, promising(1000, size=1_000_000))
    assert kept.find("resources/read", {}) is None
    for number in range(1000):
        kept.keep("resources/read", {"uri": str(number)}, promising(1000))
    found = [n for n in range(1000) if kept.find("resources/read", {"uri": str(n)})]
    assert found == [*range(1000 - 256, 1000)]
    assert good_for({"ttlMs": 10**12}) == 24 * 3600


# -- what the client of a session is shown ---------------------------------------------


async def test_the_entries_of_a_list_hold_known_keys_and_no_secret() -> None:
    # law 8, law 9
    argument: JSON = {"name": "n", "required": 1, "x": 1}
    sound: JSON = {"name": "a", "arguments": [argument, {}, 7], "_meta": {}}
    odd: list[JSON] = [7, {"name": 7}, {"name": "a\n"}, {"name": "hunter2hunter2"}]

    async def ask(method: str, params: dict[str, JSON]) -> Answer:
        assert (method, params) == (PROMPTS, {})
        return Answer({"prompts": [sound, *odd]}, 9)

    found = await list_entries(ask, PROMPTS, 100, Redactor(["hunter2hunter2"]))
    one: JSON = {"name": "a", "arguments": [{"name": "n", "required": False}]}
    assert found == Answer({"content": [], "entries": [one]}, 9)
    with pytest.raises(ToolError) as refused:
        await list_entries(ask, PROMPTS, 8, Redactor())
    assert refused.value.kind == "too_large"


@pytest.mark.parametrize(
    ("method", "key"),
    [(READ, "contents"), (PROMPT, "messages"), ("completion/complete", "values")],
)
@pytest.mark.parametrize("value", [7, None, "none", {}])
def test_an_answer_without_its_list_is_refused(
    method: str, key: str, value: JSON
) -> None:  # law 9
    for result in ({key: value}, {"completion": {key: value}}, {"completion": value}):
        with pytest.raises(ToolError, match=f"no list of {key}"):
            of_tool(method, {**result})
