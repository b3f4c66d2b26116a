/*
 * events.js: what a run waits for. Calls that wait together are one batch; time is
 * that of the last reply, plus what the timers have moved it.
 */
import * as host from "caxton:host";

const MOST_CALLS = 64;
const MOST_BYTES = 1024 * 1024 - 16;

// ---- Time ------------------------------------------------------------------------

let moved = 0;

/** Microseconds since 1970. */
export const now = () => host.now() + moved;

// A heap: the timer at i is due before those at 2i + 1 and 2i + 2.
const timers = [];
const active = new Map();
let made = 0;

const before = (one, other) => one.due - other.due || one.id - other.id;

function swap(one, other) {
  [timers[one], timers[other]] = [timers[other], timers[one]];
}

function insert(timer) {
  let at = timers.push(timer) - 1;
  for (let up; at > 0 && before(timers[at], timers[(up = (at - 1) >> 1)]) < 0; at = up)
    swap(at, up);
}

function takeFirst() {
  const first = timers[0];
  const last = timers.pop();
  if (timers.length) timers[0] = last;
  for (let at = 0, down; (down = 2 * at + 1) < timers.length; at = down) {
    if (down + 1 < timers.length && before(timers[down + 1], timers[down]) < 0) down++;
    if (before(timers[at], timers[down]) <= 0) break;
    swap(at, down);
  }
  return first;
}

function schedule(action, delay, values, repeats) {
  if (typeof action !== "function") throw new TypeError("a timer needs a function");
  const period = Math.max(1, Math.trunc(Number(delay)) || 0) * 1000;
  const timer = { id: ++made, due: now() + period, action, values, period: repeats && period };
  active.set(timer.id, timer);
  insert(timer);
  return timer.id;
}

export const setTimeout = (action, delay, ...values) =>
  schedule(action, delay, values, false);
export const setInterval = (action, delay, ...values) =>
  schedule(action, delay, values, true);

export function clearTimeout(id) {
  active.delete(id);
}

function nextTimer() {
  while (timers.length && !active.has(timers[0].id)) takeFirst();
  return timers[0];
}

function fire() {
  const timer = takeFirst();
  moved += Math.max(0, timer.due - now());
  if (timer.period) {
    timer.due += timer.period;
    insert(timer);
  } else {
    active.delete(timer.id);
  }
  timer.action(...timer.values);
}

// ---- Calls -----------------------------------------------------------------------

const waiting = [];

/** Make a call together with all others that wait at that time. */
export const call = (name, params) => {
  const packed = host.pack([name, params]);
  return new Promise((resolve) => waiting.push({ packed, resolve }));
};

function batch() {
  let count = 0;
  let size = 0;
  while (count < Math.min(waiting.length, MOST_CALLS)) {
    size += waiting[count].packed.byteLength;
    if (count && size > MOST_BYTES) break;
    count++;
  }
  return waiting.splice(0, count);
}

function send() {
  const calls = batch();
  const packed = calls.map((one) => one.packed);
  const replies = calls.length > 1 ? host.mcpCallMany(packed) : [host.mcpCall(packed[0])];
  calls.forEach((one, i) => one.resolve(Array.isArray(replies) ? replies[i] : replies));
}

// ---- Steps -----------------------------------------------------------------------

/** Do the next thing that the run waits for. Returns false if there is none. */
export function step() {
  const timer = nextTimer();
  if (timer && timer.due <= now()) fire();
  else if (waiting.length) send();
  else if (timer) fire();
  else return false;
  return true;
}
