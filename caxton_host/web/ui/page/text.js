// What the page shows as text, and how it reads what the host sends. Nothing here
// touches the page.

// A number that this browser would round: it is shown as it was sent.
class Exact {
  constructor(source) {
    this.source = source;
  }
  toJSON() {
    return JSON.rawJSON(this.source);
  }
}

// Read JSON without rounding its numbers.
export function parse(text) {
  return JSON.parse(text, (_key, value, context) =>
    typeof value === "number" && context?.source && String(value) !== context.source
      ? new Exact(context.source)
      : value,
  );
}

// Characters that cannot be seen, or change how others are seen.
const HIDDEN =
  /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu;

export function visible(text) {
  return String(text).replace(
    HIDDEN,
    (one) => `\\u{${one.codePointAt(0).toString(16).padStart(4, "0")}}`,
  );
}

// Lay out a value as JSON, with every character to be seen.
export function pretty(value, indent = "") {
  if (value instanceof Exact) return visible(value.source);
  if (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value))
    return `${value} (rounded by this browser)`;
  if (value === null || typeof value !== "object") return visible(JSON.stringify(value));
  const deeper = `${indent}  `;
  const list = Array.isArray(value);
  const parts = list
    ? value.map((one) => pretty(one, deeper))
    : Object.entries(value).map(
        ([key, one]) => `${visible(JSON.stringify(key))}: ${pretty(one, deeper)}`,
      );
  const [open, close] = list ? "[]" : "{}";
  if (!parts.length) return open + close;
  return `${open}\n${deeper}${parts.join(`,\n${deeper}`)}\n${indent}${close}`;
}

// Takes server-sent events apart, in whatever pieces they come.
export class EventParser {
  #rest = "";
  #data = [];
  #id = "";
  #type = "";

  push(piece) {
    const found = [];
    const text = this.#rest + piece;
    // A last return may be the first half of a line's end.
    const end = text.endsWith("\r") ? text.length - 1 : text.length;
    const lines = text.slice(0, end).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() + text.slice(end);
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length)
          found.push({ id: this.#id, type: this.#type, data: this.#data.join("\n") });
        this.#data = [];
        this.#type = "";
      } else if (!line.startsWith(":")) {
        this.#field(line);
      }
    }
    return found;
  }

  #field(line) {
    const [, name, value = ""] = line.match(/^([^:]*)(?:: ?(.*))?$/su);
    if (name === "data") this.#data.push(value);
    if (name === "id") this.#id = value;
    if (name === "event") this.#type = value;
  }
}

// What a suspended run waits for, as its events say.
export class Waits {
  #calls = new Map();
  #call = null;
  reason = null;

  // Take an event; return whether something else may be done with the run now.
  take({ type, seq, payload }) {
    if (type === "ToolInvoked" && payload) this.#calls.set(payload.call, { seq, ...payload });
    if (["ToolCompleted", "ToolFailed", "ToolDenied"].includes(type) && payload) this.#calls.delete(payload.call);
    const isSaid = ["CallResolved", "ApprovalDecided"].includes(type);
    if (!isSaid && !type.startsWith("Run")) return false;
    this.reason = isSaid ? "said" : type === "RunSuspended" ? (payload?.reason ?? null) : null;
    this.#call = payload?.call ?? null;
    return true;
  }

  // The call in doubt that a person has to say something about.
  get doubt() {
    return this.reason === "in_doubt" ? (this.#calls.get(this.#call) ?? null) : null;
  }

  // Whether to resume the run does anything.
  get resumes() {
    return ![null, "approval", "in_doubt", "child"].includes(this.reason);
  }
}

// Return the light of a server, and the word beside it.
export function light(server) {
  if (!server.host) return ["idle", "not started"];
  const was = server.live ? "" : "was ";
  if (server.state === "disabled") return ["bad", `${was}disabled`];
  if (server.breaker === "open") return ["warn", `${was}cut off: breaker open`];
  if (server.state === "failed") return ["bad", `${was}failed: ${server.problem}`];
  if (server.state === "lost") return ["bad", `${was}lost`];
  if (server.state === "connected") return [server.live ? "good" : "idle", `${was}up`];
  return ["idle", "not known"];
}

export function may(caller, scope) {
  return caller.scopes.includes(scope) || caller.scopes.includes("admin");
}

// Return whether somebody may cancel and resume a run.
export function owns(caller, run) {
  return (
    may(caller, "admin") ||
    (may(caller, "run") && ["kind", "id", "tenant"].every((key) => (run.actor[key] ?? null) === (caller[key] ?? null)))
  );
}

// Return whether somebody may decide on a call that waits.
export function decides(caller, approval) {
  if (!may(caller, "decide") || approval.seq === null || approval.expired) return false;
  return !approval.by.length || approval.by.some((role) => caller.roles.includes(role));
}

export function time(microseconds) {
  return new Date(microseconds / 1000).toISOString().replace("T", " ").slice(0, 19);
}

export function took(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "-";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function calls(counts) {
  const told = Object.entries(counts).filter(([, number]) => number);
  return told.map(([kind, number]) => `${number} ${kind.replaceAll("_", " ")}`).join(", ") || "none";
}

// Return what is wrong, in words, of an answer that is a problem.
export function words(status, problem) {
  const said = problem?.detail || `the host answers ${status}`;
  const told = status === 403 ? `Your token may not do that: ${said}` : said;
  return problem?.fix ? `${told}. To fix: ${problem.fix}` : told;
}

// Read lines like KEY=VALUE.
export function pairs(text, mark) {
  const found = {};
  for (const line of lines(text)) {
    const at = line.indexOf(mark);
    if (at < 1) throw new Error(`write each line like NAME${mark}VALUE`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}

export function lines(text) {
  return text.split("\n").map((line) => line.replace(/\r$/u, "")).filter((line) => line !== "");
}

// Return the body that asks for a server, of what was typed; what is empty is left out.
export function described(typed) {
  const body = {};
  if (typed.name) body.name = typed.name;
  if (typed.program) body.command = [typed.program, ...lines(typed.words)];
  else if (typed.words) throw new Error("arguments go with a program");
  if (typed.url) body.url = typed.url;
  if (typed.transport) body.transport = typed.transport;
  if (typed.env) body.env = pairs(typed.env, "=");
  if (typed.headers) body.headers = pairs(typed.headers, ":");
  return body;
}
