/*
 * runtime.js: runs a program, or the agent that was built in; glue.c calls it.
 */
import * as host from "caxton:host";
import { step } from "caxton:events";
import * as modules from "caxton:modules";
import * as caxton from "caxton";

const MOST_FRAMES = 10;
const MOST_TEXT = 4000;
const FRAME = /^ *at (?:(.*) \()?((?!native)[^()]+?):(\d+):(\d+)\)?$/;
const OURS = /^caxton(:.*)?$/;

export const { resolve, load } = modules;

let agent;
let erase;
/** The program's text and name, for errors. */
let shown = { text: "", name: "" };
/** The error of the eraser, and its place in the program. */
let misspelt;

// ---- What was begun ---------------------------------------------------------------

let ended = false;
let failure;
const unhandled = new Map();

export function rejected(promise, reason, handled) {
  if (handled) unhandled.delete(promise);
  else unhandled.set(promise, reason);
}

function begin(action) {
  ended = false;
  action().then(
    () => (ended = true),
    (reason) => (failure = { reason }),
  );
}

/** Continue: 1 if there is more to do, 0 at the end, -1 after a failure. */
export function turn() {
  try {
    if (failure) throw failure.reason;
    for (const reason of unhandled.values()) throw reason;
    if (step()) return 1;
    if (ended) return 0;
    throw new Error("what the program awaits never settles: no call and no timer is left");
  } catch (error) {
    report(error);
    return -1;
  }
}

// ---- Errors ------------------------------------------------------------------------

function frames(error) {
  const found = [];
  for (const line of String(error?.stack ?? "").split("\n")) {
    const [, name, file, row, column] = line.match(FRAME) ?? [];
    if (!file || OURS.test(file)) continue;
    found.push({ name, file, row: +row, column: +column });
    if (found.length === MOST_FRAMES) break;
  }
  return found;
}

const place = ({ file, row, column }) => `${file}:${row}:${column}`;

/** The line of an import of that module. */
function importOf({ wanted, base }) {
  const row = shown.text.split("\n").findIndex((line) => /["']/.test(line) && line.includes(wanted));
  const column = row < 0 ? 0 : shown.text.split("\n")[row].indexOf(wanted);
  return row < 0 || base !== shown.name ? [] : [{ file: base, row: row + 1, column: column + 1 }];
}

function excerpt({ file, row, column }) {
  const line = file === shown.name ? shown.text.split("\n")[row - 1] : undefined;
  if (line === undefined || line.length > 200) return [];
  const before = column - 1 + line.slice(column - 1).search(/\S|$/);
  return [`  ${line}`, `  ${line.slice(0, before).replace(/[^\t]/g, " ")}^`];
}

function described(error) {
  try {
    return String(error);
  } catch {
    return "an error that cannot be shown";
  }
}

function placesOf(error) {
  if (error instanceof modules.MissingModule) return importOf(error);
  return misspelt && error === misspelt.error ? [misspelt.place] : frames(error);
}

function report(error) {
  const places = placesOf(error);
  const lines = places
    .map((one) => (one.name ? `at ${one.name} (${place(one)})` : `at ${place(one)}`))
    .filter((line, i, all) => line !== all[i - 1]);
  const [first] = places;
  const told = first
    ? [`${described(error)} (${place(first)})`, ...excerpt(first)]
    : [described(error)];
  if (lines.length > 1) told.push(...lines.map((line) => `  ${line}`));
  host.fail(told.join("\n").slice(0, MOST_TEXT).toWellFormed());
  if (host.isRunning()) for (const line of lines) host.log(3, line);
}

// ---- A run ---------------------------------------------------------------------------

async function finish({ run, default: main }) {
  const entry = typeof run === "function" ? run : main;
  if (typeof entry !== "function") return;
  const result = await entry();
  if (result !== undefined) caxton.output(result);
}

function plain({ language, name, source }) {
  if (language === "javascript") return source;
  if (language !== "typescript")
    throw new TypeError(`this runtime runs javascript, not ${language}`);
  if (!erase)
    throw new TypeError(
      "this runtime was built without TypeScript; build it with: " +
        "caxton runtime install javascript --typescript",
    );
  try {
    return erase(source);
  } catch (error) {
    const { line, column } = error.loc ?? {};
    if (!line) throw error;
    const said = new SyntaxError(error.message.replace(/ \(\d+:\d+\)$/, ""));
    misspelt = { error: said, place: { file: name, row: line, column } };
    throw said;
  }
}

async function execute(program) {
  shown = { text: program.source, name: program.name };
  const [evaluated, exports] = host.evaluate(plain(program), program.name);
  await evaluated;
  await finish(exports);
}

export function start() {
  begin(async () => {
    if (agent) return finish(agent);
    const program = host.program();
    if (!program) throw new TypeError("a runtime needs a program");
    return execute(program);
  });
}

// ---- A build -------------------------------------------------------------------------

const KEEP = {
  agent(exports) {
    if (typeof exports.run !== "function" && typeof exports.default !== "function")
      throw new Error("the file has no `export function run()`");
    agent = exports;
  },
  eraser(exports) {
    ({ erase } = exports);
  },
};

/** Load modules into the memory that will be kept. */
export function prepare({ files, entry, role }) {
  begin(async () => {
    modules.setFiles(files);
    shown = { text: files[entry], name: entry };
    const [evaluated, exports] = host.evaluate(files[entry], entry);
    await evaluated;
    KEEP[role](exports);
    modules.setFiles({});
    shown = { text: "", name: "" };
  });
}
