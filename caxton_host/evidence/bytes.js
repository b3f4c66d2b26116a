// What an execution needs of bytes, at once and not later as WebCrypto would have it: digests, the
// random stream, and the host's forms of values.
// @ts-check

const UTF8 = new TextEncoder();
// A byte order mark is a character here, as it is for the host.
const LENIENT = new TextDecoder("utf-8", { ignoreBOM: true });
const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** What a function returns, or null if it throws: but not because the stack is full. @template T @param {() => T} what */
function attempt(what) {
  try {
    return what();
  } catch (error) {
    if (/recursion|call stack/.test(String(error))) throw error;
    return null;
  }
}
/** @param {Uint8Array} data */
const decoded = (data) => attempt(() => STRICT.decode(data));

/** @param {Uint8Array[]} parts */
function concat(parts) {
  const all = new Uint8Array(parts.reduce((size, one) => size + one.length, 0));
  let at = 0;
  for (const one of parts) {
    all.set(one, at);
    at += one.length;
  }
  return all;
}

/** @param {Uint8Array} data */
const hexOf = (data) => Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
/** @param {string} hex */
const ofHex = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));

/** The text of at most *most* bytes of a text: no character is cut in half.
 * @param {string} text @param {number} most */
const cutText = (text, most) =>
  new TextDecoder("utf-8", { ignoreBOM: true }).decode(UTF8.encode(text).subarray(0, most), { stream: true });

// SHA-256 (FIPS 180-4). Its constants are the first 32 bits behind the point of roots of primes.
const PRIMES = [...Array(312).keys()].filter((n) => n > 1 && ![2, 3, 5, 7, 11, 13, 17].some((p) => p < n && n % p === 0));
/** @param {number} root */
const behindPoint = (root) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const SHA_START = PRIMES.slice(0, 8).map((p) => behindPoint(Math.sqrt(p)));
const SHA_ROUNDS = Int32Array.from(PRIMES, (p) => behindPoint(Math.cbrt(p)));

/** @param {Uint8Array} data */
function sha256(data) {
  const state = Int32Array.from(SHA_START), w = new Int32Array(64), digest = new DataView(new ArrayBuffer(32));
  const all = concat([data, Uint8Array.of(0x80), new Uint8Array(((119 - (data.length % 64)) % 64) + 8)]), view = new DataView(all.buffer);
  view.setBigUint64(all.length - 8, BigInt(data.length) * 8n);
  for (let at = 0; at < all.length; at += 64) {
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const x = w[i - 15], y = w[i - 2];
      if (i < 16) w[i] = view.getInt32(at + i * 4);
      else w[i] = w[i - 16] + w[i - 7] + (((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3)) + (((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10));
      const one = h + (((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7))) + ((e & f) ^ (~e & g)) + SHA_ROUNDS[i] + w[i];
      const two = (((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10))) + ((a & b) ^ (a & c) ^ (b & c));
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i] += word));
  }
  state.forEach((word, i) => digest.setInt32(i * 4, word));
  return new Uint8Array(digest.buffer);
}

// Keccak (FIPS 202): the lanes in the order of rho and pi, how far each is turned, the constants.
const LANES = [1], TURNS = [1n], KECCAK_ROUNDS = [...Array(24)].map(() => 0n);
for (let i = 1, x = 0, y = 2; i < 24; i++, [x, y] = [y, (2 * x + 3 * y) % 5]) {
  LANES.push(x + 5 * y);
  TURNS.push(BigInt((((i + 1) * (i + 2)) / 2) % 64));
}
for (let i = 0, bits = 1; i < 168; i++, bits = (bits << 1) ^ (bits >> 7 ? 0x171 : 0)) {
  if (bits & 1) KECCAK_ROUNDS[Math.floor(i / 7)] |= 1n << BigInt(2 ** (i % 7) - 1);
}

/** @param {bigint} lane @param {bigint} by */
const turned = (lane, by) => BigInt.asUintN(64, lane << by) | (lane >> (64n - by));

/** @param {BigUint64Array} s */
function keccak(s) {
  const sums = [0n, 0n, 0n, 0n, 0n], row = [0n, 0n, 0n, 0n, 0n];
  for (const constant of KECCAK_ROUNDS) {
    for (let x = 0; x < 5; x++) sums[x] = s[x] ^ s[x + 5] ^ s[x + 10] ^ s[x + 15] ^ s[x + 20];
    for (let i = 0; i < 25; i++) s[i] ^= sums[(i + 4) % 5] ^ turned(sums[(i + 1) % 5], 1n);
    for (let i = 0, lane = s[1]; i < 24; i++) {
      const to = LANES[(i + 1) % 24], next = s[to];
      s[to] = turned(lane, TURNS[i]);
      lane = next;
    }
    for (let y = 0; y < 25; y += 5) {
      for (let x = 0; x < 5; x++) row[x] = s[y + x];
      for (let x = 0; x < 5; x++) s[y + x] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5]);
    }
    s[0] ^= constant;
  }
}

/** The bytes of SHAKE-256 of a short seed, one after the other.
 * @param {Uint8Array} seed */
function* shake256(seed) {
  const lanes = new BigUint64Array(17 + 8), bytes = new Uint8Array(lanes.buffer);
  bytes.set(seed);
  bytes[seed.length] ^= 0x1f;
  bytes[135] ^= 0x80;
  for (;;) {
    keccak(lanes);
    for (let i = 0; i < 136; i++) yield bytes[i];
  }
}

/** A value as msgpack, each part in its shortest form, as the host writes it.
 * @param {any} value see `unpack` @returns {Uint8Array} */
function pack(value) {
  if (value === null || value === undefined) return Uint8Array.of(0xc0);
  if (typeof value === "boolean") return Uint8Array.of(value ? 0xc3 : 0xc2);
  if (typeof value === "string") {
    const data = UTF8.encode(value);
    return concat([sized(data.length, [0xa0, 31], [0xd9, 0xda, 0xdb]), data]);
  }
  if (typeof value === "bigint" || Number.isInteger(value)) return packInteger(BigInt(value));
  if (typeof value === "number" || value instanceof Number) {
    const data = new DataView(new ArrayBuffer(9));
    data.setUint8(0, 0xcb);
    data.setFloat64(1, Number(value));
    return new Uint8Array(data.buffer);
  }
  if (Array.isArray(value)) return concat([sized(value.length, [0x90, 15], [0, 0xdc, 0xdd]), ...value.map(pack)]);
  const items = entriesOf(value);
  return concat([sized(items.length, [0x80, 15], [0, 0xde, 0xdf]), ...items.flat().map(pack)]);
}

/** @param {number} size @param {number[]} small its tag, and the most @param {number[]} tags of 1, 2 and 4 bytes */
function sized(size, [tag, most], tags) {
  if (size <= most) return Uint8Array.of(tag | size);
  if (size < 256 && tags[0]) return Uint8Array.of(tags[0], size);
  if (size < 65536) return Uint8Array.of(tags[1], size >> 8, size);
  return Uint8Array.of(tags[2], size >>> 24, size >> 16, size >> 8, size);
}

/** @param {bigint} value */
function packInteger(value) {
  if (value >= -32n && value < 128n) return Uint8Array.of(Number(value & 255n));
  const power = [0n, 1n, 2n, 3n].find((n) => (value < 0n ? -value - 1n >> (8n << n) - 1n : value >> (8n << n)) === 0n);
  if (power === undefined) throw new RangeError("a number of more than 64 bits");
  const size = 1 << Number(power), data = new DataView(new ArrayBuffer(9));
  data.setUint8(0, (value < 0n ? 0xd0 : 0xcc) + Number(power));
  data.setBigInt64(1, BigInt.asIntN(64, value << BigInt(64 - 8 * size)));
  return new Uint8Array(data.buffer, 0, 1 + size);
}

/** Where the value that begins at *at* ends, whatever it is. Throws if it is cut or too deep.
 * @param {Uint8Array} data @param {number} at */
function skip(data, at) {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  /** @param {number} log2 @param {number} from */
  const number = (log2, from) => (log2 === 0 ? view.getUint8(from) : log2 === 1 ? view.getUint16(from) : view.getUint32(from));
  const left = [1];
  while (left.length) {
    if (!left[left.length - 1]--) {
      left.pop();
      continue;
    }
    const code = view.getUint8(at++);
    let inner = 0, size = 0;
    if (code < 0x80 || code >= 0xe0 || code === 0xc0 || code === 0xc2 || code === 0xc3) continue;
    if (code < 0x90) inner = 2 * (code & 15);
    else if (code < 0xa0) inner = code & 15;
    else if (code < 0xc0) size = code & 31;
    else if (code >= 0xdc) (inner = number(code & 1 ? 2 : 1, at) * (code >= 0xde ? 2 : 1)), (at += code & 1 ? 4 : 2);
    else if (code >= 0xd9) (size = number(code - 0xd9, at)), (at += 1 << (code - 0xd9));
    else if (code >= 0xd4) size = 1 + (1 << (code - 0xd4));
    else if (code >= 0xcc) size = 1 << ((code - 0xcc) & 3);
    else if (code >= 0xca) size = code === 0xca ? 4 : 8;
    else if (code >= 0xc7) (size = number(code - 0xc7, at) + 1), (at += 1 << (code - 0xc7));
    else if (code >= 0xc4) (size = number(code - 0xc4, at)), (at += 1 << (code - 0xc4));
    else throw new RangeError("no msgpack");
    at += size;
    if (at > data.length) throw new RangeError("cut off");
    if (inner && left.push(inner) > 1025) throw new RangeError("too deep");
  }
  return at;
}

/** The bytes of each value of an array. Throws if it is none, or has more than *most*.
 * @param {Uint8Array} data @param {number} most */
function partsOf(data, most) {
  const view = new DataView(data.buffer, data.byteOffset, data.length), tag = view.getUint8(0);
  const [count, start] = (tag & 0xf0) === 0x90 ? [tag & 15, 1] : tag === 0xdc ? [view.getUint16(1), 3] : tag === 0xdd ? [view.getUint32(1), 5] : [Infinity, 0];
  if (count > most) throw new RangeError("no array, or too long");
  const parts = [];
  let at = start;
  for (let i = 0; i < count; i++) parts.push(data.subarray(at, (at = skip(data, at))));
  if (at < data.length) throw new RangeError("bytes after it");
  return parts;
}

/** Whether a value is what JSON can say, not deeper than 64, of at most *most* parts.
 * @param {any} value see `unpack` @param {number} most */
function isJSON(value, most) {
  let seen = 0;
  /** @param {any} one @param {number} depth @returns {boolean} */
  const holds = (one, depth) => {
    if (depth > 64 || ++seen > most || one instanceof Uint8Array) return false;
    if (typeof one === "number" || one instanceof Number) return Number.isFinite(Number(one));
    if (typeof one !== "object" || one === null) return true;
    return (Array.isArray(one) ? one : entriesOf(one).map(([, item]) => item)).every((item) => holds(item, depth + 1));
  };
  return holds(value, 1);
}

/** A float as Python writes it in JSON.
 * @param {number} value */
function floatText(value) {
  const [, sign, first, more = "", power] = /** @type {string[]} */ (/^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$/.exec(value.toExponential()));
  const exponent = Number(power), digits = first + more, negative = sign || (Object.is(value, -0) ? "-" : "");
  if (exponent < -4 || exponent >= 16)
    return `${negative}${first}${more && `.${more}`}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  if (exponent < 0) return `${negative}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${negative}${whole}.${digits.slice(exponent + 1) || "0"}`;
}

/** A value as JSON, as the host writes it.
 * @param {any} value see `unpack` @returns {string} */
function jsonOf(value) {
  if (value instanceof Number || (typeof value === "number" && !Number.isInteger(value))) return floatText(Number(value));
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(jsonOf).join(",")}]`;
  if (value instanceof Uint8Array) return JSON.stringify(hexOf(value));
  if (typeof value !== "object" || value === null) return JSON.stringify(value ?? null);
  return `{${entriesOf(value).map(([key, one]) => `${JSON.stringify(key)}:${jsonOf(one)}`).join(",")}}`;
}

const JSON_NUMBER = /^-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$/;

/** The value of a JSON text, under the rules of the host. Throws if it is none.
 * @param {string} text @returns {any} */
function fromJSON(text) {
  let keys = 0, nodes = 0;
  // JSON.parse is given texts only, each with its kind before it: it would round numbers, and put
  // keys that are numbers first.
  const tagged = text.replace(/"([^"\\]*(?:\\.[^"\\]*)*)"|-?[0-9][-+.0-9eE]*|:/gs, (token, string) => {
    if (token === ":") keys += 1;
    return token === ":" ? token : string === undefined ? `"n${token}"` : `"s${string}"`;
  });
  /** @param {string} token */
  const leaf = (token) => {
    const said = token.slice(1), [, point, power] = JSON_NUMBER.exec(said) ?? [];
    if (token[0] === "s" && !/\p{Surrogate}/u.test(said)) return said;
    if (token[0] === "s" || !JSON_NUMBER.test(said)) throw new SyntaxError("no value");
    const whole = !point && !power && BigInt(said);
    if (whole === false ? !Number.isFinite(Number(said)) : !packInteger(whole)) throw new RangeError("no number");
    return whole === false ? new Number(said) : whole;
  };
  /** @param {any} one @param {number} depth @returns {any} */
  const value = (one, depth) => {
    if (depth > 64 || ++nodes > 200_000) throw new RangeError("too deep, or too many");
    if (typeof one === "string") return leaf(one);
    if (typeof one !== "object" || one === null) return one;
    if (Array.isArray(one)) return one.map((inner) => value(inner, depth + 1));
    const items = Object.entries(one);
    keys -= items.length;
    return new Map(items.map(([key, inner]) => [leaf(key), value(inner, depth + 1)]));
  };
  const found = value(JSON.parse(tagged), 1);
  if (keys) throw new SyntaxError("a key twice");
  return found;
}
