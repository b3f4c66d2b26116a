// The official client with its tasks of 2025-11-25: node tasks.mjs PACKAGES URL
// Prints what came of a call of each tool, as JSON.
const [packages, url] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } = await import(
  `${packages}/client/dist/index.mjs`
);
const { createTaskSessionFromClient } = await import(
  `${packages}/ext-tasks/dist/client/index.js`
);

const client = new Client({ name: "official", version: "1" }, { capabilities: {} });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const session = createTaskSessionFromClient(client, { endpointId: "suite" });
const found = { listed: [] };
for (const tool of ["slow_compute", "greet", "failing_job"]) {
  const task = { preference: "prefer", retentionMs: 60000 };
  const execution = await session.callTool(tool, {}, { task });
  const states = [];
  const onEvent = (event) => void (event.task && states.push(event.task.status));
  const { outcome } = await execution.settle({ onEvent });
  const said = outcome.result?.content[0].text ?? outcome.error.message;
  const ttl = outcome.task?.ttl ?? null;
  found[tool] = { kind: execution.kind, states, said, ttl };
}
for (const task of (await session.listTasks()).tasks) found.listed.push(task.status);
console.log(JSON.stringify(found));
await session.close();
await client.close();
