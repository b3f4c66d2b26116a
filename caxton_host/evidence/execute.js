// Executes a recorded run again, in the WebAssembly of the browser: against the recorded
// answers, with no import but the host's functions. It is told what the log holds, and compares
// what the program does now: its calls, byte by byte, its log lines, its end and its output.
//
// The script of a worker, behind msgpack.js, bytes.js, recording.js, guest.js and wasi.js. It is
// sent {type: "execute", run, events, blobs}; payloads are what `unpack` gives. It says {type:
// "progress", calls} at times, and {type: "done", verdict, calls, why, at, recorded, now} at last:
//
//   identical  It did what the log holds, to the same end.
//   ended      The same as far as it was recorded: it waits there, or a clock or a person ended it.
//   diverged   At call `at` (null: at the end) it did `now` where the log has `recorded`, as texts.
//   cannot     It cannot be executed here; `why` says why. That says nothing of the run.
//
// Not compared, since each engine has its own: fuel, and which of the ways to break the rules of
// WebAssembly ended a program. docs/reference/reliability.md says where engines may differ.
// @ts-check

const PAGE = 65536, MOST_PAGES = 65536, MOST_DECLARED = 1000;
const INTERPRETER = "caxton:interpreter", ABORTED = "the interpreter aborted: ";
/** How wasmtime's traps are recorded. */
const TRAPS = [
  ...["out of bounds memory access", "misaligned memory access", "out of bounds table access", "integer overflow"],
  ...["call of an empty table element", "indirect call of another type", "integer division by zero"],
  ...["invalid conversion to integer", "unreachable", "trap"],
];

/**
 * A module that may grow as far as its host lets it, and whose start function is exported
 * instead: only then can that reach the memory through the host's functions.
 * @param {Uint8Array} module @param {{ memory: number, table_elements: number }} limits @param {boolean} isCommand
 * @returns {{ module: Uint8Array, start: string, interprets: boolean }} with the name of the start function, or ""
 */
function bounded(module, limits, isCommand) {
  let at = 8;
  const number = () => {
    let value = 0, shift = 1, byte;
    do {
      byte = module[at++] ?? cannot("the module is cut off");
      value += (byte & 127) * shift;
      shift *= 128;
    } while (byte > 127);
    return value;
  };
  /** @param {number} value @returns {number[]} */
  const leb = (value) => (value < 128 ? [value] : [(value % 128) | 128, ...leb(Math.floor(value / 128))]);
  /** @type {{ kind: number, body: Uint8Array }[]} */
  const sections = [];
  while (at < module.length) {
    const kind = module[at++], size = number();
    sections.push({ kind, body: module.subarray(at, (at += size)) });
  }
  /** @param {number} kind */
  const section = (kind) => sections.find((one) => one.kind === kind);
  /** Lowers the maxima of what a section declares. @param {number} kind @param {(declared: number[]) => number} most */
  const lower = (kind, most) => {
    const found = section(kind);
    if (!found) return;
    module = found.body;
    at = 0;
    const count = number();
    const items = [...Array(count > MOST_DECLARED ? cannot("the module declares too much") : count)].map(() => {
      const type = kind === 4 ? [module[at++]] : [], flags = number();
      if (flags > 1 || type[0] === 0x40) cannot("the module declares what this cannot bound");
      return { type, minimum: number(), maximum: flags ? number() : Infinity };
    });
    const limit = most(items.map((one) => one.maximum));
    const body = items.flatMap((one) => [...one.type, 1, ...leb(one.minimum), ...leb(Math.min(one.maximum, limit))]);
    found.body = Uint8Array.from([...leb(items.length), ...body]);
  };
  const interprets = sections.some(({ kind, body }) => kind === 0 && LENIENT.decode(body.subarray(1, 19)) === INTERPRETER && body[0] === 18);
  const memory = limits.memory || (interprets || isCommand ? 256 : 64) * MIB;
  lower(4, () => limits.table_elements);
  lower(5, (maxima) => shareOf(maxima, Math.min(Math.floor(memory / PAGE), MOST_PAGES)));
  const start = section(8), exports = section(7);
  const name = start ? "caxton:start" : "";
  if (start && exports) {
    module = exports.body;
    at = 0;
    const count = leb(number() + 1);
    exports.body = concat([Uint8Array.from(count), module.subarray(at), Uint8Array.of(name.length), UTF8.encode(name), Uint8Array.of(0), start.body]);
  }
  const kept = sections.filter((one) => one.kind !== 8);
  const parts = kept.flatMap(({ kind, body }) => [Uint8Array.of(kind, ...leb(body.length)), body]);
  return { module: concat([Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0), ...parts]), start: name, interprets };
}

/** How many pages each memory may have, so that all have no more than *pages*.
 * @param {number[]} maxima @param {number} pages */
function shareOf(maxima, pages) {
  let left = pages;
  const declared = maxima.map((most) => Math.min(most, pages)).sort((a, b) => a - b);
  for (const [place, most] of declared.entries()) {
    const sharers = declared.length - place;
    if (most * sharers > left) return Math.floor(left / sharers);
    left -= most;
  }
  return pages;
}

/** Compare how a guest ended with what is recorded.
 * @param {Guest} guest @param {End} end @param {boolean} interprets @returns {Found} */
function compared(guest, end, interprets) {
  const { recording } = guest, then = recording.end;
  guest.checkEnd();
  if (guest.calls < recording.reached) {
    const next = recording.calls.get(guest.calls + 1) ?? recording.asked.get(guest.calls + 1);
    diverged("a recorded call was not made", guest.calls + 1, next?.name, null);
  }
  if (guest.lines < recording.logged) diverged("a recorded log line was not written", guest.calls || null, recording.lines.get(guest.lines + 1)?.text, null);
  const now = endOf(guest, end, interprets);
  if (!then) return diverged("the run has no end in the log", null, null, now.text);
  const { type, payload } = then, recorded = type === "RunFailed" ? `${payload.kind}: ${payload.message}` : `completed: ${payload.output_sha256}`;
  const message = String(payload.message ?? "").replace(ABORTED, "");
  const byEngine = end.byEngine && type === "RunFailed" && payload.kind === now.kind && TRAPS.includes(message);
  const unreadable = now.kind === "agent_error" && now.text.startsWith("agent_error: output: ") && recorded.startsWith("agent_error: output: ");
  const same = now.kind === "agent_error" ? sameButMasked(recorded, now.text, false) : recorded === now.text;
  if (byEngine || unreadable || same) return { verdict: "identical", why: "" };
  return diverged("the end differs", null, recorded, now.text);
}

/** How an end would be recorded.
 * @param {Guest} guest @param {End} end @param {boolean} interprets */
function endOf({ result }, end, interprets) {
  if (end.kind === "limit") return { kind: "limit", text: `limit: ${end.limit}: ${end.message}` };
  if (end.kind === "trap" && !interprets) return { kind: "trap", text: `trap: ${end.message}` };
  if (end.kind === "trap") return { kind: "agent_error", text: `agent_error: ${ABORTED}${end.message}` };
  const raw = result ?? pack(null);
  if (!attempt(() => isJSON(unpack(raw), 200_000))) return { kind: "agent_error", text: "agent_error: output: it is no value" };
  if (end.code) return { kind: "agent_error", text: `agent_error: ${end.message || `the agent returned ${end.code}`}` };
  return { kind: "completed", text: `completed: ${hexOf(sha256(raw))}` };
}

/** Execute a run again, and return what was found.
 * @param {{ events: RunEvent[], blobs: Map<string, Uint8Array>, run: string }} given
 * @param {(calls: number) => void} [progress]
 * @returns {Promise<Found & { calls: number }>} */
async function execute({ events, blobs, run }, progress = () => {}) {
  /** @type {Guest | null} */
  let guest = null;
  try {
    const recording = new Recording(events, run), { started } = recording;
    const { abi, program, module_sha256 } = started;
    if (abi === "client/1") cannot("it is a session: a client made its calls, and what that did between them is not in the log");
    if (program?.language === "python") cannot("it is a program in Python, whose runtime is a component; browsers execute core modules only");
    if (abi === "component/1") cannot("it is a component; browsers execute core modules only");
    if (abi !== "core/1" && abi !== "wasi/1") cannot(`its ABI, ${abi}, is not known here`);
    guest = abi === "wasi/1" ? new WasiGuest(recording, blobs, progress) : new Guest(recording, blobs, progress);
    const bytes = guest.blob(module_sha256);
    if (hexOf(sha256(bytes)) !== module_sha256) cannot("the module is not the one that is recorded");
    const made = bounded(bytes, guest.limits, abi === "wasi/1"), module = await WebAssembly.compile(/** @type {BufferSource} */ (made.module));
    guest.checkEnd();
    return { ...compared(guest, guest.run(module, made), made.interprets), calls: guest.calls };
  } catch (error) {
    const calls = guest?.calls ?? 0;
    if (error instanceof Stop && "verdict" in error.reason) return { at: null, recorded: null, now: null, ...error.reason, calls };
    return { verdict: "cannot", why: String(error), calls };
  }
}

// In a worker, and not in what only loads this.
if ("WorkerGlobalScope" in globalThis) {
  self.onmessage = async ({ data }) => {
    if (data?.type !== "execute") return;
    const found = await execute(data, (calls) => self.postMessage({ type: "progress", calls }));
    self.postMessage({ type: "done", at: null, recorded: null, now: null, ...found });
  };
}
