// The verdict of the page's verifier of each bundle: a line of JSON in, a line of JSON out.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import vm from "node:vm";

for (const path of process.argv.slice(2)) vm.runInThisContext(readFileSync(path, "utf8"), path);

const verify = vm.runInThisContext("verify");
for await (const line of createInterface({ input: process.stdin })) {
  const { data, keys } = JSON.parse(line);
  const pinned = keys.map((key) => new Uint8Array(Buffer.from(key, "hex")));
  const { verdict, why, where } = await verify(Buffer.from(data, "base64").toString("latin1"), pinned);
  console.log(JSON.stringify({ verdict, why, where }));
}
