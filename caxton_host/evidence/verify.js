// The verifier of bundles: docs/reference/bundle.md, and nothing that its text does not say.
// @ts-check

/**
 * @typedef {{ part: number, seq: number, type: string, version: bigint, at: number, trace: string | null, hash: string, payload: Uint8Array | null }} Sealed
 * @typedef {{ stream: string, events: Sealed[], erased: Sealed | null }} Stream
 * @typedef {{ stream?: string, seq?: number, line?: number }} Where
 * @typedef {{ verdict: "intact" | "signer_unknown" | "broken", why: string, where: Where, run: string, key: string,
 *   size: bigint, gone: number, streams: Stream[], blobs: Map<string, Uint8Array> }} Verdict
 * @typedef {Record<string, any>} Line
 */

const MAX = { bundle: 2 ** 30, header: 2 ** 20, line: 48 * 2 ** 20, number: 2n ** 63n - 1n };
const SLICE = 256;
const ENVELOPE = "at,digest,hash,seq,span,trace,type,version";
const SEALED = "at,digest,hash,payload,salt,seq,span,trace,type,version";

class Broken extends Error {}

/** @type {(holds: unknown, what: string) => asserts holds} */
const check = (holds, what) => {
  if (!holds) throw new Broken(what);
};

// -- bytes

/** @param {Uint8Array[]} parts */
function joined(...parts) {
  const all = new Uint8Array(parts.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of parts) {
    all.set(one, at);
    at += one.length;
  }
  return all;
}
/** @param {Uint8Array[]} parts */
const sha = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", joined(...parts)));
/** @param {Uint8Array} data */
const hex = (data) => [...data].map((one) => one.toString(16).padStart(2, "0")).join("");
/** @param {Uint8Array} a @param {Uint8Array} b */
const same = (a, b) => a.length === b.length && a.every((one, i) => one === b[i]);
/** @param {string} text */
const ascii = (text) => Uint8Array.from(text, (one) => one.charCodeAt(0));

// -- lines, and the values in them

/**
 * Read one line of canonical JSON: keys in order, each once, no spaces, whole numbers. What
 * no line of a bundle may hold (true, fractions, other escapes) is refused here already.
 * @param {string} line
 */
function canonical(line) {
  const number = /(?:0|[1-9]\d{0,18})(?=[,}\]])/y, escaped = /"(?:[ !#-[\]-~]|\\["\\n]|\\u2014)*"/y;
  let at = 0;
  /** @param {string} token */
  const take = (token) => {
    check(line.startsWith(token, at), "not in the one form of JSON");
    at += token.length;
  };
  const string = () => {
    const end = line.indexOf('"', at + 1);
    const raw = line.slice(at + 1, end);
    if (line[at] === '"' && end > 0 && !raw.includes("\\")) {
      at = end + 1;
      return raw;
    }
    escaped.lastIndex = at;
    const found = escaped.exec(line);
    check(found, "not in the one form of JSON");
    at += found[0].length;
    return String(JSON.parse(found[0]));
  };
  /** @param {string} end @param {() => void} one */
  const each = (end, one) => {
    at += 1;
    for (let first = true; line[at] !== end; first = false) {
      if (!first) take(",");
      one();
    }
    at += 1;
  };
  /** @param {number} depth @returns {any} */
  const value = (depth) => {
    check(depth < 8, "too deep");
    if (line[at] === "{") {
      const object = Object.create(null);
      let last = "";
      each("}", () => {
        const key = string();
        check(key > last, "a key twice, or out of order");
        take(":");
        object[(last = key)] = value(depth + 1);
      });
      return object;
    }
    if (line[at] === "[") {
      /** @type {any[]} */
      const list = [];
      each("]", () => list.push(value(depth + 1)));
      return list;
    }
    if (line[at] === '"') return string();
    if (line[at] === "n") return take("null"), null;
    number.lastIndex = at;
    const found = number.exec(line);
    check(found, "not in the one form of JSON");
    at += found[0].length;
    return BigInt(found[0]);
  };
  const found = value(0);
  check(at === line.length, "not in the one form of JSON");
  return found;
}

/** @param {any} value @param {string[]} sets @returns {Line} */
function fields(value, ...sets) {
  check(typeof value === "object" && value !== null && !Array.isArray(value), "not an object");
  const keys = Object.keys(value);
  check(sets.some((set) => set.split(",").every((key, i) => key === keys[i]) && set.split(",").length === keys.length), "other keys");
  return value;
}
/** @param {any} value @param {number} most @returns {any[]} */
function items(value, most) {
  check(Array.isArray(value) && value.length <= most, "not a list, or too long a list");
  return value;
}
/** @param {any} value @returns {bigint} */
function number(value, most = MAX.number) {
  check(typeof value === "bigint" && value <= most, "not a number, or too large a number");
  return value;
}
/** @param {any} value @returns {string} */
function text(value, odd = /[^ -~]/) {
  check(typeof value === "string" && value && !odd.test(value), "not a text");
  return value;
}
/** @param {any} value */
function unhex(value, size = 32) {
  check(typeof value === "string" && value.length === 2 * size && !/[^0-9a-f]/.test(value), "not hexadecimal");
  return Uint8Array.from({ length: size }, (_, i) => parseInt(value.slice(2 * i, 2 * i + 2), 16));
}
/** @param {any} value */
function unbase64(value) {
  check(typeof value === "string" && !/[^\w+/=]/.test(value), "not Base64");
  const raw = atob(value);
  check(btoa(raw) === value, "not Base64");
  return ascii(raw);
}
/** A part of an envelope, in its shortest form.
 * @param {string | bigint | null} value */
function packed(value) {
  if (value === null) return Uint8Array.of(0xc0);
  if (typeof value === "string") {
    check(value.length < 256, "too long a text");
    return joined(value.length < 32 ? Uint8Array.of(0xa0 | value.length) : Uint8Array.of(0xd9, value.length), ascii(value));
  }
  if (value < 128n) return Uint8Array.of(Number(value));
  const code = value < 1n << 8n ? 0 : value < 1n << 16n ? 1 : value < 1n << 32n ? 2 : 3;
  const bytes = new DataView(new ArrayBuffer(8));
  bytes.setBigUint64(0, value);
  return joined(Uint8Array.of(0xcc + code), new Uint8Array(bytes.buffer, 8 - (1 << code)));
}

// -- checkpoints and the tree

/** Whether a key has signed; throws if this browser has no Ed25519.
 * @param {Uint8Array} key @param {Uint8Array} signature @param {Uint8Array} data */
async function isSigned(key, signature, data) {
  const known = await crypto.subtle.importKey("raw", joined(key), "Ed25519", false, ["verify"]);
  return crypto.subtle.verify("Ed25519", known, joined(signature), joined(data));
}
/** @param {string} name @param {Uint8Array} key */
const keyId = async (name, key) => hex((await sha(new TextEncoder().encode(`${name}\n\x01`), key)).subarray(0, 4));

/** The log's origin, size and root, and whether one of *pinned* has signed them.
 * @param {any} note @param {Uint8Array} claimed @param {Uint8Array[]} pinned */
async function checkpoint(note, claimed, pinned) {
  const bytes = new TextEncoder();
  check(bytes.encode(text(note, /[^ -~\n—]/)).length <= 16384, "too long a checkpoint");
  const cut = note.indexOf("\n\n");
  const body = note.slice(0, cut), signatures = note.slice(cut + 2), lines = body.split("\n");
  check(cut >= 0 && lines.every(Boolean) && lines.length >= 3 && lines.length <= 64 && signatures.endsWith("\n"), "not a checkpoint");
  const [origin, size, encoded] = lines;
  check(/^(0|[1-9]\d{0,18})$/.test(size), "not a checkpoint");
  let ours = false, own = false;
  for (const line of items(signatures.slice(0, -1).split("\n"), 16)) {
    const [dash, name, data, more] = line.split(" ");
    check(dash === "—" && name && !/[\s+]/.test(name) && name.length < 256 && more === undefined, "not a signature");
    const raw = unbase64(data);
    check(raw.length > 4, "not a signature");
    for (const key of [claimed, ...pinned]) {
      if (name !== origin || hex(raw.subarray(0, 4)) !== (await keyId(name, key))) continue;
      check(await isSigned(key, raw.subarray(4), bytes.encode(`${body}\n`)), "a forged signature");
      if (same(key, claimed)) ours = true;
      if (pinned.includes(key)) own = true;
    }
  }
  const root = unbase64(encoded);
  check(ours && root.length === 32, "not signed by the key in the bundle");
  return { origin, size: BigInt(size), root, own };
}
/** The roots of the old tree and of the new one.
 * @param {bigint} first @param {bigint} last @param {Uint8Array} start @param {Uint8Array[]} proof */
async function climb(first, last, start, proof) {
  const node = Uint8Array.of(1);
  let before = start, after = start;
  for (const part of proof) {
    check(last, "a proof that is too long");
    if (first & 1n || first === last) {
      before = await sha(node, part, before);
      after = await sha(node, part, after);
      while (!(first & 1n) && first) [first, last] = [first >> 1n, last >> 1n];
    } else after = await sha(node, after, part);
    [first, last] = [first >> 1n, last >> 1n];
  }
  check(!last, "a proof that is too short");
  return [before, after];
}
/** @typedef {Awaited<ReturnType<typeof checkpoint>>} Signed */
/** @param {Signed} old @param {Signed} now @param {Uint8Array[]} proof */
async function grew(old, now, proof) {
  const rewritten = `the log does not begin with the ${old.size} events that were signed`;
  check(old.origin === now.origin && old.size > 0n && old.size <= now.size, rewritten);
  if (old.size === now.size) return check(!proof.length && same(old.root, now.root), rewritten);
  const start = old.size & (old.size - 1n) ? proof.shift() : old.root;
  check(start, rewritten);
  let [first, last] = [old.size - 1n, now.size - 1n];
  while (first & 1n) [first, last] = [first >> 1n, last >> 1n];
  const [before, after] = await climb(first, last, start, proof);
  check(same(before, old.root) && same(after, now.root), rewritten);
}
/** @param {any} proof */
const hashes = (proof) => items(proof, 64).map((one) => unhex(one));
/** @param {Uint8Array} leaf @param {Line} place @param {Signed} log */
async function included(leaf, place, log) {
  check(number(place.index) < log.size, "no place in the log");
  const roots = await climb(place.index, log.size - 1n, await sha(Uint8Array.of(0), leaf), hashes(place.proof));
  check(same(roots[1], log.root), `the checkpoint of ${log.size} events does not hold it`);
}

// -- streams

/** Check an event whose line was read, and return it.
 * @param {Line} line @param {string} stream @param {Uint8Array} previous @param {number} part @returns {Promise<Sealed>} */
async function chained(line, stream, previous, part) {
  const digest = unhex(line.digest), ids = [line.trace, line.span].map((one) => (one === null ? null : text(one)));
  const payload = "payload" in line ? unbase64(line.payload) : null;
  if (payload) check(same(await sha(unhex(line.salt, 16), payload), digest), "its payload or salt was changed");
  const head = [text(stream), number(line.seq), text(line.type), number(line.version), number(line.at), ...ids].map(packed);
  const hash = await sha(previous, Uint8Array.of(0x98, 1), ...head, digest);
  check(same(hash, unhex(line.hash)), "its hash does not follow from what it holds and the event before it");
  const { type, version, trace } = line;
  return { part, seq: Number(line.seq), type, version, at: Number(line.at), trace, hash: line.hash, payload };
}
/** The map that a signed payload is.
 * @param {Sealed} event */
function said(event) {
  const known = event.payload && unpack(event.payload);
  check(isMap(known), "a payload that is not a map");
  return Object.fromEntries(entriesOf(known));
}

/**
 * Verify a bundle. The first fault in the order of the file is reported.
 * @param {string} bundle its text; a character beyond ASCII stands for a byte that it may not have
 * @param {Uint8Array[]} pinned public keys that the reader knows from elsewhere
 * @param {(done: number, total: number) => void} progress
 * @returns {Promise<Verdict>}
 */
async function verify(bundle, pinned, progress = () => {}) {
  /** @type {Verdict} */
  const found = { verdict: "broken", why: "", where: {}, run: "", key: "", size: 0n, gone: 0, streams: [], blobs: new Map() };
  let at = 0, lines = 0;
  const next = (limit = MAX.line) => {
    const end = bundle.indexOf("\n", at);
    lines += 1;
    check(end >= 0, at < bundle.length ? "a line that is cut" : "a line is missing");
    check(end - at < limit && end < MAX.bundle, "too long a line, or too large a file");
    const line = canonical(bundle.slice(at, end));
    at = end + 1;
    progress(at, bundle.length);
    return line;
  };
  try {
    await judged(found, next, pinned);
    check(at === bundle.length, "more than the header announces");
  } catch (error) {
    if (error instanceof DOMException && error.name === "NotSupportedError") throw error;
    found.verdict = "broken";
    found.why = error instanceof Broken ? error.message : `not in the form of a bundle (${error})`;
    if (!found.where.stream) found.where = { line: lines };
  }
  return found;
}

/** @param {Verdict} found @param {(limit?: number) => any} next @param {Uint8Array[]} pinned */
async function judged(found, next, pinned) {
  const header = next(MAX.header);
  check(header?.$type === "caxton.bundle/v1", "not a bundle of a form that this page knows");
  fields(header, "$type,blobs,checkpoint,earlier,key,run,streams");
  const key = unhex(header.key);
  found.key = header.key;
  const log = await checkpoint(header.checkpoint, key, pinned);
  found.size = log.size;
  for (const one of items(header.earlier, 64)) {
    const old = await checkpoint(fields(one, "checkpoint,proof").checkpoint, key, pinned);
    await grew(old, log, hashes(one.proof));
  }
  const parts = items(header.streams, 128), names = new Set();
  let total = 0n;
  for (const part of parts) {
    fields(part, "events,index,proof,stream", "erased,events,index,proof,stream");
    check(text(part.stream).startsWith("run/") && number(part.events) > 0n, "not a run");
    names.add(part.stream);
    total += part.events;
  }
  check(names.size === parts.length && parts.at(-1)?.stream === `run/${text(header.run)}`, "other streams");
  check(total <= 1_000_000n, "too many events");
  found.run = header.run;
  /** @type {Awaited<ReturnType<typeof stream>> | null} */
  let before = null;
  for (const part of parts) before = await stream(found, part, next, log, before);
  let last = "";
  check(number(header.blobs) <= 100_000n, "too many blobs");
  for (let i = 0n; i < header.blobs; i++) {
    const blob = fields(next(), "bytes,sha256");
    const data = unbase64(blob.bytes);
    check(same(await sha(data), unhex(blob.sha256)), "the bytes of a module, a definition or an answer were changed");
    check(last < blob.sha256, "blobs are not in order");
    found.blobs.set((last = blob.sha256), data);
  }
  found.verdict = log.own ? "intact" : "signer_unknown";
}

/**
 * Check a stream, and return what a fork of it says that it is forked from.
 * @param {Verdict} found @param {Line} part @param {(limit?: number) => any} next @param {Signed} log
 * @param {{ run: string, seq: number, hash: string } | null} before
 */
async function stream(found, part, next, log, before) {
  const place = found.streams.length;
  /** @type {Stream} */
  const own = { stream: part.stream, events: [], erased: null };
  found.streams.push(own);
  let previous = new Uint8Array(32), read = 0, gone = 0;
  const one = async () => {
    const seq = ++read;
    try {
      const line = fields(next(), ENVELOPE, SEALED), from = previous;
      previous = unhex(line.hash);
      check(line.seq === BigInt(seq), "an event is missing, or is at another place");
      if (!("payload" in line)) check(gone++ === seq - 1, "only some payloads are missing");
      return await chained(line, part.stream, from, place);
    } catch (error) {
      throw { error, seq };
    }
  };
  while (read < part.events) {
    const jobs = [];
    for (let n = 0; n < SLICE && read < part.events; n++) jobs.push(one());
    // In the order of the file: what follows an event that is broken does not hold either.
    for (const done of await Promise.allSettled(jobs)) {
      if (done.status === "fulfilled") own.events.push(done.value);
      else {
        found.where = { stream: part.stream, seq: done.reason.seq };
        throw done.reason.error;
      }
    }
  }
  found.where = { stream: part.stream, seq: read };
  await included(previous, part, log);
  check((gone > 0) === ("erased" in part), "payloads are missing, and no erasure is recorded");
  if (gone) {
    const erased = fields(part.erased, "index,previous,proof,stream");
    const event = (own.erased = await chained(fields(next(), SEALED), erased.stream, unhex(erased.previous), place));
    await included(unhex(event.hash), erased, log);
    check(event.type === "RunErased" && erased.index > part.index, "not an erasure of this run");
    if (log.own) {
      const { run, events } = said(event);
      check(run === part.stream.slice(4) && (typeof events === "bigint" || Number.isInteger(events)), "an erasure of another run");
      check(Math.min(Number(events), read) === gone, "an erasure of other events");
    }
  }
  found.where = { stream: part.stream, seq: 1 };
  const [first] = own.events;
  if (log.own && (before || (first.payload && first.type !== "RunQueued")))
    check(first.type === "RunStarted" && isFrom(said(first).forked_from, before), "it is not forked from what comes before it");
  found.where = {};
  found.gone += gone;
  return { run: part.stream.slice(4), seq: read, hash: hex(previous) };
}

/** Whether *from* says the same as *before*, and nothing else.
 * @param {any} from @param {{ run: string, seq: number, hash: string } | null} before */
function isFrom(from, before) {
  if (before === null || !isMap(from)) return from === before;
  const known = Object.fromEntries(entriesOf(from));
  return Object.keys(known).length === 3 && known.run === before.run && known.seq === before.seq && known.hash === before.hash;
}
