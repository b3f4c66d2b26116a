// Does what its input asks for, and outputs what came of it.
import * as caxton from "caxton";
import { AgentError, context, input, log, mcpCall, mcpCallMany, output, tools } from "caxton";

const built = { date: new Date(0).getTime(), early: attempt(() => Date.now()) };
const half = "\ud800";

function attempt(action) {
  try {
    return action();
  } catch (error) {
    return String(error);
  }
}

function caught(action) {
  try {
    return action();
  } catch (error) {
    const kinds = ["ToolError", "Denied", "Failed", "BadRequest"];
    return {
      kinds: kinds.filter((kind) => error instanceof caxton[kind]),
      agent: error instanceof AgentError,
      said: String(error),
      ...error,
    };
  }
}

const kind = (value) => `${typeof value} ${value}`;

const actions = {
  call: ({ name, params }) => caught(() => mcpCall(name, params)),
  without: () => mcpCall("weather"),
  many: ({ calls }) =>
    mcpCallMany(calls).map((one) => [one instanceof AgentError, one.status, one.message]),
  generator: () =>
    mcpCallMany((function* () {
      yield ["one"];
      yield ["two", { a: 1 }];
    })()).length,
  tooMany: () => caught(() => mcpCallMany([])),
  numbers: () => mcpCall("numbers", {
    small: -7,
    half: 0.5,
    whole: 2 ** 60,
    huge: 1e300,
    big: 18446744073709551615n,
    low: -9223372036854775808n,
    gone: undefined,
  }).data.map(kind),
  noNumber: () => [NaN, Infinity].map((value) => attempt(() => mcpCall("a", { deep: [{ value }] }))),
  circle: () => {
    const params = {};
    params.params = params;
    return attempt(() => mcpCall("a", params));
  },
  halves: () => {
    log.info(`a${half}b`);
    console.log(half);
    const { status } = caught(() => mcpCall(half, { [half]: half }));
    return [status, context(half) ?? null];
  },
  tools: () => tools(),
  context: () => ["user", "list", "none"].map((key) => context(key) ?? "undefined"),
  continued: () => [caxton.conversation(), caxton.image(new Uint8Array([104, 105]))],
  built: () => built,
  time: () => [
    caxton.now(),
    Date.now(),
    new Date().toISOString(),
    Date(),
    new Date(2020, 0, 1, 12).toString(),
    new Date() instanceof Date,
    new Date().constructor === Date,
    new (class extends Date {})().getTime(),
    performance.now(),
    performance.now(),
    performance.timeOrigin,
  ],
  chance: () => [
    caxton.random(),
    Math.random(),
    [...caxton.randomBytes(6)],
    [...crypto.getRandomValues(new Uint16Array(3))],
    crypto.randomUUID(),
  ],
  fair: () => {
    const drawn = Array.from({ length: 200 }, () => Math.random());
    return drawn.every((one) => one >= 0 && one < 1) && new Set(drawn).size;
  },
  console: () => {
    console.debug("a", 1, 2n, null, undefined, true);
    console.log({ a: [1, 2n] }, [half.length]);
    console.info(new TypeError("wrong"));
    const circle = {};
    circle.circle = circle;
    console.warn(circle, Symbol("s"), () => 1);
    console.error();
  },
  levels: () => ["debug", "info", "warning", "error"].forEach((level) => log[level](level)),
  outputs: () => [1, "text", undefined].map((value) => output(value)).length,
  order: () => ({ z: 1, a: 2, 10: 3, "": 4 }),
  exits: () => attempt(() => fetch("")),
  throwError: () => null.location,
  throwDenied: () => mcpCall("denied"),
  throwText: () => {
    throw `text ${half}`;
  },
  promise: async () => 1,
  never: () => new Promise(() => {}),
  throwNothing: () => {
    throw undefined;
  },
};

export function run() {
  const asked = input();
  return actions[asked.action](asked);
}
