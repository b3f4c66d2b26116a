// The page around a bundle: what it says is text, and never markup.
// @ts-check

/**
 * @typedef {{ id: string, call: number | null, title: string, text: any, outcome: string, notes: string[], began: number, ended: number | null, events: Sealed[] }} Row
 */

const EACH = 500;
const LONG = 20_000;
/** @type {Record<string, string>} */
const ENDS = { ToolCompleted: "ok", ToolDenied: "denied", ToolFailed: "failed" };
/** @type {Record<string, string>} */
const STATES = {
  RunStarted: "started", RunQueued: "queued", RunSuspended: "suspended", RunResumed: "resumed",
  RunCompleted: "ok", RunFailed: "failed", RunCancelled: "failed",
};
/** @type {[string, RegExp][]} */
const IMAGES = [["image/png", /^\x89PNG\r\n\x1a\n/], ["image/jpeg", /^\xff\xd8\xff/], ["image/gif", /^GIF8/], ["image/webp", /^RIFF[^]{4}WEBP/]];
// Of these, what one sees is not what is there.
const UNSEEN = new RegExp(
  "[\\p{C}\\p{Z}\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u2800\\u3164\\ufe00-\\ufe0f\\uffa0\\ufff0-\\ufff8\\u{e0000}-\\u{e0fff}]", "gu");

// -- values as text

/** Show characters that cannot be seen, or that change how others are seen, by number.
 * @param {string} text */
const visible = (text) =>
  text.replace(UNSEEN, (one) => (" \n\t".includes(one) ? one : `\\u{${(one.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}}`));

/** A value in a line.
 * @param {any} value */
function brief(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value, (_, one) =>
    typeof one === "bigint" ? String(one) : one instanceof Map ? Object.fromEntries(one) : one instanceof Uint8Array ? `${one.length} bytes` : one);
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}
/** @param {number} us */
const when = (us) => (us < 8e15 ? new Date(us / 1000).toISOString().replace("T", " ").replace("Z", " UTC") : String(us));
/** @param {number | null} us */
const took = (us) => (us === null ? "" : us >= 1e6 ? `${(us / 1e6).toPrecision(3)} s` : `${(us / 1000).toPrecision(2)} ms`);
/** @param {number} n @param {string} name */
const counted = (n, name) => `${n.toLocaleString("en")} ${name}${n === 1 ? "" : "s"}`;

/** What a payload holds; nothing, if it was erased or is no map.
 * @param {Sealed} event @returns {Record<string, any>} */
function read(event) {
  try {
    return said(event);
  } catch {
    return Object.create(null);
  }
}

// -- elements

/** @param {string} id */
const by = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @param {string} tag @param {string} name a class @param {(Node | string | null)[]} parts */
function element(tag, name, ...parts) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  for (const one of parts) if (one !== null) made.append(typeof one === "string" ? visible(one) : one);
  return made;
}
/** @param {string} label @param {() => void} act */
function button(label, act) {
  const made = element("button", "", label);
  made.onclick = act;
  return made;
}
/** @template T @param {HTMLElement} list @param {T[]} all @param {(one: T) => Node} show */
function paged(list, all, show) {
  let from = 0;
  const more = button("", () => {
    list.append(...all.slice(from, (from += EACH)).map(show));
    more.textContent = `${counted(all.length - from, "more row")}`;
    more.hidden = from >= all.length;
  });
  more.click();
  return [list, more];
}
/** @param {string} text */
function long(text) {
  const shown = element("span", "text", text.slice(0, LONG));
  if (text.length <= LONG) return shown;
  const rest = button(`${counted(text.length - LONG, "more character")}`, () => rest.replaceWith(visible(text.slice(LONG))));
  shown.append(rest);
  return shown;
}
/** A value as a tree, whose branches are made when they are opened.
 * @param {any} value @returns {Node} */
function tree(value, depth = 0) {
  if (typeof value === "string") return long(value);
  if (value instanceof Uint8Array) return element("code", "", `${value.length} bytes: ${hex(value.subarray(0, 64))}`);
  if (value instanceof Number) return element("code", "", Number.isSafeInteger(+value) ? `${value}.0` : String(value));
  const is = isMap(value), inside = Array.isArray(value) ? value : is ? entriesOf(value) : [];
  if (!inside.length) return element("code", "", is ? "{}" : Array.isArray(value) ? "[]" : String(value));
  const made = /** @type {HTMLDetailsElement} */ (element("details", "tree", element("summary", "", is ? `{${inside.length}}` : `[${inside.length}]`)));
  const list = /** @type {HTMLOListElement} */ (element(is ? "dl" : "ol", ""));
  if (!is) list.start = 0;
  made.addEventListener("toggle", () => made.append(...paged(list, inside, (one) => {
    if (!is) return element("li", "", tree(one, depth + 1));
    const pair = document.createDocumentFragment();
    pair.append(element("dt", "", one[0]), element("dd", "", tree(one[1], depth + 1)));
    return pair;
  })), { once: true });
  made.open = depth < 3;
  return made;
}
/** @param {[string, any][]} pairs */
const facts = (pairs) => element("dl", "facts", ...pairs.filter(([, it]) => it !== null && it !== undefined && it !== "").map(([name, it]) =>
  element("div", "", element("dt", "", name), element("dd", "", it instanceof Node ? it : brief(it)))));
/** @param {string} title @param {any} value */
const titled = (title, value) => (value === null || value === undefined ? null : element("div", "", element("h3", "", title), tree(value)));
/** @param {string} name one of ours */
const state = (name) => element("span", `state ${name}`, name);

// -- the rows

/** A call and what followed are one row.
 * @param {Stream[]} streams */
async function rowsOf(streams) {
  /** @type {Map<any, Row>} */
  const calls = new Map();
  /** @type {Row[]} */
  const found = [];
  let n = 0;
  for (const event of streams.flatMap((one) => one.events)) {
    if (++n % 2000 === 0) await new Promise((done) => setTimeout(done));
    const it = read(event), { type, at } = event;
    const known = calls.get(it.call);
    if (known && !(type in STATES)) {
      goesOn(known, event, it);
      continue;
    }
    /** @type {Row} */
    const row = { id: `${event.part}.${event.seq}`, call: null, title: type, text: it, outcome: STATES[type] ?? "log", notes: [], began: at, ended: at, events: [event] };
    found.push(row);
    if (!event.payload) row.text = "erased";
    else if (type in STATES) row.text = it.agent ?? it.reason ?? (it.kind ? `${brief(it.kind)}: ${brief(it.message)}` : "");
    else if (type === "LogWritten") [row.title, row.text] = [brief(it.level), it.text];
    else if (typeof it.call === "number") {
      Object.assign(row, { call: it.call, title: brief(it.name) || "made earlier", text: it.params, outcome: "open", ended: null, events: [] });
      calls.set(it.call, row);
      goesOn(row, event, it);
    }
  }
  return found;
}
/** @param {Row} row @param {Sealed} event @param {Record<string, any>} it */
function goesOn(row, event, it) {
  row.events.push(event);
  const { type } = event;
  if (type in ENDS) {
    row.ended = event.at;
    row.outcome = it.is_error ? "tool_error" : ENDS[type];
    if (type === "ToolDenied") row.notes.push(it.rule ? `by ${brief(it.rule)}` : brief(it.code));
  } else if (type === "ApprovalRequested") row.outcome = "waits";
  else if (type === "ToolInvoked") row.outcome = "open";
  else if (type === "ToolRetried") row.notes.push(`attempt ${brief(it.attempt)}: ${brief(it.reason)}`);
  else if (type === "ApprovalDecided" || type === "CallResolved") row.notes.push(`${brief(it.verdict)} by ${brief(it.actor?.id)}`);
}

// -- what is shown beside them

/** @param {Verdict} found @param {Row} row */
function chosen(found, row) {
  const last = /** @param {string} type */ (type) => row.events.filter((one) => one.type === type).map(read).at(-1);
  const called = last("ToolInvoked") ?? last("ApprovalRequested"), done = last("ToolCompleted");
  const end = done ?? last("ToolDenied") ?? last("ToolFailed");
  return [
    element("h2", "", row.call === null ? row.title : `Call ${row.call}: ${row.title}`),
    element("p", "row", row.outcome === "log" ? null : state(row.outcome), row.notes.join(", ")),
    called ? facts([["Rule", end?.rule ?? called.rule], ["Effect", called.effect], ["Code", done ? null : end?.code], ["Took", took(row.ended && row.ended - row.began)]]) : null,
    called ? titled("Parameters", called.params) : row.text ? titled("Content", row.text) : null,
    end ? titled(done ? "Answer" : "Why", end.message || null) : null,
    done ? titled("Data", done.data) : null,
    ...(Array.isArray(done?.blobs) ? done.blobs : []).map((one) => image(found.blobs.get(one?.sha256))),
    element("h3", "", "Its place in the log"),
    element("ol", "events", ...row.events.map((event) => element("li", "", element("b", "", `${event.seq} ${event.type}`), ` ${when(event.at)}`,
      facts([["Hash", event.hash], ["Trace", event.trace]]), event.payload ? tree(read(event), 2) : "erased"))),
  ];
}
/** @param {Uint8Array | undefined} data */
function image(data) {
  const start = String.fromCharCode(...(data?.subarray(0, 16) ?? []));
  const type = IMAGES.find(([, begins]) => begins.test(start))?.[0];
  if (!data || !type) return null;
  const made = /** @type {HTMLImageElement} */ (element("img", "blob"));
  made.src = URL.createObjectURL(new Blob([joined(data)], { type }));
  made.alt = "An image of the answer";
  made.onload = () => URL.revokeObjectURL(made.src);
  return made;
}
/** @param {Verdict} found @param {Record<string, any>} started @param {Record<string, any>} ended */
function whole(found, started, ended) {
  const source = found.blobs.get(started.program?.sha256);
  const lines = source ? new TextDecoder().decode(source).split("\n") : [];
  return [
    element("h2", "", "The run"),
    titled("Output", ended.output),
    titled("Why it ended", ended.message ?? ended.reason),
    ...found.streams.map(({ stream, erased }) => erased && titled(`The payloads of ${stream} were erased`, read(erased))),
    titled("Input", started.input),
    titled("Variables", started.context),
    titled("Grants", started.grants),
    source ? element("details", "source", element("summary", "", `Program ${brief(started.program.name)}`),
      ...paged(element("ol", ""), lines, (line) => element("li", "", element("code", "", line)))) : null,
    element("p", "", "Choose a row to see what was called, what came back, and which rule decided."),
  ];
}

/** Show a run that is not broken.
 * @param {Verdict} found @param {() => boolean} isOld */
async function show(found, isOld) {
  const rows = await rowsOf(found.streams);
  if (isOld()) return;
  const own = found.streams[found.streams.length - 1].events;
  const started = read(own.find((one) => one.type === "RunStarted") ?? own[0]), ended = own[own.length - 1];
  title(brief(started.agent) || "A run", found.run);
  const beside = element("section", "beside");
  const known = new Map(rows.map((row) => [row.id, row]));
  const choose = () => {
    const row = known.get(location.hash.slice(1));
    beside.replaceChildren(...(row ? chosen(found, row) : whole(found, started, read(ended))).filter((one) => one !== null));
    for (const one of document.querySelectorAll(".timeline li")) one.toggleAttribute("aria-current", one.id === `row${location.hash.slice(1)}`);
  };
  const list = paged(element("ol", "timeline"), rows, (row) => {
    const link = /** @type {HTMLAnchorElement} */ (element("a", "", element("span", "mark"), element("span", "name", row.title), " ",
      element("small", "what", brief(row.text)), " ", element("small", "out", [row.outcome, ...row.notes].join(", "))));
    link.href = `#${row.id}`;
    const item = element("li", row.outcome, link, element("small", "took", row.call === null ? when(row.began).slice(11, 19) : took(row.ended && row.ended - row.began)));
    item.id = `row${row.id}`;
    return item;
  });
  by("main").replaceChildren(
    facts([["State", state(STATES[ended.type] ?? "open")], ["Started", when(own[0].at)], ["Calls", rows.filter((row) => row.call !== null).length],
      ["Events", own.length], ["Started by", started.actor?.id], ["Module", started.module_sha256]]),
    element("div", "split", element("section", "", element("h2", "", "Timeline"), ...list), beside),
  );
  onhashchange = choose;
  choose();
}

// -- executing it again

/** @type {Worker | undefined} */
let worker;

/** @param {string} text @param {Node[]} more */
function tell(text, ...more) {
  by("again").replaceChildren(visible(text), ...more);
}
function stop() {
  worker?.terminate();
  worker = undefined;
  by("stop").hidden = true;
}
/** @type {{ createScriptURL: (url: string) => any }} */
const policy = /** @type {any} */ (globalThis).trustedTypes?.createPolicy("worker", { createScriptURL: (/** @type {string} */ url) => url })
  ?? { createScriptURL: (url) => url };

/** Have a worker execute the run with the recorded answers.
 * @param {Verdict} found */
function execute(found) {
  const source = by("executor").textContent ?? "";
  worker = new Worker(policy.createScriptURL(URL.createObjectURL(new Blob([source], { type: "text/javascript" }))));
  by("stop").hidden = false;
  tell("Executing it again ...");
  worker.onerror = () => (stop(), tell("It could not be executed here."));
  worker.onmessage = ({ data }) => {
    if (data.type === "progress") return tell(`Executing it again: ${counted(data.calls, "call")} ...`);
    stop();
    const same = data.verdict === "identical";
    const said = same ? `Executed again in this browser: identical, ${counted(data.calls, "call")}.`
      : data.verdict === "ended" ? `Executed again in this browser as far as it is recorded: identical, ${counted(data.calls, "call")}: ${data.why}`
      : data.verdict === "diverged" ? `Executed again in this browser: diverged${data.at === null ? "" : ` at call ${data.at}`}: ${data.why}`
      : `Not executed again: ${data.why}`;
    tell(said, ...(data.verdict === "diverged" ? [titled("Recorded", data.recorded), titled("Now", data.now)].filter((one) => one !== null) : []));
  };
  const events = found.streams.flatMap(({ stream, events }) => events.map((one) => ({
    seq: one.seq, stream, type: one.type, schema_version: Number(one.version), recorded_at: one.at, payload: one.payload && read(one),
  })));
  worker.postMessage({ type: "execute", events, blobs: found.blobs, run: found.run });
}

// -- the page

let turn = 0;

/** The bundle, as it was exported: page.py says why it is written like this. */
const bundle = () => (by("bundle").textContent ?? "").replaceAll("¬", "<");

/** @param {string} agent @param {string} run */
function title(agent, run) {
  document.title = visible(`${agent} ${run}`);
  by("title").replaceChildren(visible(agent), " ", element("small", "", run));
}
/** @param {string} name @param {string} text */
function judge(name, text) {
  by("verdict").className = `told ${name}`;
  by("verdict").replaceChildren(visible(text));
}

async function begin() {
  const mine = ++turn, isOld = () => mine !== turn;
  stop();
  tell("");
  const words = /** @type {HTMLInputElement} */ (by("keys")).value.split(/[\s,]+/).filter(Boolean);
  if (words.some((one) => !/^[0-9a-fA-F]{64}$/.test(one))) return judge("bad", "A public key has 64 hexadecimal digits. To fix: ask for the output of: caxton audit key");
  const bar = /** @type {HTMLProgressElement} */ (by("progress"));
  bar.hidden = false;
  judge("", "Verifying ...");
  let found;
  try {
    found = await verify(bundle(), words.map((one) => unhex(one.toLowerCase())), (done, total) => (bar.value = done / total));
  } catch {
    return judge("bad", "This browser cannot check Ed25519 signatures. To fix: use a newer one, or save the bundle and verify it elsewhere.");
  } finally {
    if (!isOld()) bar.hidden = true;
  }
  if (isOld()) return;
  by("main").replaceChildren();
  title("A recorded run", "");
  const { stream, seq, line } = found.where;
  const where = stream ? `event ${seq} of ${stream}` : `line ${line}`;
  if (found.verdict === "broken")
    return judge("bad", `Broken: ${where}: ${found.why}. Nothing of it is shown. To fix: ask its sender for the file again.`);
  const events = found.streams.reduce((sum, one) => sum + one.events.length, 0);
  const erased = found.gone ? ` ${counted(found.gone, "payload")} were erased; an event of the log says so.` : "";
  if (found.verdict === "intact")
    judge("ok", `Whole, signed by the key that you named: ${counted(events, "event")}, of a log of ${found.size} when it was signed.${erased}`);
  else {
    const mark = hex(await sha(unhex(found.key))).slice(0, 32);
    judge("warn", `Whole, but signed by a key that you have not named, with the fingerprint ${mark}: anyone may have made it.${erased} To fix: ask the operator of the host for the public key, and enter it.`);
  }
  await show(found, isOld);
  if (!isOld() && found.verdict === "intact") execute(found);
}

by("name").onsubmit = (event) => {
  event.preventDefault();
  begin();
};
by("stop").onclick = () => (stop(), tell("Execution stopped."));
by("save").onclick = () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bundle()], { type: "application/octet-stream" }));
  link.download = "run.caxton";
  link.click();
};
begin();
