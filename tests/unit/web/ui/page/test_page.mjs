// The page itself: whatever hosts, agents and tools say stays text.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { pathToFileURL } from "node:url";

import { all, browser, press, settled } from "./dom.mjs";

const EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202ejavascript:alert(3)";
const TOLD = EVIL.replace("\u202e", "\\u{202e}");
const KNOWN = new Set(
  ("a button code dd details div dl dt form h1 h2 input label li ol option p pre select small span " +
    "summary table tbody td textarea th thead tr").split(" "),
);

const run = {
  run_id: "7", agent: EVIL, actor: { kind: "token", id: EVIL }, state: "suspended", output: { [EVIL]: EVIL },
  error: { kind: EVIL }, calls: { total: 1, [EVIL]: 1 }, started_at: 0, duration_ms: 1,
};
const event = { seq: 1, type: `Run${EVIL}`, recorded_at: 0, payload: { [EVIL]: EVIL } };
const host = {
  caller: { kind: "token", id: EVIL, scopes: ["admin"], roles: [], edit: true },
  asked: [],
  problem: null,
  answers: {
    "GET /servers": { servers: [{ name: EVIL, transport: EVIL, address: EVIL, host: "h", live: true, state: "connected", restarts: 1, latency_ms: 2 }] },
    "GET /runs?limit=20": { runs: [run], next: "9-7" },
    "GET /runs/7": { ...run, state: "completed" },
    "GET /runs/8": { ...run, run_id: "8", state: "completed" },
    "GET /runs/9": { ...run, run_id: "9" },
    "POST /runs/9/resolve": {},
    "POST /runs/9/resume": {},
    "GET /approvals": { approvals: [{ run_id: "7", seq: 3, agent: EVIL, server: EVIL, tool: EVIL, params: { [EVIL]: EVIL }, params_sha256: "0", rule: EVIL, by: [], count: 2, not_by: { kind: EVIL, id: EVIL }, given: [], asked_at: 0, until: 5, expired: false }], questions: [{ run_id: "8", seq: 4, agent: EVIL, server: EVIL, tool: EVIL, message: EVIL, form: { [EVIL]: EVIL }, by: [], until: 5 }] },
    "GET /agents": { agents: [{ name: EVIL, module: EVIL, grants: { allow: [EVIL] } }] },
    [`POST /servers/${encodeURIComponent(EVIL)}/test`]: { answers: false, problem: EVIL, tools: [] },
    [`DELETE /servers/${encodeURIComponent(EVIL)}`]: { change: "removed", name: EVIL, hosts: [{ host: EVIL, reloaded: false, outcome: EVIL }] },
    "POST /servers": { change: "added", name: "x", hosts: [] },
    "POST /approvals/7/3/deny": {},
    "POST /approvals/8/4/answer": {},
  },
};

function answer(path, { method, headers, body }) {
  const asked = `${method} ${path.replace("/api/v1", "")}`;
  host.asked.push({ asked, headers, body });
  if (headers.authorization !== "Bearer good") return problem(401, "a token is needed");
  if (asked === "GET /me") return Response.json(host.caller);
  if (host.problem) return problem(...host.problem);
  const events = asked.match(/^GET \/runs\/([89])\/events(?:\?(.*))?$/u);
  if (events) return eventsOf(events[1], new URLSearchParams(events[2]), headers);
  if (asked === "GET /runs/7/events") return new Response(`id: c\ndata: ${JSON.stringify(event)}\n\n`);
  assert.ok(asked in host.answers, asked);
  return Response.json(host.answers[asked]);
}

// Run 8 has many events, and run 9 has those that a test gives it.
const stored = {
  8: Array.from({ length: 1130 }, (_, n) => ({ seq: n + 1, type: "LogWritten", recorded_at: 0, payload: {}, cursor: `n-${n + 1}` })),
  9: [],
};

function eventsOf(id, query, { accept }) {
  const from = query.has("after") ? stored[id].findIndex((one) => one.cursor === query.get("after")) + 1 : 0;
  const left = stored[id].slice(from);
  if (accept) {
    if (!left.length) return new Response(null, { status: 204 });
    return new Response(left.map((one) => `id: ${one.cursor}\ndata: ${JSON.stringify(one)}\n\n`).join(""));
  }
  // A page may be shorter than was asked for.
  const events = left.slice(0, Math.min(Number(query.get("limit")), 100));
  return Response.json({ events, cursor: events.at(-1)?.cursor ?? query.get("after"), more: events.length < left.length });
}

const problem = (status, detail) => Response.json({ detail, fix: "" }, { status });
const page = browser(answer);
await import(pathToFileURL(`${process.env.PAGE}/page.js`));
await settled();

const words = () => ["main", "dialog", "said", "caller", "live"].map((id) => page.at(id).textContent).join("\n");

function harmless() {
  for (const root of ["main", "dialog", "views"]) {
    for (const one of all(page.at(root))) {
      assert.ok(KNOWN.has(one.tagName), one.tagName);
      if (one.tagName === "a") assert.match(one.href, /^#(?:servers|runs|approvals|agents)/u);
      for (const name of [...Object.keys(one), ...Object.keys(one.attributes)])
        assert.doesNotMatch(name, /^(?:on|src|style)/u);
    }
  }
  assert.doesNotMatch(words(), /\u202e/u);
}

async function enter() {
  const form = all(page.at("main")).find((one) => one.tagName === "form");
  form.elements.token.value = " good ";
  await press(form, "submit");
}

beforeEach(async () => {
  host.caller = { ...host.caller, scopes: ["admin"], edit: true };
  host.problem = null;
  page.at("dialog").close();
  if (sessionStorage.getItem("caxton.token") !== "good") await enter();
  host.asked = [];
});

const again = async (caller) => {
  await press(page.at("forget"));
  Object.assign(host.caller, caller);
  await enter();
};

test("a token is asked for, sent as a header, and forgotten", async () => {
  await press(page.at("forget"));
  assert.equal(sessionStorage.getItem("caxton.token"), null);
  assert.match(page.at("main").textContent, /Who are you/u);
  assert.equal(page.at("views").textContent, "");
  await enter();
  assert.ok(host.asked.every(({ asked, headers }) => headers.authorization === "Bearer good" && !asked.includes("good")));
  assert.equal(page.at("views").textContent, "ServersRunsApprovalsAgents");
});

for (const [view, title] of [["servers", "Servers"], ["runs", "Runs"], ["approvals", "Approvals"], ["agents", "Agents"], ["runs/7", "Run 7"]]) {
  test(`what ${view} shows stays text`, async () => {
    await page.go(view);
    for (const one of all(page.at("main"))) if (one.heard.toggle) await press(one, "toggle");
    assert.match(page.at("main").textContent, new RegExp(`^${title}`, "u"));
    assert.ok(words().includes(TOLD));
    harmless();
  });
}

test("what dialogs and messages show stays text", async () => {
  await page.go("servers");
  await press(page.button("Test"));
  assert.ok(page.at("said").textContent.includes(TOLD));
  for (const label of ["Change", "Restart", "Remove"]) {
    await press(page.button(label));
    assert.ok(page.at("dialog").open);
    assert.ok(page.at("dialog").textContent.includes(TOLD));
    harmless();
  }
  await press(page.at("dialog").firstChild, "submit");
  assert.ok(!page.at("dialog").open);
  assert.ok(page.at("said").textContent.includes(`${TOLD} is removed in the file; ${TOLD}: ${TOLD}`));
});

test("a server is added as it was typed", async () => {
  await page.go("servers");
  await press(page.button("Add a server"));
  const form = page.at("dialog").firstChild;
  Object.assign(form.elements.name, { value: "x" });
  Object.assign(form.elements.program, { value: "p" });
  await press(form, "submit");
  const added = host.asked.find(({ asked }) => asked === "POST /servers");
  assert.deepEqual(JSON.parse(added.body), { name: "x", command: ["p"] });
});

test("a call is denied with a reason, and what is refused stays to be corrected", async () => {
  await page.go("approvals");
  await press(page.button("Deny"));
  const form = page.at("dialog").firstChild;
  form.elements.reason.value = "too much";
  host.problem = [409, `busy ${EVIL}`];
  await press(form, "submit");
  assert.ok(page.at("dialog").open);
  assert.ok(form.textContent.includes(`busy ${TOLD}`));
  host.problem = null;
  host.asked = [];
  await Promise.all([press(form, "submit"), press(form, "submit")]);
  assert.ok(!page.at("dialog").open);
  const [denied, ...more] = host.asked.filter(({ asked }) => asked === "POST /approvals/7/3/deny");
  assert.equal(more.length, 0);
  assert.deepEqual(JSON.parse(denied.body), { reason: "too much" });
});

test("a question of a tool server is declined", async () => {
  await page.go("approvals");
  await press(page.button("Decline"));
  const form = page.at("dialog").firstChild;
  form.elements.reason.value = "not ours";
  await press(form, "submit");
  const [declined] = host.asked.filter(({ asked }) => asked === "POST /approvals/8/4/answer");
  assert.deepEqual(JSON.parse(declined.body), { reason: "not ours" });
});

test("an address that names a run shows what that waits for", async () => {
  for (const [id, there, gone] of [["7", "Approve", "Decline"], ["8", "Decline", "Approve"]]) {
    await page.go(`approvals/${id}`);
    assert.ok(page.button(there));
    assert.ok(!page.at("main").textContent.includes(`${gone}Deny`) && !all(page.at("main")).some((one) => one.textContent === gone));
  }
});

const numbers = () =>
  all(page.at("main")).filter((one) => one.tagName === "li").map((one) => Number.parseInt(one.textContent, 10));
const range = (from, to) => Array.from({ length: to - from + 1 }, (_, n) => from + n);

test("no event of a long run is out of reach", async () => {
  await page.go("runs/8");
  assert.deepEqual(numbers(), range(751, 1130));
  assert.ok(page.button("Newer").disabled);
  for (const [from, to] of [[501, 750], [251, 500], [1, 250]]) {
    await press(page.button("Older"));
    assert.deepEqual(numbers(), range(from, to));
  }
  assert.ok(page.button("Older").disabled);
  for (const [from, to] of [[251, 500], [501, 750], [751, 1130]]) {
    await press(page.button("Newer"));
    assert.deepEqual(numbers(), range(from, to));
  }
  assert.ok(page.button("Newer").disabled);
});

const doubtful = [
  { seq: 1, type: "RunStarted", payload: {} },
  { seq: 2, type: "ToolInvoked", payload: { call: 1, name: "done", params: {} } },
  { seq: 3, type: "ToolCompleted", payload: { call: 1 } },
  { seq: 4, type: "ToolInvoked", payload: { call: 2, name: EVIL, params: { [EVIL]: 12345678901234567890n } } },
  { seq: 5, type: "RunSuspended", payload: { reason: "in_doubt", call: 2 } },
];
const happened = (...more) => {
  stored[9] = [...doubtful, ...more].map((one) => ({ ...one, recorded_at: 0, cursor: `n-${one.seq}` }));
};
BigInt.prototype.toJSON = function () {
  return JSON.rawJSON(String(this));
};

test("of a call in doubt all is offered that can be said of it, and no resuming", async () => {
  happened();
  await page.go("runs/9");
  assert.equal(page.button("Resume"), undefined);
  assert.match(page.at("main").textContent, /call 2 \(event 4\)/u);
  harmless();
  const exact = '{"content": [], "structuredContent": {"n": 12345678901234567890}}';
  for (const [label, said] of [
    ["Send it again", { choice: "retry" }],
    ["Give its result", { choice: "result" }],
    ["Call it failed", { choice: "fail" }],
    ["End the run", { choice: "abort" }],
  ]) {
    host.asked = [];
    await press(page.button(label));
    harmless();
    const form = page.at("dialog").firstChild;
    form.elements.reason.value = "looked";
    if (form.elements.result) form.elements.result.value = exact;
    await press(form, "submit");
    const { body } = host.asked.find(({ asked }) => asked === "POST /runs/9/resolve");
    const { result, ...rest } = JSON.parse(body);
    assert.deepEqual(rest, { seq: 4, reason: "looked", ...said });
    assert.equal(result !== undefined, said.choice === "result");
    assert.equal(body.includes("12345678901234567890"), said.choice === "result");
  }
});

test("what a person has to say is said by who may, and resuming is offered when it works", async () => {
  happened();
  await again({ scopes: ["read"] });
  await page.go("runs/9");
  assert.equal(page.button("Send it again"), undefined);
  assert.match(page.at("main").textContent, /needs the scope decide/u);
  await again({ scopes: ["admin"] });
  happened({ seq: 6, type: "CallResolved", payload: { call: 2, verdict: "retry" } });
  await page.go("runs/9");
  assert.equal(page.button("Send it again"), undefined);
  assert.ok(page.button("Resume"));
  happened({ seq: 6, type: "RunSuspended", payload: { reason: "approval", call: 2 } });
  await page.go("runs/9");
  assert.equal(page.button("Resume"), undefined);
  assert.match(page.at("main").textContent, /waits for a person: see Approvals/u);
  happened({ seq: 6, type: "RunSuspended", payload: { reason: "host_stopped" } });
  await page.go("runs/9");
  assert.ok(page.button("Resume"));
});

test("what the token may not do is not offered", async () => {
  await again({ scopes: ["run"], edit: false });
  assert.equal(page.at("views").textContent, "RunsApprovalsAgents");
  await page.go("approvals");
  assert.equal(page.button("Approve"), undefined);
  await again({ scopes: ["admin"], edit: false });
  await page.go("servers");
  assert.ok(page.button("Restart"));
  assert.equal(page.button("Remove") ?? page.button("Add a server"), undefined);
  assert.match(page.at("main").textContent, /edit = true/u);
});

test("a refusal is told in words", async () => {
  host.problem = [403, "this needs the scope read"];
  await page.go("agents");
  assert.equal(page.at("said").textContent, "Your token may not do that: this needs the scope read");
});

test("an address that leads nowhere shows the first view", async () => {
  await page.go("%/%");
  assert.match(page.at("main").textContent, /^Servers/u);
});

test("a list is drawn anew only if it is another, and the focus stays", async () => {
  await page.go("servers");
  const before = page.at("main").firstChild;
  await page.heard.interval();
  assert.equal(page.at("main").firstChild, before);
  page.button("Restart").focus();
  host.answers["GET /servers"].servers[0].restarts += 1;
  await page.heard.interval();
  assert.notEqual(page.at("main").firstChild, before);
  assert.equal(document.activeElement, page.button("Restart"));
});
