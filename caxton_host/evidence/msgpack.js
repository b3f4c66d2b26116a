// Msgpack, as the host writes it. No imports: the page, its worker and the tests load it as it is.
// @ts-check

/**
 * A value: null, boolean, text, number, `BigInt` beyond 2^53 - 1, `Number` object, bytes, array, map.
 *
 * A `Number` object is a float that is a whole number: 1.0 is not 1 for an agent. A map is an
 * object without prototype, or a `Map` if an object would put its keys into another order ("10"
 * before "b"). Both survive being sent to a worker. Read maps with `entriesOf`.
 * @typedef {any} Value
 */

const MSGPACK_DEPTH = 512;

/** The keys and values of a map, in the order of its bytes.
 * @param {Value} map
 * @returns {[string, Value][]} */
const entriesOf = (map) => (map instanceof Map ? [...map] : Object.entries(map));

/** Whether a value is a map.
 * @param {Value} value */
const isMap = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array) && !(value instanceof Number);

/**
 * Read the one value that *data* holds. Throws if it is cut, is followed by more, is deeper than
 * 512, or is what JSON and bytes cannot say.
 * @param {Uint8Array} data
 * @returns {Value}
 */
function unpack(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let at = 0;

  /** @param {boolean} holds */
  const check = (holds) => {
    if (!holds) throw new RangeError("not msgpack");
  };
  /** @param {number} size */
  const take = (size) => {
    check(size <= data.length - at);
    at += size;
    return at - size;
  };
  /** A length of 1, 2 or 4 bytes, for the codes *first*, *first* + 1, *first* + 2.
   * @param {number} code @param {number} first */
  const length = (code, first) => {
    const size = 1 << (code - first), from = take(size);
    return size === 1 ? view.getUint8(from) : size === 2 ? view.getUint16(from) : view.getUint32(from);
  };
  /** @param {bigint} value */
  const whole = (value) => (BigInt.asIntN(54, value) === value && value !== -(2n ** 53n) ? Number(value) : value);
  /** @param {number} value */
  const float = (value) => (Number.isInteger(value) ? new Number(value) : value);
  /** @param {number} size */
  const string = (size) => text.decode(data.subarray(take(size), at));
  /** @param {number} size @param {number} depth */
  const list = (size, depth) => {
    const found = [];
    for (let i = 0; i < size; i++) found.push(value(depth + 1));
    return found;
  };
  /** @param {number} size @param {number} depth */
  const map = (size, depth) => {
    const known = new Map();
    let moved = false;
    for (let i = 0; i < size; i++) {
      const key = value(depth + 1);
      check(typeof key !== "object" || key === null || key instanceof Number);
      moved ||= /^\d+$/.test(String(key));
      known.set(String(key), value(depth + 1));
    }
    if (moved) return known;
    const plain = Object.create(null);
    for (const [key, one] of known) plain[key] = one;
    return plain;
  };
  /** @param {number} depth @returns {Value} */
  const value = (depth) => {
    check(depth <= MSGPACK_DEPTH);
    const code = view.getUint8(take(1));
    if (code < 0x80) return code;
    if (code < 0x90) return map(code & 15, depth);
    if (code < 0xa0) return list(code & 15, depth);
    if (code < 0xc0) return string(code & 31);
    if (code >= 0xe0) return code - 256;
    if (code >= 0xd9 && code <= 0xdb) return string(length(code, 0xd9));
    if (code >= 0xc4 && code <= 0xc6) return data.slice(take(length(code, 0xc4)), at);
    if (code === 0xdc || code === 0xdd) return list(length(code, 0xdb), depth);
    if (code === 0xde || code === 0xdf) return map(length(code, 0xdd), depth);
    switch (code) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xca: return float(view.getFloat32(take(4)));
      case 0xcb: return float(view.getFloat64(take(8)));
      case 0xcc: return view.getUint8(take(1));
      case 0xcd: return view.getUint16(take(2));
      case 0xce: return view.getUint32(take(4));
      case 0xcf: return whole(view.getBigUint64(take(8)));
      case 0xd0: return view.getInt8(take(1));
      case 0xd1: return view.getInt16(take(2));
      case 0xd2: return view.getInt32(take(4));
      case 0xd3: return whole(view.getBigInt64(take(8)));
    }
    return check(false);
  };

  const found = value(1);
  check(at === data.length);
  return found;
}
