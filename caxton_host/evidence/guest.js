// The host functions of a core module, answered from a recording as the host answers them in a
// replay. Pointers and lengths come signed, and mean unsigned numbers.
// @ts-check

const MIB = 2 ** 20;
const MOST_NAME = 65536, MOST_PARAMS = MIB - 32, MOST_BATCH = MIB, MOST_REPLIES = 32 * MIB, MOST_RANDOM = 4 * MIB;
const MOST_LINE = MIB, LINE_COST = 16, MOST_REASON = 4096;
const LEVELS = ["debug", "info", "warning", "error"];
/** Calls of any function after which this gives up, whatever the run was allowed. */
const MOST_CALLS = 20_000_000;
/** The host's, where a run does not record its own. */
const LIMITS = { table_elements: 20_000, host_calls: 100_000, params: MIB / 2, output: MIB, log: 65536, wasi_calls: 1_000_000, scratch: 16 * MIB };

class Guest {
  /** @param {Recording} recording @param {Map<string, Uint8Array>} blobs @param {(calls: number) => void} progress */
  constructor(recording, blobs, progress) {
    this.recording = recording;
    this.blobs = blobs;
    this.progress = progress;
    const { started } = recording;
    this.started = started;
    const given = Object.fromEntries(entriesOf(started.limits).filter(([, one]) => one !== null).map(([key, one]) => [key, Number(one)]));
    this.limits = { memory: NaN, ...LIMITS, ...given };
    this.now = recording.startedAt;
    this.stream = shake256(recording.seeds.get(0) ?? new Uint8Array(32));
    /** @type {WebAssembly.Memory | null} */
    this.memory = null;
    /** @type {Stop | null} */
    this.stop = null;
    /** @type {Uint8Array | null} */
    this.output = null;
    /** @type {Uint8Array} */
    this.reason = new Uint8Array();
    /** @type {Uint8Array} */
    this.reply = new Uint8Array();
    this.calls = this.seeded = this.lines = this.used = this.all = this.drawn = this.sent = this.logged = 0;
  }

  /** @param {string} digest */
  blob(digest) {
    return this.blobs.get(digest) ?? cannot(`blob ${digest} is not here`);
  }

  /** What the host functions without an effect give, by their names. */
  given() {
    const { program, catalogue, input } = this.started;
    const tools = entriesOf(catalogue).filter(([, one]) => one?.visible).sort(([a], [b]) => (a < b ? -1 : 1));
    const listed = tools.map(([name, one]) => {
      const known = unpack(this.blob(one.definition_sha256));
      const { description = known.description ?? null, input_schema = known.inputSchema ?? null } = one;
      return { name, description, input_schema };
    });
    const text = (/** @type {string} */ digest) => STRICT.decode(this.blob(digest));
    const source = program && {
      name: program.name,
      language: program.language,
      source: text(program.sha256),
      packages: (program.packages && text(program.packages.sha256)) || null,
    };
    return { tools: pack(listed), input: pack(input), program: pack(source ?? null) };
  }

  // Of the memory

  get bytes() {
    return new Uint8Array((this.memory ?? this.trap("no memory is exported")).buffer);
  }
  /** @param {number} pointer @param {number} length */
  check(pointer, length) {
    const { buffer } = this.memory ?? this.trap("no memory is exported");
    if ((pointer >>> 0) + (length >>> 0) > buffer.byteLength) this.trap("a host function was given a place outside memory");
  }
  /** @param {number} pointer @param {number} length */
  read(pointer, length) {
    this.check(pointer, length);
    return this.bytes.slice(pointer >>> 0, (pointer >>> 0) + (length >>> 0));
  }
  /** @param {number} pointer @param {Uint8Array} data */
  put(pointer, data) {
    this.check(pointer, data.length);
    this.bytes.set(data, pointer >>> 0);
  }
  /** @param {Uint8Array} data @param {number} out @param {number} cap */
  write(data, out, cap) {
    if (data.length <= cap >>> 0) this.put(out, data);
    return data.length;
  }
  /** @param {number} status @param {Uint8Array} reply @param {number} out @param {number} cap */
  give(status, reply, out, cap) {
    this.reply = reply;
    return (BigInt(status) << 32n) | BigInt(this.write(reply, out, cap));
  }

  // Of its end

  /** @param {string} message @returns {never} */
  trap(message) {
    throw new Stop({ kind: "trap", message });
  }
  /** @param {string} limit @param {string} message @returns {never} */
  over(limit, message) {
    throw new Stop({ kind: "limit", limit, message });
  }
  /** A host function, which is not called once the guest has to end.
   * @param {(...given: any[]) => any} method @param {() => void} enter */
  guarded(method, enter) {
    return (/** @type {any[]} */ ...given) => {
      if (this.stop) throw this.stop;
      try {
        if (++this.all > MOST_CALLS) cannot(`it makes more than ${MOST_CALLS} calls of its host`);
        enter();
        return method.apply(this, given);
      } catch (error) {
        if (error instanceof Stop) this.stop = error;
        throw error;
      }
    };
  }
  charge() {
    this.used += 1;
    if (this.used > this.limits.host_calls) this.over("host_calls", `more than ${this.limits.host_calls} host calls`);
  }
  /** @returns {Record<string, Record<string, Function>>} */
  imports() {
    const { tools, input, program } = this.given();
    /** @param {Uint8Array} value */
    const constant = (value) => (/** @type {number} */ out, /** @type {number} */ cap) => (this.check(out, cap), this.give(0, value, out, cap));
    const { mcp_call, mcp_call_many, take_reply, context, set_output, now_, random, log, fail } = this;
    const methods = { mcp_call, mcp_call_many, take_reply, context, output: set_output, now: now_, random, log, fail };
    const all = { ...methods, tools: constant(tools), input: constant(input), program: constant(program) };
    return { caxton: Object.fromEntries(Object.entries(all).map(([name, method]) => [name, this.guarded(method, () => this.charge())])) };
  }

  // The host functions

  /** @param {number} name @param {number} nameLength @param {number} params @param {number} paramsLength @param {number} out @param {number} cap */
  mcp_call(name, nameLength, params, paramsLength, out, cap) {
    this.check(name, nameLength);
    this.check(params, paramsLength);
    this.check(out, cap);
    const { limits } = this;
    const said = this.read(name, Math.min(nameLength >>> 0, MOST_NAME)), bytes = this.read(params, paramsLength);
    const digest = digestOf(bytes, Math.min(limits.params, MOST_PARAMS), limits.params);
    return this.single(cleanName(said), digest, bytes, out, cap);
  }

  /** @param {number} batch @param {number} length @param {number} out @param {number} cap */
  mcp_call_many(batch, length, out, cap) {
    this.check(batch, length);
    this.check(out, cap);
    const bytes = this.read(batch, length);
    let items;
    try {
      if (bytes.length > MOST_BATCH) throw new RangeError("too long");
      items = partsOf(bytes, 64).map(itemOf);
    } catch {
      return this.single("mcp_call_many()", digestOf(bytes, MOST_BATCH, MOST_BATCH), bytes, out, cap);
    }
    const entries = this.recall(items.map(([name, params]) => ({ name: cleanName(name), digest: hexOf(sha256(params)), bytes: params })));
    const reply = concat([sized(entries.length, [0x90, 15], [0, 0xdc, 0xdd]), ...entries.map((one) => one.body ?? new Uint8Array())]);
    if (reply.length > MOST_REPLIES) this.over("result", `the answers of a batch have ${reply.length} bytes, of ${MOST_REPLIES} allowed`);
    return this.answered(0, reply, Math.max(0, ...entries.map((one) => one.at)), out, cap);
  }

  /** @param {string} name @param {string} digest @param {Uint8Array} bytes @param {number} out @param {number} cap */
  single(name, digest, bytes, out, cap) {
    const [entry] = this.recall([{ name, digest, bytes }]);
    return this.answered(entry.status, entry.body ?? new Uint8Array(), entry.at, out, cap);
  }

  /** Look calls up by their numbers, and return them if the log holds them and their answers.
   * @param {{ name: string, digest: string, bytes: Uint8Array }[]} calls */
  recall(calls) {
    const first = this.calls + 1, { recording } = this;
    const found = calls.map(({ name, digest, bytes }) => {
      const number = ++this.calls, entry = recording.calls.get(number) ?? recording.asked.get(number) ?? null;
      if (!entry) return null;
      if (entry.name !== name) diverged("another call was made", number, entry.name, name);
      if (entry.digest !== digest) diverged(`the params of ${name} differ`, number, ...paramsOf(entry, bytes, digest));
      if (entry.cut) ended("the log keeps a digest of the answer, and not the answer", number);
      return entry;
    });
    this.progress(this.calls);
    found.forEach((entry, place) => {
      if (entry && !recording.calls.has(first + place)) ended("the call waits for an approval", first + place);
    });
    const entries = found.map((entry, place) => entry ?? diverged("a call is new", first + place, null, calls[place].name));
    entries.forEach((entry, place) => {
      if (!entry.body) ended("the outcome of the call is in doubt", first + place);
    });
    for (const { limit } of entries) if (limit) this.over(limit.split(": ")[0], limit.slice(limit.indexOf(": ") + 2));
    return entries;
  }

  /** @param {number} status @param {Uint8Array} reply @param {number} at @param {number} out @param {number} cap */
  answered(status, reply, at, out, cap) {
    const reached = [...this.recording.seeds.keys()].filter((n) => this.seeded < n && n <= this.calls);
    const seed = this.recording.seeds.get(Math.max(...reached));
    if (seed) {
      this.stream = shake256(seed);
      this.drawn = 0;
    }
    this.seeded = this.calls;
    this.now = at || this.now;
    this.checkEnd();
    return this.give(status, reply, out, cap);
  }

  /** End a guest that would not end here by itself, once it has done all that is recorded. */
  checkEnd() {
    const { recording } = this;
    if (recording.isOpen && this.calls >= recording.reached && this.lines >= recording.logged) ended(untilOf(recording.end), this.calls || null);
  }

  /** @param {number} out @param {number} cap */
  take_reply(out, cap) {
    this.check(out, cap);
    return this.write(this.reply, out, cap);
  }
  /** @param {number} key @param {number} length @param {number} out @param {number} cap */
  context(key, length, out, cap) {
    this.check(key, length);
    this.check(out, cap);
    const name = LENIENT.decode(this.read(key, Math.min(length >>> 0, MOST_NAME)));
    const found = entriesOf(this.started.context).find(([one]) => one === name);
    if (found) return this.give(0, pack(found[1]), out, cap);
    const message = "the run has no context of that key";
    return this.give(4, pack({ status: "bad_request", message, data: null, error: { code: "unknown_key", message } }), out, cap);
  }
  /** @param {number} pointer @param {number} length */
  set_output(pointer, length) {
    this.check(pointer, length);
    if (length >>> 0 > this.limits.output) this.over("output", `${length >>> 0} bytes, of ${this.limits.output} allowed`);
    this.output = this.read(pointer, length);
  }
  /** @param {number} pointer @param {number} length */
  fail(pointer, length) {
    this.check(pointer, length);
    this.reason = this.read(pointer, Math.min(length >>> 0, MOST_REASON));
  }
  now_() {
    return BigInt(this.now);
  }
  /** @param {number} pointer @param {number} length */
  random(pointer, length) {
    this.check(pointer, length);
    const size = length >>> 0;
    this.drawn += size;
    if (this.drawn > MOST_RANDOM) this.trap(`more than ${MOST_RANDOM} random bytes`);
    this.put(pointer, Uint8Array.from({ length: size }, () => this.stream.next().value ?? 0));
  }
  /** @param {number} level @param {number} pointer @param {number} length */
  log(level, pointer, length) {
    this.check(pointer, length);
    if (this.sent > this.limits.log) return;
    this.say(Math.min(level >>> 0, 3), this.read(pointer, Math.min(length >>> 0, this.mostOfLine)));
  }

  get mostOfLine() {
    return Math.min(this.limits.log, MOST_LINE) + 1;
  }
  /** @param {number} level @param {Uint8Array} bytes */
  say(level, bytes) {
    this.sent += Math.max(bytes.length, LINE_COST);
    const { log } = this.limits, left = log - this.logged;
    if (left < 0) return;
    this.logged += Math.max(bytes.length, LINE_COST);
    const text = LENIENT.decode(bytes.subarray(0, 2 * log));
    if (this.logged <= log) this.line(LEVELS[level], text);
    else {
      this.line(LEVELS[level], cutText(text, left));
      this.line("truncated", `the run reached its limit log: ${log}`);
    }
    this.checkEnd();
  }
  /** @param {string} level @param {string} text */
  line(level, text) {
    const known = this.recording.lines.get(++this.lines), at = this.calls || null;
    if (!known) return diverged("a log line is new", at, null, text);
    const cut = this.recording.lines.get(this.lines + 1)?.level === "truncated";
    if (known.level !== level || !sameButMasked(known.text, text, cut)) {
      diverged("a log line differs", at, `${known.level}: ${known.text}`, `${level}: ${text}`);
    }
  }

  // Its execution

  /** @param {End} end @returns {End} */
  finished(end) {
    return end;
  }
  /** @param {Uint8Array} output @param {End} end */
  keep(output, end) {
    this.output = output;
    return end;
  }

  /** Run a module to its end. Returns that, or throws what was found.
   * @param {WebAssembly.Module} module @param {string} start @returns {End} */
  run(module, start) {
    /** @type {End} */
    let end;
    try {
      const { exports } = new WebAssembly.Instance(module, /** @type {WebAssembly.Imports} */ (this.imports()));
      this.memory = /** @type {WebAssembly.Memory} */ (exports.memory);
      if (start) /** @type {Function} */ (exports[start])();
      const code = /** @type {Function} */ (exports[this.started.entry])() ?? 0;
      const most = WebAssembly.Module.customSections(module, "caxton:interpreter").length ? MOST_REASON : 512;
      end = { kind: "returned", code, message: code ? cutText(LENIENT.decode(this.reason.subarray(0, most)), most) : "" };
    } catch (error) {
      const stop = this.stop ?? error;
      if (stop instanceof Stop && "kind" in stop.reason) end = stop.reason;
      else if (stop instanceof WebAssembly.RuntimeError) end = { kind: "trap", message: String(stop.message), byEngine: true };
      else if (stop instanceof Stop) throw stop;
      else return cannot(`this engine gave up: ${stop instanceof Error ? stop.message : stop}`);
    }
    this.stop = null;
    return this.finished(end);
  }
}

/** The digest by which the host knows the bytes of a call, of which it takes at most *cap* as they are.
 * @param {Uint8Array} bytes @param {number} cap @param {number} limit */
function digestOf(bytes, cap, limit) {
  if (bytes.length <= cap) return hexOf(sha256(bytes));
  const size = new DataView(new ArrayBuffer(8));
  size.setBigUint64(0, BigInt(bytes.length));
  const digest = sha256(bytes), sent = concat([bytes.subarray(0, cap), new Uint8Array(size.buffer), digest]);
  return hexOf(sent.length <= limit ? sha256(sent) : digest);
}

/** Name and params of an item of a batch; all of it for params if it is no pair.
 * @param {Uint8Array} data @returns {[Uint8Array, Uint8Array]} */
function itemOf(data) {
  try {
    const [name, params, ...more] = partsOf(data, 2), tag = name[0];
    const head = (tag & 0xe0) === 0xa0 ? 1 : /** @type {Record<number, number>} */ ({ 0xd9: 2, 0xda: 3, 0xdb: 5 })[tag];
    if (head && params && !more.length) return [name.subarray(head), params];
  } catch {
    // It has no name.
  }
  return [new Uint8Array(), data];
}

/** A name as it is recorded, whatever its bytes are.
 * @param {Uint8Array} raw */
const cleanName = (raw) =>
  Array.from(raw.subarray(0, 128), (byte) => (byte >= 32 && byte < 127 && byte !== 92 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`)).join("");

/** How params were recorded, and what they are now.
 * @param {Entry} entry @param {Uint8Array} bytes @param {string} digest @returns {[string, string]} */
function paramsOf(entry, bytes, digest) {
  try {
    const was = jsonOf(entry.params), is = jsonOf(unpack(bytes));
    if (was !== is) return [was, is];
  } catch {
    // Its bytes are no value.
  }
  return [entry.digest, digest];
}

/** @param {RunEvent | null} end */
function untilOf(end) {
  if (!end) return "the run has not ended";
  return end.type === "RunCancelled" ? "the run was cancelled there" : `the run was ended there: ${end.payload.message}`;
}
