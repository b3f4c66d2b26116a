// Works through a session with an official TypeScript SDK, and prints what it saw.
//
//     node client.mjs FOLDER_WITH_PACKAGES PACKAGE PLAN
import { createRequire } from "node:module";

const [, , folder, name, given] = process.argv;
const require = createRequire(`${folder}/x.js`);
const plan = JSON.parse(given);
const isOld = name === "@modelcontextprotocol/sdk";
const at = (path) => require(name + (isOld ? `/client/${path}` : ""));
const { Client } = at("index.js");
const { StreamableHTTPClientTransport } = at("streamableHttp.js");

const options = isOld ? {} : { versionNegotiation: { mode: "auto" } };
const client = new Client({ name: "typescript", version: "1" }, options);
const headers = { Authorization: `Bearer ${plan.token}` };
await client.connect(
  new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers } }),
);

const call = (tool, args, more = {}) => {
  const params = { name: tool, arguments: args };
  return isOld ? client.callTool(params, undefined, more) : client.callTool(params, more);
};
const said = {};
said.tools = (await client.listTools()).tools.map((tool) => tool.name);
said.calls = {};
for (const [tool, args] of Object.entries(plan.calls)) {
  const { isError, content, structuredContent } = await call(tool, args);
  said.calls[tool] = [isError, content[0].text, structuredContent];
}
said.resources = (await client.listResources()).resources.map((one) => one.uri);
said.templates = (await client.listResourceTemplates()).resourceTemplates.map(
  (one) => one.uriTemplate,
);
said.read = (await client.readResource({ uri: plan.uri })).contents[0].text;
said.unread = await client.readResource({ uri: plan.hidden }).catch((e) => e.message);
said.prompts = (await client.listPrompts()).prompts.map((one) => one.name);
const [prompt, args] = plan.prompt;
const got = await client.getPrompt({ name: prompt, arguments: args });
said.prompt = got.messages[0].content.text;
const ref = { type: "ref/prompt", name: plan.complete };
const argument = { name: "department", value: "S" };
said.completion = (await client.complete({ ref, argument })).completion.values;
said.progress = [];
const onprogress = ({ progress }) => said.progress.push(progress);
await call(...plan.slow, { onprogress });
const leaving = new AbortController();
const leave = { onprogress: () => leaving.abort(), signal: leaving.signal };
said.left = await call(...plan.slowest, leave).then(
  () => false,
  () => true,
);
await client.close();
console.log(JSON.stringify(said));
