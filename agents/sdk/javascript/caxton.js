/*
 * caxton.js: write an agent or a program for caxton_host in JavaScript.
 *
 *     import { tools } from "caxton";
 *
 *     export async function run() {
 *       const { celsius } = await tools.weather.lookup({ location: "Seattle" });
 *       return { celsius };
 *     }
 *
 * caxton.d.ts documents each function. Values that differ between runs (the time,
 * random numbers) come from the host, so that a replay returns the same.
 */
import * as events from "caxton:events";
import * as host from "caxton:host";
import { typedTools } from "caxton:tools";

// A lone surrogate cannot be passed to the host as a name or a line.
const text = (value) => String(value).toWellFormed();

// ---- Calls -------------------------------------------------------------------

export class AgentError extends Error {
  constructor(reply) {
    super(reply.message);
    this.status = reply.status;
    this.code = reply.error.code;
    this.data = reply.data;
  }

  get name() {
    return this.constructor.name;
  }
}

export class ToolError extends AgentError {}
export class Denied extends AgentError {}
export class Failed extends AgentError {}
export class BadRequest extends AgentError {}

const ERRORS = {
  tool_error: ToolError,
  denied: Denied,
  failed: Failed,
  bad_request: BadRequest,
};

const answer = (reply) =>
  reply.status === "ok" ? reply : new ERRORS[reply.status](reply);

function settled(outcome) {
  if (outcome instanceof AgentError) throw outcome;
  return outcome;
}

let stale = true;

function answers(replies) {
  stale = true;
  return replies;
}

const pack = ([name, params = {}]) => host.pack([text(name), params]);

export function mcpCall(name, params) {
  return settled(answer(answers(host.mcpCall(pack([name, params])))));
}

export function mcpCallMany(calls) {
  const replies = answers(host.mcpCallMany(Array.from(calls, pack)));
  return Array.isArray(replies) ? replies.map(answer) : settled(answer(replies));
}

/** The outcome of a call that was awaited; its error points to where it was made. */
function settle(reply, made) {
  stale = true;
  const outcome = answer(reply);
  if (outcome instanceof AgentError) outcome.stack = made;
  return settled(outcome);
}

export const tools = typedTools(settle);

// ---- The run -----------------------------------------------------------------

export const { input, context, output } = host;

export const image = (bytes, mimeType = "image/png") => ({
  type: "image",
  data: btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join("")),
  mimeType,
});

export const { now } = events;

const line = (level) => (said) => host.log(level, text(said));

export const log = {
  debug: line(0),
  info: line(1),
  warning: line(2),
  error: line(3),
};

export function randomBytes(size) {
  return host.random(size);
}

// Numbers come from a generator (sfc32) that the host seeds again after each call: a
// program may need more of them than the host gives.
let state;

function seed() {
  const drawn = host.random(12);
  state = new Uint32Array([...new Uint32Array(drawn.buffer), 1]);
  stale = false;
  for (let i = 0; i < 12; i++) word();
}

function word() {
  const [a, b, c, count] = state;
  const made = (a + b + count) | 0;
  state[0] = b ^ (b >>> 9);
  state[1] = c + (c << 3);
  state[2] = ((c << 21) | (c >>> 11)) + made;
  state[3] = count + 1;
  return made >>> 0;
}

export function random() {
  if (stale) seed();
  return ((word() >>> 5) * 2 ** 26 + (word() >>> 6)) / 2 ** 53;
}

// ---- Replacements of globals --------------------------------------------------

function replace(name, value) {
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
}

Math.random = random;

Object.defineProperty(BigInt.prototype, "toJSON", {
  value() {
    return JSON.rawJSON(String(this));
  },
});

const milliseconds = () => Math.floor(now() / 1000);
const RealDate = Date;
RealDate.now = milliseconds;
replace("Date", new Proxy(RealDate, {
  apply: () => new RealDate(milliseconds()).toString(),
  construct: (target, values, made) =>
    Reflect.construct(target, values.length ? values : [milliseconds()], made),
}));
RealDate.prototype.constructor = Date;

let origin;
replace("performance", {
  get timeOrigin() {
    return (origin ??= now()) / 1000;
  },
  now() {
    const at = now();
    origin ??= at;
    return (at - origin) / 1000;
  },
});

const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");

replace("crypto", {
  getRandomValues(array) {
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(
      randomBytes(array.byteLength),
    );
    return array;
  },
  randomUUID() {
    const bytes = randomBytes(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    return hex(bytes).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  },
});

function shown(value) {
  if (typeof value !== "object" || value === null || value instanceof Error)
    return String(value);
  try {
    return JSON.stringify(value) ?? String(value);
  } catch (error) {
    return String(error);
  }
}

const printed = (level) => (...values) => log[level](values.map(shown).join(" "));

replace("console", {
  debug: printed("debug"),
  log: printed("info"),
  info: printed("info"),
  warn: printed("warning"),
  error: printed("error"),
});

const { setTimeout, setInterval, clearTimeout } = events;
const globals = {
  ...{ tools, input, output, context, log, now, random, mcpCall, mcpCallMany },
  ...{ setTimeout, setInterval, clearTimeout, clearInterval: clearTimeout },
  queueMicrotask: (action) => void Promise.resolve().then(() => void action()),
};
for (const [name, value] of Object.entries(globals)) replace(name, value);
