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
    const started = (this.started = recording.started);
    const given = Object.fromEntries(entriesOf(started.limits).filter(([, one]) => one !== null).map(([key, one]) => [key, Number(one)]));
    this.limits = { memory: NaN, ...LIMITS, ...given };
    this.mostOfLine = Math.min(this.limits.log, MOST_LINE) + 1;
    this.clock = recording.startedAt;
    this.stream = shake256(recording.seeds.get(0) ?? new Uint8Array(32));
    this.memory = /** @type {WebAssembly.Memory | null} */ (null);
    this.stop = /** @type {Stop | null} */ (null);
    this.result = /** @type {Uint8Array | null} */ (null);
    this.reason = this.reply = /** @type {Uint8Array} */ (new Uint8Array());
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
      const known = Object.fromEntries(entriesOf(unpack(this.blob(one.definition_sha256))));
      const { description = known.description ?? null, input_schema = known.inputSchema ?? null } = one;
      return { name, description, input_schema };
    });
    const text = (/** @type {string} */ digest) => STRICT.decode(this.blob(digest));
    const more = program && { source: text(program.sha256), packages: (program.packages && text(program.packages.sha256)) || null };
    return { tools: listed, input, program: program ? { name: program.name, language: program.language, ...more } : null };
  }

  // Of the memory

  get bytes() {
    return new Uint8Array((this.memory ?? this.trap("no memory is exported")).buffer);
  }
  /** @param {number} pointer @param {number} length */
  check(pointer, length) {
    if ((pointer >>> 0) + (length >>> 0) > this.bytes.length) this.trap("a host function was given a place outside memory");
  }
  /** @param {number} pointer @param {number} length */
  read(pointer, length, most = Infinity) {
    this.check(pointer, length);
    return this.bytes.slice(pointer >>> 0, (pointer >>> 0) + Math.min(length >>> 0, most));
  }
  /** @param {number} pointer @param {Uint8Array} data */
  put(pointer, data) {
    this.check(pointer, data.length);
    this.bytes.set(data, pointer >>> 0);
  }
  /** @param {Uint8Array} data @param {number} out @param {number} cap */
  write(data, out, cap) {
    this.check(out, cap);
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
        return method(...given);
      } catch (error) {
        if (error instanceof Stop) this.stop = error;
        throw error;
      }
    };
  }
  charge() {
    if (++this.used > this.limits.host_calls) this.over("host_calls", `more than ${this.limits.host_calls} host calls`);
  }
  /** @returns {Record<string, Record<string, Function>>} */
  imports() {
    const constant = (/** @type {any} */ value) => (/** @type {number} */ out, /** @type {number} */ cap) => this.give(0, pack(value), out, cap);
    const { tools, input, program } = this.given();
    const all = { ...this.functions, tools: constant(tools), input: constant(input), program: constant(program) };
    return { caxton: Object.fromEntries(Object.entries(all).map(([name, one]) => [name, this.guarded(one, () => this.charge())])) };
  }
  /** Those that have an effect, or tell of one. @type {Record<string, (...given: any[]) => any>} */
  functions = {
    mcp_call: (name, nameLength, params, paramsLength, out, cap) => {
      const said = this.read(name, nameLength, MOST_NAME), bytes = this.read(params, paramsLength), { params: most } = this.limits;
      this.check(out, cap);
      return this.single(cleanName(said), digestOf(bytes, Math.min(most, MOST_PARAMS), most), bytes, out, cap);
    },
    mcp_call_many: (batch, length, out, cap) => {
      const bytes = this.read(batch, length);
      this.check(out, cap);
      const items = bytes.length > MOST_BATCH ? null : attempt(() => partsOf(bytes, 64).map(itemOf));
      if (!items) return this.single("mcp_call_many()", digestOf(bytes, MOST_BATCH, MOST_BATCH), bytes, out, cap);
      const entries = this.recall(items.map(([name, params]) => ({ name: cleanName(name), digest: hexOf(sha256(params)), bytes: params })));
      const reply = concat([sized(entries.length, [0x90, 15], [0, 0xdc, 0xdd]), ...entries.map((one) => one.body)]);
      if (reply.length > MOST_REPLIES) this.over("result", `the answers of a batch have ${tooMany(reply.length, MOST_REPLIES)}`);
      return this.answered(0, reply, Math.max(0, ...entries.map((one) => one.at)), out, cap);
    },
    take_reply: (out, cap) => this.write(this.reply, out, cap),
    context: (key, length, out, cap) => {
      const name = LENIENT.decode(this.read(key, length, MOST_NAME)), message = "the run has no context of that key";
      const found = entriesOf(this.started.context).find(([one]) => one === name);
      if (found) return this.give(0, pack(found[1]), out, cap);
      return this.give(4, pack({ status: "bad_request", message, data: null, error: { code: "unknown_key", message } }), out, cap);
    },
    output: (pointer, length) => {
      const bytes = this.read(pointer, length), most = this.limits.output;
      this.result = bytes.length > most ? this.over("output", tooMany(bytes.length, most)) : bytes;
    },
    fail: (pointer, length) => void (this.reason = this.read(pointer, length, MOST_REASON)),
    now: () => BigInt(this.clock),
    random: (pointer, length) => this.random(pointer, length),
    log: (level, pointer, length) => {
      const bytes = this.read(pointer, length, this.mostOfLine);
      if (this.sent <= this.limits.log) this.say(Math.min(level >>> 0, 3), bytes);
    },
  };

  /** @param {string} name @param {string} digest @param {Uint8Array} bytes @param {number} out @param {number} cap */
  single(name, digest, bytes, out, cap) {
    const [entry] = this.recall([{ name, digest, bytes }]);
    return this.answered(entry.status, entry.body, entry.at, out, cap);
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
    const waits = found.findIndex((entry, place) => entry && !recording.calls.has(first + place));
    if (waits >= 0) ended("the call waits for an approval", first + waits);
    // The end may be in a batch: that of a fork.
    if (first <= recording.reached && found.includes(null)) this.checkEnd();
    const entries = found.map((entry, place) => entry ?? diverged("a call is new", first + place, null, calls[place].name));
    const open = entries.findIndex((one) => !one.isClosed);
    if (open >= 0) ended("the outcome of the call is in doubt", first + open);
    for (const { limit } of entries) if (limit) this.over(limit.split(": ")[0], limit.slice(limit.indexOf(": ") + 2));
    return entries;
  }

  /** @param {number} status @param {Uint8Array} reply @param {number} at @param {number} out @param {number} cap */
  answered(status, reply, at, out, cap) {
    const reached = [...this.recording.seeds.keys()].filter((n) => this.seeded < n && n <= this.calls);
    const seed = this.recording.seeds.get(Math.max(...reached));
    if (seed) [this.stream, this.drawn] = [shake256(seed), 0];
    this.seeded = this.calls;
    this.clock = at || this.clock;
    this.checkEnd();
    return this.give(status, reply, out, cap);
  }

  /** End a guest that would not end here by itself, once it has done all that is recorded. */
  checkEnd() {
    const { recording } = this;
    if (recording.isOpen && this.calls >= recording.reached && this.lines >= recording.logged) ended(untilOf(recording.end), this.calls || null);
  }

  /** @param {number} pointer @param {number} length */
  random(pointer, length) {
    this.check(pointer, length);
    const size = length >>> 0;
    this.drawn += size;
    if (this.drawn > MOST_RANDOM) this.trap(`more than ${MOST_RANDOM} random bytes`);
    this.put(pointer, Uint8Array.from({ length: size }, () => this.stream.next().value ?? 0));
  }
  /** @param {number} level @param {Uint8Array} bytes */
  say(level, bytes) {
    this.sent += Math.max(bytes.length, LINE_COST);
    const { log } = this.limits, left = log - this.logged, text = LENIENT.decode(bytes.subarray(0, 2 * log));
    if (left < 0) return;
    this.logged += Math.max(bytes.length, LINE_COST);
    this.line(LEVELS[level], this.logged > log ? cutText(text, left) : text);
    if (this.logged > log) this.line("truncated", `the run reached its limit log: ${log}`);
    this.checkEnd();
  }
  /** @param {string} level @param {string} text */
  line(level, text) {
    const known = this.recording.lines.get(++this.lines), at = this.calls || null;
    if (!known) return diverged("a log line is new", at, null, text);
    const cut = this.recording.lines.get(this.lines + 1)?.level === "truncated";
    if (known.level === level && sameButMasked(known.text, text, cut)) return;
    diverged("a log line differs", at, `${known.level}: ${known.text}`, `${level}: ${text}`);
  }

  // Its execution

  /** @param {End} end @returns {End} */
  finished(end) {
    return end;
  }
  /** @param {Uint8Array} output @param {End} end */
  keep(output, end) {
    this.result = output;
    return end;
  }

  /** Run a module to its end. Returns that, or throws what was found.
   * @param {WebAssembly.Module} module @param {{ start: string, interprets: boolean }} made @returns {End} */
  run(module, { start, interprets }) {
    let end = /** @type {End | null} */ (null);
    try {
      const { exports } = new WebAssembly.Instance(module, /** @type {WebAssembly.Imports} */ (this.imports()));
      this.memory = /** @type {WebAssembly.Memory} */ (exports.memory);
      if (start) /** @type {Function} */ (exports[start])();
      const code = /** @type {Function} */ (exports[this.started.entry])() ?? 0;
      const most = interprets ? MOST_REASON : 512;
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
  const [name, params, ...more] = attempt(() => partsOf(data, 2)) ?? [], tag = name?.[0] ?? 0;
  const head = (tag & 0xe0) === 0xa0 ? 1 : [2, 3, 5][tag - 0xd9];
  return head && params && !more.length ? [name.subarray(head), params] : [new Uint8Array(), data];
}

/** @param {number} size @param {number} most */
const tooMany = (size, most) => `${size} bytes, of ${most} allowed`;

/** A name as it is recorded, whatever its bytes are.
 * @param {Uint8Array} raw */
const cleanName = (raw) =>
  Array.from(raw.subarray(0, 128), (byte) => (byte >= 32 && byte < 127 && byte !== 92 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`)).join("");

/** How params were recorded, and what they are now.
 * @param {Entry} entry @param {Uint8Array} bytes @param {string} digest @returns {[string, string]} */
function paramsOf(entry, bytes, digest) {
  const was = jsonOf(entry.params), is = attempt(() => jsonOf(unpack(bytes))) ?? was;
  return was === is ? [entry.digest, digest] : [was, is];
}

/** @param {RunEvent | null} end */
function untilOf(end) {
  if (!end) return "the run has not ended";
  return end.type === "RunCancelled" ? "the run was cancelled there" : `the run was ended there: ${end.payload.message}`;
}
