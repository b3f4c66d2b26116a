/*
 * caxton.js: write an agent for caxton_host in JavaScript.
 *
 *     import { mcpCall } from "caxton";
 *
 *     export function run() {
 *       const reply = mcpCall("weather", { location: "Seattle" });
 *       return { summary: reply.message };
 *     }
 *
 * caxton.d.ts documents each function. Values that differ between runs (the time,
 * random numbers) come from the host, so that a replay returns the same.
 *
 */
import * as host from "caxton:agent/host@1.0.0";

export { chat, converse } from "./chat.js";

// Top-level code runs once, during the build, without a host.
let running = false;

function ask(name, ...values) {
  if (running) return host[name](...values);
  throw new Error(`${name} is not available during the build: call it in run()`);
}

// A lone surrogate cannot be passed to the host; it would end the run.
const text = (value) => String(value).toWellFormed();

// ---- Values ------------------------------------------------------------------

const LONG = /\d{16}/;
const INTEGER = /^-?\d+$/;

function exact(_key, value, { source }) {
  const inexact = typeof value === "number" && !Number.isSafeInteger(value);
  return inexact && INTEGER.test(source) ? BigInt(source) : value;
}

// Use the slow reviver only if the text may hold a long number.
const read = (json) => JSON.parse(json, LONG.test(json) ? exact : undefined);

function finite(key, value) {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  if (!Number.isFinite(value))
    throw new TypeError(`${key || "the value"} is ${value}, which JSON does not have`);
  return Number.isInteger(value) ? JSON.rawJSON(value.toExponential()) : value;
}

const write = (value) => JSON.stringify(value, finite) ?? "null";

Object.defineProperty(BigInt.prototype, "toJSON", {
  value() {
    return JSON.rawJSON(String(this));
  },
});

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

export function mcpCall(name, params = {}) {
  return settled(answer(read(ask("mcpCall", text(name), write(params)))));
}

export function mcpCallMany(calls) {
  const batch = Array.from(calls, ([name, params = {}]) => [text(name), params]);
  const replies = read(ask("mcpCallMany", write(batch)));
  return Array.isArray(replies) ? replies.map(answer) : settled(answer(replies));
}

// ---- The run -----------------------------------------------------------------

export const tools = () => read(ask("tools"));

export const input = () => read(ask("input"));

export function context(key) {
  const value = ask("context", text(key));
  return typeof value === "string" ? read(value) : undefined;
}

export const output = (value) => ask("output", write(value));

export const now = () => Number(ask("now"));

const line = (level) => (said) => ask("log", level, text(said));

export const log = {
  debug: line("debug"),
  info: line("info"),
  warning: line("warning"),
  error: line("error"),
};

// A number holds the upper 53 of 64 random bits; the division rounds the rest.
function upper(bits) {
  const drawn = Math.floor(Number(ask("random")) / 2 ** (64 - bits));
  return Math.min(drawn, 2 ** bits - 1);
}

export const random = () => upper(53) / 2 ** 53;

export function randomBytes(size) {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; at += 4) {
    const drawn = upper(32);
    for (let i = 0; i < 4 && at + i < size; i++) bytes[at + i] = drawn >>> (8 * i);
  }
  return bytes;
}

// ---- Replacements of globals --------------------------------------------------

function replace(name, value) {
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
}

Math.random = random;

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

// ---- Entry point ---------------------------------------------------------------

const FRAME = /\(\/(.+?:\d+:\d+)\)/;

const MOST_FRAMES = 10;

/** The agent's frames of a stack, the innermost first. */
function frames(error) {
  const lines = String(error.stack).split("\n");
  return lines
    .map((line) => [line.trim().replace("(/", "("), line.match(FRAME)?.[1]])
    .filter(([, where]) => where && !where.startsWith("node_modules/caxton/"))
    .slice(0, MOST_FRAMES);
}

function told(error) {
  const stack = error instanceof Error ? frames(error) : [];
  for (const [line] of stack) log.error(line);
  return text(stack.length ? `${error} (${stack[0][1]})` : error);
}

/** Wraps the `run` that the author's file exports; the build exports the result. */
export function start(agent) {
  if (typeof agent.run !== "function")
    throw new Error("the file has no `export function run()`");
  return () => {
    running = true;
    try {
      const result = agent.run();
      if (typeof result?.then === "function")
        throw "run is asynchronous, which is not supported. Remove async and await.";
      if (result !== undefined) output(result);
    } catch (error) {
      throw told(error);
    }
  };
}
