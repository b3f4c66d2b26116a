// The admin page. Whatever it shows comes of the control API as text, and stays text.

import { ask, get, part, post, TOKEN } from "./ask.js";
import { at, dialog, el, facts, field, keyed, table, text } from "./make.js";
import * as t from "./text.js";

const EVERY = 5000;
const PAGE = 250;
const STATES = ["running", "suspended", "completed", "failed", "cancelled"];
const GOING_ON = ["running", "suspended"];

const shown = { caller: null, leave: new AbortController(), text: null, tested: new Map() };

// -- telling and drawing -----------------------------------------------------

function button(label, on, options = {}) {
  const run = async () => {
    try {
      await on();
    } catch (error) {
      fail(error);
    }
  };
  return el("button", { type: "button", on: run, ...options }, label);
}

function say(words, bad = false) {
  at("said").className = bad ? "bad" : "";
  at("said").textContent = words;
}

function fail(error) {
  if (error.name === "AbortError") return;
  if (error.status === 401) askForToken(error.message);
  else say(error.message, true);
}

function show(...nodes) {
  const key = document.activeElement?.dataset?.key;
  at("main").replaceChildren(...nodes);
  if (key) [...at("main").querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus();
}

const REASON = { name: "reason", label: "Why (it is recorded)", maxLength: 2000 };

// -- servers -----------------------------------------------------------------

function servers({ servers: found }) {
  const rows = found.map((one) => {
    const [kind, word] = t.light(one);
    return [
      one.name,
      one.transport,
      el("span", { className: `light ${kind}` }, word),
      String(one.restarts ?? "-"),
      t.took(one.latency_ms),
      shown.tested.get(one.name) ?? "-",
      el("div", { className: "row" }, ...doings(one)),
    ];
  });
  const columns = ["Server", "Transport", "State", "Restarts", "Latency", "Tools", "Do"];
  const list = rows.length ? table("Servers", columns, rows) : el("p", {}, "There is none.");
  const add = button("Add a server", addServer, keyed("add"));
  show(el("h1", {}, "Servers"), list, shown.caller.edit ? el("p", {}, add) : el("p", {}, READ_ONLY));
}

function doings(server) {
  const { name } = server;
  const named = (label, on, key) =>
    button(label, on, { ...keyed(`${key} ${name}`), "aria-label": `${label} ${t.visible(name)}` });
  const found = [
    named("Test", () => testServer(name), "test"),
    named("Restart", () => restartServer(name), "restart"),
  ];
  if (shown.caller.edit)
    found.push(
      named("Change", () => changeServer(server), "change"),
      named("Remove", () => removeServer(name), "remove"),
    );
  return found;
}

const READ_ONLY =
  "Servers are not changed here: write edit = true into [serve] of caxton.toml, start the host again, and use a token.";

async function testServer(name) {
  say(`Asking ${t.visible(name)}`);
  const told = await post(`/servers/${part(name)}/test`);
  if (told.answers) shown.tested.set(name, String(told.tools.length));
  say(
    told.answers
      ? `${t.visible(name)} answers, and has: ${t.visible(told.tools.join(", ")) || "no tools"}`
      : `${t.visible(name)} does not answer: ${t.visible(told.problem)}`,
    !told.answers,
  );
  await again();
}

function restartServer(name) {
  const act = async (typed) => {
    const { hosts } = await post(`/servers/${part(name)}/restart`, typed);
    tellHosts(`${name}: restart asked for`, hosts, "restarted");
  };
  dialog(`Restart ${name}?`, "Restart", act, [REASON], el("p", {}, "Calls under way there fail."));
}

function serverFields(server) {
  const keep = server ? " (empty: as it is)" : "";
  const area = { kind: "textarea", rows: 3, spellcheck: false };
  return [
    ...(server ? [] : [{ name: "name", label: "Name", required: true, maxLength: 64 }]),
    { name: "program", label: `Program, for a server that the host starts${keep}` },
    { name: "words", label: "Its arguments, one a line", ...area },
    { name: "url", label: `Or the address of a server${keep}`, placeholder: "https://" },
    { name: "transport", label: "Transport", kind: "select", choices: ["", "stdio", "http", "sse"] },
    { name: "env", label: `Variables of the program: NAME=VALUE, one a line${keep}`, ...area },
    { name: "headers", label: `Headers: NAME: VALUE, one a line${keep}`, ...area },
  ];
}

const SECRETS = "Secrets do not travel: write ${env:NAME} or ${file:PATH}, and set them on the host.";

function addServer() {
  const act = async (typed) => edited(await post("/servers", t.described(typed)));
  const about = `It grants nothing. The program runs on the host. ${SECRETS}`;
  dialog("Add a server", "Add", act, serverFields(null), el("p", {}, about));
}

function changeServer(server) {
  const path = `/servers/${part(server.name)}`;
  const act = async (typed) => edited(await post(path, t.described(typed), "PUT"));
  const now = el("p", {}, "Now: ", el("code", {}, server.address));
  dialog(`Change ${server.name}`, "Change", act, serverFields(server), now, el("p", {}, SECRETS));
}

function removeServer(name) {
  const act = async () => edited(await post(`/servers/${part(name)}`, undefined, "DELETE"));
  const about = "Its table is taken out of caxton.toml, with the options of its tools.";
  dialog(`Remove ${name}?`, "Remove", act, [], el("p", {}, about));
}

async function edited({ change, name, hosts }) {
  shown.tested.delete(name);
  tellHosts(`${name} is ${change} in the file`, hosts, "reloaded");
  await again();
}

function tellHosts(what, hosts, good) {
  const told = hosts.map((one) => `${one.host}: ${one.outcome}`);
  say(t.visible([what, ...told].join("; ")), hosts.some((one) => !one[good]));
}

// -- runs --------------------------------------------------------------------

const filter = { state: "", pages: [null] };

function runsPath() {
  const query = new URLSearchParams({ limit: "20" });
  if (filter.state) query.set("state", filter.state);
  const cursor = filter.pages.at(-1);
  if (cursor) query.set("cursor", cursor);
  return `/runs?${query}`;
}

function runs({ runs: found, next }) {
  const select = el("select", keyed("state"), ...["", ...STATES].map((one) => el("option", { value: one, selected: one === filter.state }, one || "all")));
  select.addEventListener("change", () => turn(() => Object.assign(filter, { state: select.value, pages: [null] })));
  const rows = found.map((one) => [
    el("a", { href: `#runs/${part(one.run_id)}`, ...keyed(one.run_id) }, one.run_id),
    one.agent,
    state(one.state),
    one.calls ? t.calls(one.calls) : "-",
    t.time(one.started_at),
    t.took(one.duration_ms),
  ]);
  const columns = ["Run", "Agent", "State", "Calls", "Started (UTC)", "Took"];
  show(
    el("h1", {}, "Runs"),
    el("p", { className: "row" }, el("label", {}, "State", select)),
    rows.length ? table("Runs", columns, rows) : el("p", {}, "There is none."),
    el(
      "p",
      { className: "row" },
      button("Newer", () => turn(() => filter.pages.pop()), { ...keyed("newer"), disabled: filter.pages.length < 2 }),
      button("Older", () => turn(() => filter.pages.push(next)), { ...keyed("older"), disabled: !next }),
    ),
  );
}

async function turn(change) {
  change();
  await again();
}

function state(name) {
  const kinds = { completed: "good", failed: "bad", broken: "bad", suspended: "warn" };
  return el("span", { className: kinds[name] ?? "" }, name);
}

// The events of a run: the newest as they come, or others a page at a time.
class Events {
  #id;
  #signal;
  #list = el("ol", { className: "events" });
  #older = button("Older", () => this.#show(this.#first - 1), { disabled: true });
  #newer = button("Newer", () => this.#show(this.#first + 1), { disabled: true });
  #starts = [null]; // The cursor before each page.
  #left = PAGE; // Until the last page is full.
  #first = 0; // The first page that is shown.
  #live = true;
  last = null;

  constructor(id, signal) {
    this.#id = id;
    this.#signal = signal;
    this.nodes = [el("p", { className: "row" }, this.#older, this.#newer), this.#list];
  }

  take(event) {
    this.last = event.cursor;
    if (this.#live) this.#list.append(eventLine(event));
    this.#left -= 1;
    if (!this.#left) {
      this.#left = PAGE;
      this.#starts.push(event.cursor);
      if (this.#live && this.#starts.length - this.#first > 2) {
        this.#first += 1;
        this.#list.replaceChildren(...[...this.#list.children].slice(PAGE));
        this.#turned();
      }
    }
  }

  async #show(page) {
    const live = page >= this.#starts.length - 2;
    const found = [];
    let after = this.#starts[page];
    for (let more = true; more && (live || found.length < PAGE); ) {
      const query = new URLSearchParams({ limit: live ? PAGE : PAGE - found.length });
      if (after) query.set("after", after);
      const got = await get(`/runs/${part(this.#id)}/events?${query}`, { signal: this.#signal });
      found.push(...got.events);
      after = got.cursor;
      const end = found.findIndex((one) => one.cursor === this.last);
      // What comes behind the last one is still to come as an event.
      if (end >= 0) found.length = end + 1;
      more = got.more && end < 0;
    }
    this.#live = live;
    this.#first = page;
    this.#list.replaceChildren(...found.map(eventLine));
    this.#turned();
  }

  #turned() {
    this.#older.disabled = !this.#first;
    this.#newer.disabled = this.#live;
  }
}

async function run(id, signal) {
  const about = el("div");
  const listed = new Events(id, signal);
  const waits = new t.Waits();
  const live = el("p", { role: "status" });
  show(el("h1", {}, `Run ${id}`), about, el("h2", {}, "Events"), live, ...listed.nodes);
  const update = async () => {
    const now = await get(`/runs/${part(id)}`, { signal });
    about.replaceChildren(...summary(now, waits, update));
    return now;
  };
  let now = await update();
  while (!signal.aborted) {
    try {
      live.textContent = "Live";
      for await (const event of events(id, listed.last, signal)) {
        listed.take(event);
        if (waits.take(event)) await update();
      }
    } catch (error) {
      if (error.name === "AbortError" || error.status < 500) throw error;
      live.textContent = "The connection is lost; trying again";
    }
    now = await update().catch(() => now);
    if (!GOING_ON.includes(now.state)) break;
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
  live.textContent = "The run has ended.";
}

async function* events(id, cursor, signal) {
  const query = cursor ? `?${new URLSearchParams({ after: cursor })}` : "";
  const answer = await ask(`/runs/${part(id)}/events${query}`, { signal, headers: { accept: "text/event-stream" } });
  if (answer.status === 204) return;
  const parser = new t.EventParser();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    for (const one of parser.push(value)) yield { ...t.parse(one.data), cursor: one.id };
  }
}

function eventLine(event) {
  const line = el("summary", {}, `${event.seq} ${event.type} `, el("small", {}, t.time(event.recorded_at)));
  const folded = el("details", {}, line);
  folded.addEventListener("toggle", () => folded.append(text(event.payload)), { once: true });
  return el("li", {}, folded);
}

function summary(now, waits, update) {
  const id = now.run_id;
  const act = async (what, body) => {
    await post(`/runs/${part(id)}/${what}`, body);
    await update();
  };
  const cancel = (typed) => act("cancel", typed);
  const found = [];
  if (t.owns(shown.caller, now) && GOING_ON.includes(now.state)) {
    const ask = () => dialog("Cancel the run?", "Cancel it", cancel, [REASON]);
    found.push(button("Cancel", ask, { className: "bad" }));
    if (now.state === "suspended" && waits.resumes) found.push(button("Resume", () => act("resume")));
  }
  const asked = now.state === "suspended" ? inDoubt(waits, (body) => act("resolve", body)) : [];
  const nodes = [
    facts([
      ["Agent", now.agent],
      ["State", state(now.state)],
      ["Calls", t.calls(now.calls)],
      ["Started", `${t.time(now.started_at)} UTC, by ${now.actor.kind} ${now.actor.id}`],
      ["Took", t.took(now.duration_ms)],
    ]),
    el("div", { className: "row" }, ...found),
    ...asked,
  ];
  for (const one of now.bounds ?? []) nodes.push(el("h2", {}, `Bound by ${one.name}`), text(one.grants));
  if (now.output !== null) nodes.push(el("h2", {}, "Output"), text(now.output));
  if (now.error !== null) nodes.push(el("h2", {}, "Error"), text(now.error));
  return nodes;
}

const RESULT = {
  name: "result",
  label: "What it answered: an MCP CallToolResult",
  kind: "textarea",
  rows: 6,
  spellcheck: false,
  value: '{"content": [{"type": "text", "text": ""}]}',
};

// What can be said of a call in doubt: the choice, its button, what comes of it, fields.
const CHOICES = [
  ["retry", "Send it again", "If it has happened, it happens twice.", []],
  ["result", "Give its result", "The agent gets this as the answer of the tool.", [RESULT]],
  ["fail", "Call it failed", "The agent is told that the call failed.", []],
  ["abort", "End the run", "The run ends as failed.", []],
];

function inDoubt({ reason, doubt }, resolve) {
  if (reason === "approval")
    return [el("p", {}, "A call waits for a person: see ", el("a", { href: "#approvals" }, "Approvals"), ".")];
  if (!doubt) return [];
  const choices = CHOICES.map(([choice, label, outcome, fields]) =>
    button(label, () => {
      const act = async ({ reason: why, result }) =>
        resolve({ seq: doubt.seq, choice, reason: why, ...(choice === "result" && { result: t.parse(result) }) });
      dialog(`${label}?`, label, act, [...fields, REASON], el("p", {}, `${doubt.name}: ${outcome}`), text(doubt.params));
    }),
  );
  return [
    el("p", { className: "warn" }, `Nobody knows whether call ${doubt.call} (event ${doubt.seq}) happened: ${doubt.name}`),
    text(doubt.params),
    t.may(shown.caller, "decide")
      ? el("div", { className: "row" }, ...choices)
      : el("p", {}, "Your token may not say what became of it: that needs the scope decide."),
  ];
}

// -- approvals ---------------------------------------------------------------

// An address may name one run: only its calls are shown.
function approvals({ approvals: found, questions }) {
  const [, id] = where();
  const isMeant = (one) => !id || one.run_id === id;
  const asked = found.filter(isMeant).flatMap((one) => {
    const name = `${one.server}/${one.tool}`;
    const key = `${one.run_id} ${one.seq}`;
    const choices = t.decides(shown.caller, one)
      ? [
          button("Approve", () => decide(one, "approve"), { ...keyed(`approve ${key}`), "aria-label": `Approve ${t.visible(name)}` }),
          button("Deny", () => decide(one, "deny"), { ...keyed(`deny ${key}`), "aria-label": `Deny ${t.visible(name)}` }),
        ]
      : [one.expired ? "It is too late to decide." : "Your token may not decide this."];
    const run = el("a", { href: `#runs/${part(one.run_id)}`, ...keyed(key) }, `Run ${one.run_id}`);
    return [el("h2", {}, name), ...question(one), el("div", { className: "row" }, ...choices, run)];
  });
  asked.push(...questions.filter(isMeant).flatMap(fromServer));
  show(el("h1", {}, "Approvals"), ...(asked.length ? asked : [el("p", {}, "No call waits for a person.")]));
}

// What a tool server asks. Forms are filled in on the command line.
function fromServer(one) {
  const name = `${one.server}/${one.tool}`;
  const decline = () =>
    dialog(`Decline this question: ${t.visible(name)}`, "Decline", async (typed) => {
      await post(`/approvals/${part(one.run_id)}/${one.seq}/answer`, typed);
      say(`Declined: ${t.visible(name)}`);
      await again();
    }, [REASON]);
  const run = el("a", { href: `#runs/${part(one.run_id)}`, ...keyed(`${one.run_id} ${one.seq}`) }, `Run ${one.run_id}`);
  const may = t.decides(shown.caller, one);
  return [
    el("h2", {}, `${name} asks`),
    facts([["Question", one.message], ["Agent", one.agent], ["Until", `${t.time(one.until)} UTC`]]),
    text(one.form),
    el("p", {}, el("code", {}, `caxton approval answer ${one.run_id} ${one.seq} --data '{...}'`)),
    el("div", { className: "row" }, may ? button("Decline", decline, keyed(`decline ${one.run_id} ${one.seq}`)) : "", run),
  ];
}

function question(one) {
  return [
    facts([
      ["Agent", one.agent],
      ["Rule", one.rule],
      ["For", one.by.length ? one.by.join(", ") : "anybody who may decide"],
      ["Approved", `${one.given.length} of ${one.count}${one.not_by ? `; not by ${one.not_by.id}` : ""}`],
      ["Asked", `${t.time(one.asked_at)} UTC`],
      ["Until", one.until === null ? "no end" : `${t.time(one.until)} UTC`],
      ["SHA-256", one.params_sha256],
    ]),
    text(one.params),
  ];
}

function decide(one, verdict) {
  const [title, done] = verdict === "approve" ? ["Approve", "Approved"] : ["Deny", "Denied"];
  const name = t.visible(`${one.server}/${one.tool}`);
  const act = async (typed) => {
    await post(`/approvals/${part(one.run_id)}/${one.seq}/${verdict}`, typed);
    say(`${done}: ${name}`);
    await again();
  };
  dialog(`${title} this call: ${name}`, title, act, [REASON], ...question(one));
}

// -- agents ------------------------------------------------------------------

function agents({ agents: found }) {
  const parts = found.flatMap((one) => [
    el("h2", {}, one.name),
    ...(one.module ? [el("p", {}, el("code", {}, one.module))] : []),
    el("details", {}, el("summary", {}, "What it may do"), text(one.grants)),
  ]);
  show(el("h1", {}, "Agents"), ...(parts.length ? parts : [el("p", {}, "There is none for your token.")]));
}

// -- which view --------------------------------------------------------------

const VIEWS = {
  servers: { title: "Servers", needs: "admin", path: () => "/servers", draw: servers },
  runs: { title: "Runs", path: runsPath, draw: runs },
  approvals: { title: "Approvals", path: () => "/approvals", draw: approvals },
  agents: { title: "Agents", path: () => "/agents", draw: agents },
};

const offered = () =>
  Object.keys(VIEWS).filter((name) => !VIEWS[name].needs || (t.may(shown.caller, VIEWS[name].needs) && !shown.caller.tenant));

function where() {
  const [name, id] = location.hash.slice(1).split("/");
  return [offered().includes(name) ? name : offered()[0], id];
}

async function again() {
  shown.leave.abort();
  shown.leave = new AbortController();
  shown.text = null;
  const [name, id] = where();
  const links = offered().map((one) =>
    el("a", { href: `#${one}`, ...(one === name ? { "aria-current": "page" } : {}) }, VIEWS[one].title),
  );
  at("views").replaceChildren(...links);
  document.title = `${VIEWS[name].title} - Caxton Host`;
  try {
    await (name === "runs" && id ? run(id, shown.leave.signal) : draw(VIEWS[name]));
  } catch (error) {
    fail(error);
  }
}

// Draw a view, unless it would look as it does: somebody may be reading it.
async function draw({ path, draw: drawn }) {
  const { signal } = shown.leave;
  const told = await (await ask(path(), { signal })).text();
  if (signal.aborted || told === shown.text) return;
  shown.text = told;
  drawn(t.parse(told));
}

async function refresh() {
  const [name, id] = shown.caller ? where() : [];
  if (!name || (id && name === "runs") || document.hidden || at("dialog").open) return;
  try {
    await draw(VIEWS[name]);
  } catch (error) {
    fail(error);
  }
}

function askForToken(why = "") {
  shown.caller = null;
  shown.leave.abort();
  const use = (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, event.target.elements.token.value.trim());
    enter();
  };
  const input = field({ name: "token", label: "Token", type: "password", required: true, autocomplete: "off" });
  at("views").replaceChildren();
  at("caller").textContent = "";
  at("forget").hidden = true;
  say(sessionStorage.getItem(TOKEN) ? why : "", true);
  show(
    el("h1", {}, "Who are you?"),
    el("p", {}, "Type a token that caxton serve token create printed. This tab keeps it until it is closed."),
    el("form", { on: use }, input, el("p", {}, el("button", { type: "submit", className: "main" }, "Use it"))),
  );
  input.lastChild.focus();
}

async function enter() {
  try {
    shown.caller = await get("/me");
  } catch (error) {
    fail(error);
    return;
  }
  say("");
  at("caller").textContent = t.visible(`${shown.caller.kind} ${shown.caller.id}: ${shown.caller.scopes.join(", ")}`);
  at("forget").hidden = !sessionStorage.getItem(TOKEN);
  at("main").focus();
  await again();
}

at("forget").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
  askForToken();
});
addEventListener("hashchange", () => {
  if (!shown.caller) return;
  say("");
  at("main").focus();
  again();
});
setInterval(refresh, EVERY);
enter();
