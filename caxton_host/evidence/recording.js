// A recording: what the log of a run says of its calls, its lines and its end.
// @ts-check

/**
 * @typedef {{ seq: number, stream: string, type: string, schema_version: number, recorded_at: number, payload: any }} RunEvent
 *   `payload` as `unpack` gives it; null if it was erased.
 * @typedef {{ verdict: "identical" | "ended" | "diverged" | "cannot", why: string, at?: number | null, recorded?: string | null, now?: string | null }} Found
 * @typedef {{ kind: "returned" | "trap" | "limit", code?: number, limit?: string, message: string, byEngine?: boolean }} End
 * @typedef {{ name: string, digest: string, params: any, body: Uint8Array, isClosed: boolean, status: number, at: number, limit: string, cut: boolean }} Entry
 */

/** Ends a guest: with how it ended, or with what was found. */
class Stop extends Error {
  /** @param {End | Found} reason */
  constructor(reason) {
    super();
    this.reason = reason;
  }
}
/** @param {string} why @returns {never} */
function cannot(why) {
  throw new Stop({ verdict: "cannot", why });
}
/** @param {string} why @param {number | null} at @returns {never} */
function ended(why, at) {
  throw new Stop({ verdict: "ended", why, at });
}
/** @param {string} why @param {number | null} at @param {any} recorded @param {any} now @returns {never} */
function diverged(why, at, recorded, now) {
  throw new Stop({ verdict: "diverged", why, at, recorded: recorded ?? null, now: now ?? null });
}

const ENDS = ["RunCompleted", "RunFailed", "RunCancelled"];
const STATES = [...ENDS, "RunStarted", "RunResumed", "RunSuspended"];
const OUTCOMES = ["ToolCompleted", "ToolFailed", "ToolDenied"];
/** Ends that every engine reaches in the same place, and ends that only the recorded one does. */
const COUNTED = /^(host_calls|total_calls|recorded|result|output)/, BY_ENGINE = /^(fuel|memory|stack)/;
const MOST_ANCESTORS = 100;

/** The events that a run goes by: its own, and before them those it inherited by forks.
 * @param {RunEvent[]} events @param {string} run */
function historyOf(events, run) {
  /** @type {{ stream: string, own: RunEvent[], started: any }[]} */
  const chain = [];
  for (let id = run; ; id = chain[0].started.forked_from.run) {
    const stream = `run/${id}`;
    const own = events.filter((one) => one.stream === stream && one.type !== "RunQueued");
    if (own[0]?.type !== "RunStarted") cannot("the run has not started, or its start is not here");
    if (own.some((one) => one.payload === null)) cannot("the run was erased");
    if (chain.length > MOST_ANCESTORS || chain.some((one) => one.stream === stream)) cannot("the run has no end of ancestors");
    chain.unshift({ stream, own, started: own[0].payload });
    if (!chain[0].started.forked_from) break;
  }
  let history = chain[0].own;
  const inherited = chain.slice(1).map((heir, place) => {
    const parent = chain[place], most = heir.started.forked_from.seq;
    const kept = history.filter((one) => one.stream !== parent.stream || one.seq <= most);
    const last = kept.reduce((found, one, i) => (one.type === "ToolInvoked" || OUTCOMES.includes(one.type) ? i : found), 0);
    history = kept.filter((one, i) => i <= last || one.type !== "LogWritten");
    const shown = history.filter((one) => one.stream === parent.stream);
    const calls = history.filter((one) => one.type === "ToolInvoked").length;
    history = [...history, ...heir.own];
    return { events: shown, started: parent.started, calls };
  });
  return { history, inherited, own: chain[chain.length - 1].own, started: chain[chain.length - 1].started };
}

/** What the guest got for the event that settled its call.
 * @param {string} type @param {any} payload @returns {[number, any]} */
function replyOf(type, payload) {
  const { message, code } = payload, is = (/** @type {string} */ status) => ({ status, message, data: null });
  if (type === "ToolFailed") {
    const error = { code: payload.kind, message, ...(code === null || code === undefined ? {} : { server_code: code }) };
    return [3, { ...is("failed"), error }];
  }
  if (type === "ToolDenied") {
    const bad = code === "bad_request";
    return [bad ? 4 : 2, { ...is(bad ? "bad_request" : "denied"), error: { code, message } }];
  }
  if (!payload.is_error) return [0, { ...is("ok"), data: payload.data }];
  return [1, { ...is("tool_error"), data: payload.data, error: { code: "tool_error", message } }];
}

/** What the log says of calls and lines, by their numbers. */
class Recording {
  /** @param {RunEvent[]} events @param {string} run */
  constructor(events, run) {
    const { history, inherited, own, started } = historyOf(events, run);
    this.started = started;
    this.startedAt = history[0].recorded_at;
    /** @type {Map<number, Entry>} */
    this.calls = new Map();
    /** @type {Map<number, Entry>} Calls that people were asked about. */
    this.asked = new Map();
    /** @type {Map<number, any>} */
    this.lines = new Map();
    this.logged = this.reached = 0;
    /** @type {Map<number, Uint8Array>} Seeds, by the number of calls after which they hold. */
    this.seeds = new Map([[0, ofHex(inherited[0]?.started.seed ?? started.seed)]]);
    inherited.forEach((one, place) => {
      const same = jsonOf([one.started.module_sha256, one.started.program ?? null]) === jsonOf([started.module_sha256, started.program ?? null]);
      for (const event of one.events) if (event.type !== "ApprovalRequested" && (same || event.type !== "LogWritten")) this.apply(event);
      this.seeds.set(one.calls, ofHex((inherited[place + 1]?.started ?? started).seed));
    });
    own.forEach((event) => this.apply(event));
    const last = own.filter((one) => STATES.includes(one.type)).at(-1);
    this.end = last && ENDS.includes(last.type) ? last : null;
  }

  /** @param {RunEvent} event */
  apply({ type, payload, recorded_at }) {
    if (type === "LogWritten") {
      this.lines.set((this.logged = payload.n), payload);
    } else if (type === "ToolInvoked" || type === "ApprovalRequested") {
      const entry = { name: payload.name, digest: payload.params_sha256, params: payload.params, body: new Uint8Array(), isClosed: false, status: 0, at: 0, limit: "", cut: false };
      this.reached = Math.max(this.reached, payload.call);
      (type === "ToolInvoked" ? this.calls : this.asked).set(payload.call, entry);
    } else if (OUTCOMES.includes(type)) {
      const entry = this.calls.get(payload.call) ?? cannot(`call ${payload.call} has an event before its intent`);
      const [status, body] = replyOf(type, payload);
      const limit = type === "ToolDenied" && payload.code === "limit" ? `${String(payload.rule).replace(/^limits\./, "")}: ${payload.message}` : "";
      Object.assign(entry, { isClosed: true, status, body: pack(body), at: recorded_at, limit, cut: payload.cut === true });
    }
  }

  /** Whether the run ended where a program does not end by itself, in any engine. */
  get isOpen() {
    if (!this.end || this.end.type === "RunCancelled") return true;
    if (this.end.type === "RunCompleted") return false;
    const { kind, message } = this.end.payload;
    if ((kind === "limit" || kind === "trap") && BY_ENGINE.test(message)) return true;
    return kind === "limit" ? !COUNTED.test(message) : kind !== "trap" && kind !== "agent_error";
  }
}

/** Whether a text may have been recorded as *redacted*, which may be cut in its last line.
 * @param {string} redacted @param {string} plain @param {boolean} cut */
function sameButMasked(redacted, plain, cut) {
  const mask = "[redacted]", [first, ...others] = redacted.split(mask), last = others.pop();
  if (cut) {
    const half = [...mask].map((_, n) => mask.slice(0, mask.length - n)).find((one) => redacted.endsWith(one)) ?? "";
    return plain.startsWith(last === undefined ? first.slice(0, first.length - half.length) : first);
  }
  if (last === undefined) return plain === redacted;
  let at = first.length;
  const end = plain.length - last.length;
  if (at > end || !plain.startsWith(first) || !plain.endsWith(last)) return false;
  for (const part of others) {
    const found = plain.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}
