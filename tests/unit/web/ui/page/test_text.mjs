// What the page shows as text, without a page.

import assert from "node:assert/strict";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const t = await import(pathToFileURL(`${process.env.PAGE}/text.js`));

const STREAM =
  ": caxton\n\nid: 7\nevent: RunStarted\ndata: {\"a\":\ndata: 1}\n\n" +
  "id: 8\r\nevent: ToolInvoked\r\ndata: <img onerror=x>\r\n\r\n:\n\nevent: lost\n\ndata:x:y\n\n";
const EVENTS = [
  { id: "7", type: "RunStarted", data: '{"a":\n1}' },
  { id: "8", type: "ToolInvoked", data: "<img onerror=x>" },
  { id: "8", type: "", data: "x:y" },
];

test("events are the same in whatever pieces they come", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new t.EventParser();
    const found = [];
    for (let at = 0; at < STREAM.length; at += size)
      found.push(...parser.push(STREAM.slice(at, at + size)));
    assert.deepEqual(found, EVENTS, `in pieces of ${size}`);
  }
});

test("an event that is not whole is not told", () => {
  assert.deepEqual(new t.EventParser().push("data: half\n"), []);
});

test("characters that cannot be seen are told by number", () => {
  assert.equal(t.visible("a\u202eb\u0000\u200b\n\u00a0\u2028\u{e0041}\ud800"),
    "a\\u{202e}b\\u{0000}\\u{200b}\\u{000a}\\u{00a0}\\u{2028}\\u{e0041}\\u{d800}");
  assert.equal(t.visible("<b>höhe 日本 😀</b>"), "<b>höhe 日本 😀</b>");
});

test("parameters are shown exactly", () => {
  const sent = '{"n":9007199254740993,"f":1.0,"e":1e400,"k\\u202e":["\\u001b[2J",{},[],null,true]}';
  assert.equal(
    t.pretty(t.parse(sent)),
    '{\n  "n": 9007199254740993,\n  "f": 1.0,\n  "e": 1e400,\n  "k\\u{202e}": [\n' +
      '    "\\u001b[2J",\n    {},\n    [],\n    null,\n    true\n  ]\n}',
  );
  assert.equal(t.pretty(JSON.parse("9007199254740993")), "9007199254740992 (rounded by this browser)");
  assert.equal(t.pretty(t.parse('{"__proto__":{"x":1}}')), '{\n  "__proto__": {\n    "x": 1\n  }\n}');
});

test("a light has a word beside it", () => {
  const up = { host: "host/1", live: true, state: "connected", breaker: "closed" };
  const lights = [
    [up, "good", "up"],
    [{ ...up, live: false }, "idle", "was up"],
    [{ ...up, breaker: "open" }, "warn", "cut off: breaker open"],
    [{ ...up, state: "lost" }, "bad", "lost"],
    [{ ...up, state: "failed", problem: "no such program" }, "bad", "failed: no such program"],
    [{ ...up, state: "disabled", breaker: "open" }, "bad", "disabled"],
    [{ ...up, state: null }, "idle", "not known"],
    [{ ...up, host: null }, "idle", "not started"],
  ];
  for (const [server, ...told] of lights) assert.deepEqual(t.light(server), told);
});

const ann = { kind: "token", id: "ann", scopes: ["run"], roles: [] };
const boss = { kind: "token", id: "boss", scopes: ["admin"], roles: ["payments"] };

test("runs are ended by who started them, and by admin", () => {
  const run = { actor: { kind: "token", id: "ann" } };
  assert.ok(t.owns(ann, run) && t.owns(boss, run));
  assert.ok(!t.owns({ ...ann, id: "bob" }, run) && !t.owns({ ...ann, scopes: ["read"] }, run));
  const acme = { ...run, actor: { ...run.actor, tenant: "acme" } };
  assert.ok(t.owns({ ...ann, tenant: "acme" }, acme) && !t.owns({ ...ann, tenant: null }, acme));
  assert.ok(t.owns({ ...ann, tenant: null }, run) && !t.owns({ ...ann, tenant: "globex" }, acme));
});

test("calls are decided in the role that the rule asks for, in time", () => {
  const waits = { seq: 3, by: ["payments"], expired: false };
  assert.ok(t.decides(boss, waits) && t.decides(boss, { ...waits, by: [] }));
  assert.ok(!t.decides(boss, { ...waits, by: ["law"] }) && !t.decides(ann, { ...waits, by: [] }));
  assert.ok(!t.decides(boss, { ...waits, expired: true }) && !t.decides(boss, { ...waits, seq: null }));
});

test("times, numbers and problems are in words", () => {
  assert.equal(t.time(1_700_000_000_123_456), "2023-11-14 22:13:20");
  assert.deepEqual([null, 4.4, 1500, 61_000].map(t.took), ["-", "4 ms", "1.5 s", "1 min 1 s"]);
  assert.equal(t.calls({ total: 2, ok: 1, tool_error: 1, denied: 0 }), "2 total, 1 ok, 1 tool error");
  assert.equal(t.calls({ total: 0 }), "none");
  assert.equal(t.words(403, { detail: "no", fix: "ask" }), "Your token may not do that: no. To fix: ask");
  assert.equal(t.words(502, null), "the host answers 502");
});

test("what was typed becomes a request, without what is empty", () => {
  const typed = { name: "x", program: "p", words: "-v\r\n two words \n\n", url: "", transport: "", env: "A = b=c", headers: "" };
  assert.deepEqual(t.described(typed), { name: "x", command: ["p", "-v", " two words "], env: { A: "b=c" } });
  const remote = { program: "", words: "", url: "https://x", transport: "sse", headers: "Authorization: Bearer ${env:T}" };
  assert.deepEqual(t.described(remote), { url: "https://x", transport: "sse", headers: { Authorization: "Bearer ${env:T}" } });
  assert.throws(() => t.described({ words: "-v" }), /program/u);
  assert.throws(() => t.described({ env: "no mark" }), /NAME=VALUE/u);
});
