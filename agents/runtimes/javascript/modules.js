/*
 * modules.js: finds what a module imports, among the files that a build was given.
 */
const ENDINGS = ["", ".js", ".mjs", "/index.js"];
const CONDITIONS = ["import", "default"];

let files = {};

/** Take the texts of modules and package.json, by their paths. */
export function setFiles(given) {
  files = given;
}

const has = (path) => Object.hasOwn(files, path);
const find = (path) => ENDINGS.map((ending) => path + ending).find(has);

function join(folder, path) {
  const parts = folder ? folder.split("/") : [];
  for (const part of path.split("/")) {
    if (part === "..") parts.pop();
    else if (part && part !== ".") parts.push(part);
  }
  return parts.join("/");
}

const folderOf = (path) => path.split("/").slice(0, -1).join("/");

/** The target of an entry of `exports`, which may depend on conditions. */
function chosen(entry) {
  if (typeof entry !== "object" || entry === null) return entry;
  const key = Object.keys(entry).find((one) => CONDITIONS.includes(one));
  return key && chosen(entry[key]);
}

function exported(exports, path) {
  const keyed = typeof exports === "object" && Object.keys(exports)[0]?.startsWith(".");
  if (!keyed) return path === "." ? chosen(exports) : undefined;
  if (Object.hasOwn(exports, path)) return chosen(exports[path]);
  for (const [pattern, entry] of Object.entries(exports)) {
    const [head, tail] = pattern.split("*");
    if (tail === undefined || !path.startsWith(head) || !path.endsWith(tail)) continue;
    return chosen(entry)?.replaceAll("*", path.slice(head.length, path.length - tail.length));
  }
  return undefined;
}

function inPackage(folder, path) {
  if (!has(`${folder}/package.json`)) return find(join(folder, path));
  const { exports, module, main } = JSON.parse(files[`${folder}/package.json`]);
  if (exports) {
    const target = exported(exports, path);
    return target && find(join(folder, target));
  }
  return find(join(folder, path === "." ? (module ?? main ?? "index.js") : path));
}

function inPackages(base, name) {
  const [, owner, rest] = name.match(/^((?:@[^/]+\/)?[^/]+)(.*)$/) ?? [];
  for (let folder = base; owner && folder; ) {
    folder = folderOf(folder);
    const found = inPackage(join(folder, `node_modules/${owner}`), `.${rest}`);
    if (found) return found;
  }
  return undefined;
}

/** A module that does not exist. */
export class MissingModule extends ReferenceError {
  constructor(name, base) {
    const alone = Object.keys(files).length === 0;
    super(
      `cannot find the module "${name}"` +
        (alone ? '; a program is one file, and can import "caxton" only' : ""),
    );
    this.wanted = name;
    this.base = base;
  }

  get name() {
    return "ReferenceError";
  }
}

export function resolve(base, name) {
  if (name === "caxton") return name;
  const isPath = /^\.{0,2}\//.test(name);
  const found = isPath ? find(join(folderOf(base), name)) : inPackages(base, name);
  if (found) return found;
  throw new MissingModule(name, base);
}

export function load(path) {
  const text = files[path];
  return path.endsWith(".json") ? `export default JSON.parse(${JSON.stringify(text)});` : text;
}
