/*
 * tools.js: the granted tools as functions, with names and arguments from their schemas.
 */
import * as host from "caxton:host";
import { call } from "caxton:events";

const EXPOSED = /^mcp__(.+?)__(.+)$/;
const MOST_FOUND = 10;
const NAMES_SHOWN = 20;

// ---- Names -----------------------------------------------------------------------

const letters = (part) => part.replace(/[^A-Za-z0-9_]/g, "_").replace(/^(?=\d)/, "_");
const camel = (part) =>
  letters(part).replace(/(?<=[^_])_+([A-Za-z0-9])/g, (_, next) => next.toUpperCase());

/** How many letters have to change to make one name the other. */
function distance(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, i) => i);
  for (let i = 0; i < one.length; i++) {
    const next = [i + 1];
    for (let j = 0; j < other.length; j++)
      next.push(Math.min(row[j + 1] + 1, next[j] + 1, row[j] + (one[i] !== other[j])));
    row = next;
  }
  return row.at(-1);
}

function nearest(name, names) {
  const bare = (text) => text.toLowerCase().replace(/[^a-z0-9.]/g, "").slice(0, 64);
  const [best] = names
    .map((known) => [distance(bare(name), bare(known)), known])
    .sort(([one], [other]) => one - other);
  return best && best[0] <= Math.max(2, name.length / 3) ? best[1] : undefined;
}

function unknown(what, name, names) {
  const meant = nearest(name, names);
  const known = names.length
    ? `there are ${names.slice(0, NAMES_SHOWN).join(", ")}${names.length > NAMES_SHOWN ? ", ..." : ""}`
    : "there are none";
  return new TypeError(`${what}; ${meant ? `did you mean ${meant}?` : known}`);
}

// ---- One tool --------------------------------------------------------------------

function check(path, schema, given) {
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw new TypeError(`${path} takes one object with its arguments`);
  const { properties, required, additionalProperties, patternProperties } = schema ?? {};
  const names = Object.keys(properties ?? {});
  const open = !properties || additionalProperties || patternProperties;
  for (const name of Object.keys(given)) {
    if (!open && !names.includes(name))
      throw unknown(`${path} has no argument "${name}"`, name, names);
  }
  for (const name of Array.isArray(required) ? required : []) {
    if (given[name] === undefined)
      throw new TypeError(`${path} needs the argument "${name}"`);
  }
}

function valueOf({ data, message }) {
  const structured = data?.structuredContent;
  if (structured === undefined || structured === null) return message;
  const keys = Object.keys(structured);
  return keys.length === 1 && keys[0] === "result" ? structured.result : structured;
}

function typed(path, tool, settle) {
  const use = async (given = {}) => {
    const at = new Error().stack;
    check(path, tool.input_schema, given);
    return valueOf(settle(await call(tool.name, given), at));
  };
  return Object.defineProperty(use, "name", { value: path });
}

// ---- All of them -----------------------------------------------------------------

const under = (owner, name) => (owner ? `${owner}.${name}` : name);

function placed(list, settle) {
  const root = new Map();
  const taken = new Map();
  for (const tool of list) {
    const [, server, short] = tool.name.match(EXPOSED) ?? [null, "", tool.name];
    const path = under(server && camel(server), camel(short));
    taken.set(path, taken.has(path) ? null : tool);
  }
  for (const [path, tool] of taken) {
    if (!tool) continue;
    const [owner, name] = path.includes(".") ? path.split(".") : ["", path];
    if (owner && !(root.get(owner) instanceof Map)) root.set(owner, new Map());
    (owner ? root.get(owner) : root).set(name, typed(path, tool, settle));
  }
  for (const tool of list)
    if (!root.has(tool.name)) root.set(tool.name, typed(tool.name, tool, settle));
  return { root, taken };
}

function open(entries, owner, all, base) {
  return new Proxy(base, {
    get(target, name) {
      if (Object.hasOwn(target, name) && owner === "" && name === "search") return target[name];
      const found = entries().get(name);
      if (found instanceof Map) return open(() => found, name, all, {});
      if (found) return found;
      if (typeof name === "symbol" || name in target || name === "then" || name === "toJSON")
        return target[name];
      const path = under(owner, name);
      throw unknown(`there is no tool ${path}`, path, all());
    },
    has: (target, name) => entries().has(name) || name in target,
  });
}

function found(taken, query) {
  const words = String(query).toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const scored = [];
  for (const [path, tool] of taken) {
    if (!tool) continue;
    const name = `${path} ${tool.name}`.toLowerCase();
    const said = String(tool.description).toLowerCase();
    let score = 0;
    for (const word of words) score += 3 * name.includes(word) + said.includes(word);
    if (score) scored.push({ score, path, tool });
  }
  scored.sort((one, other) => other.score - one.score || (one.path < other.path ? -1 : 1));
  return scored.slice(0, MOST_FOUND).map(({ path, tool }) => ({
    call: `tools.${path}`,
    name: tool.name,
    description: tool.description,
    input_schema: tool.input_schema,
  }));
}

/** The object `tools`. *settle* returns the reply, or throws its error. */
export function typedTools(settle) {
  let known;
  const ready = () => (known ??= placed(host.tools(), settle));
  const list = () => host.tools();
  list.search = (query) => found(ready().taken, query);
  const all = () => [...ready().taken].filter(([, tool]) => tool).map(([path]) => path);
  return open(() => ready().root, "", all, list);
}
