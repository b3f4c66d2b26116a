/*
 * execute.mjs: executes runs as the worker of a page does. A line of JSON each: what a page
 * sends, with bytes in base64, and what it is told. A line with an `ask` calls that function.
 */
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { runInThisContext } from "node:vm";

const told = {};
globalThis.WorkerGlobalScope = globalThis.self = globalThis;
globalThis.postMessage = (message) => told[message.type](message);
runInThisContext(process.argv.slice(2).map((path) => readFileSync(path, "utf8")).join("\n"));
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));

const functions = {
  sha256: (data) => hexOf(sha256(data)),
  shake256: (seed, size) => hexOf(Uint8Array.from({ length: size }, ((stream) => () => stream.next().value)(shake256(seed)))),
  repack: (data) => hexOf(pack(unpack(data))),
  toJSON: (data) => jsonOf(unpack(data)),
  fromJSON: (data) => hexOf(pack(fromJSON(STRICT.decode(data)))),
  batch: (data) => partsOf(data, 64).map((item) => itemOf(item).map(hexOf)),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { ask, given, events, blobs, run } = JSON.parse(line);
  if (ask) {
    try {
      console.log(JSON.stringify(functions[ask](...given.map((one) => (typeof one === "string" ? bytes(one) : one)))));
    } catch {
      console.log("null");
    }
    continue;
  }
  const sent = structuredClone({
    type: "execute",
    run,
    events: events.map((one) => ({ ...one, payload: one.payload === null ? null : unpack(bytes(one.payload)) })),
    blobs: new Map(Object.entries(blobs).map(([digest, data]) => [digest, bytes(data)])),
  });
  let progress = 0;
  told.progress = ({ calls }) => (progress = calls);
  const done = await new Promise((resolve) => {
    told.done = resolve;
    onmessage({ data: sent });
  });
  console.log(JSON.stringify({ ...done, progress }));
}
