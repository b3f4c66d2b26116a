/*
 * Chats with a language model that is a tool. caxton.d.ts documents each function.
 *
 * What a model says is untrusted: everything is checked and bounded before it is used.
 */
import {
  AgentError,
  BadRequest,
  Denied,
  ToolError,
  context,
  mcpCall,
  mcpCallMany,
  tools as granted,
} from "caxton:sdk";

const MOST_CALLS = 64;
const MOST_LEVELS = 64;
const SHOWN = 80;
const STRING = /"[^"\\]*(?:\\.[^"\\]*)*"/gs;
const NAME = /^[!-~]{1,128}$/;
const INTEGER = /^-?\d+$/;

export function chat(messages, { tools = [], via = "chat", ...options } = {}) {
  const definitions = Array.from(tools, definition);
  const offered = definitions.length ? { tools: definitions } : {};
  return message(mcpCall(via, { ...options, messages: [...messages], ...offered }), via);
}

export function converse(messages, settings = {}) {
  const { tools, via = "chat", rounds = 8, most = 16_000, ...options } = settings;
  const chosen = tools ? [...tools] : granted().filter((tool) => tool.name !== via);
  const offered = new Set(chosen.map((tool) => tool.name));
  // What the author left out is not called. Without that, the host decides.
  const asks = granted().every(({ name }) => name === via || offered.has(name));
  // A name that the model made up is the host's to deny, and to record.
  const callable = (name) =>
    offered.has(name) || (asks && name !== via && NAME.test(name));
  for (let round = 0; round < rounds; round++) {
    const said = chat(messages, { ...options, tools: chosen, via });
    messages.push(said);
    const calls = said.tool_calls ?? [];
    if (!calls.length) return said;
    outcomes(calls, callable).forEach((outcome, at) =>
      messages.push({
        role: "tool",
        tool_call_id: calls[at].id,
        content: told(outcome, most),
      }),
    );
  }
  throw toolError("rounds", `the model still requests calls in round ${rounds}`);
}

export function conversation({ via = "chat" } = {}) {
  const found = context("conversation");
  return found ? [...found.messages, message(found.answer, via)] : [];
}

const failed = (kind, status, code, message) =>
  new kind({ status, message, error: { code, message }, data: null });

const toolError = (code, why) => failed(ToolError, "tool_error", code, why);

const bad = (why) => toolError("bad_answer", why);

const badArguments = (why) => failed(BadRequest, "bad_request", "bad_arguments", why);

const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function definition(tool) {
  if (!("input_schema" in tool)) return tool;
  const { name, description, input_schema: parameters } = tool;
  return { type: "function", function: { name, description, parameters } };
}

/** The message in the answer of a model, checked. */
function message(reply, via) {
  let found = reply.data?.structuredContent;
  if (found === undefined) {
    try {
      found = parsed(reply.message);
    } catch (error) {
      throw bad(`the answer of ${via} is not a completion: ${error.message}`);
    }
  }
  if (isObject(found) && Object.keys(found).join() === "result") found = found.result;
  if (isObject(found) && "choices" in found) found = found.choices?.[0]?.message;
  if (!isObject(found) || !("content" in found || "tool_calls" in found))
    throw bad(`the answer of ${via} has no message`);
  const content = found.content ?? "";
  if (typeof content !== "string" && !Array.isArray(content))
    throw bad("the content of the message is neither text nor a list");
  const calls = found.tool_calls ?? [];
  if (!Array.isArray(calls) || !calls.every(isCall))
    throw bad("tool_calls is not a list of calls with id, name and arguments");
  if (calls.length > MOST_CALLS)
    throw bad(`the message requests ${calls.length} calls, ${MOST_CALLS} are allowed`);
  return { ...found, role: "assistant" };
}

function isCall(call) {
  const wanted = call?.function;
  return (
    isObject(wanted) &&
    typeof call.id === "string" &&
    typeof wanted.name === "string" &&
    ["string", "object", "undefined"].includes(typeof wanted.arguments) &&
    !Array.isArray(wanted.arguments)
  );
}

/** Makes the calls that are valid, together, and returns the outcome of each. */
function outcomes(calls, callable) {
  const read = calls.map((call) => requested(call.function, callable));
  const valid = read.filter((call) => !(call instanceof AgentError));
  const answers = (valid.length ? mcpCallMany(valid) : []).values();
  return read.map((call) => (call instanceof AgentError ? call : answers.next().value));
}

function requested({ name, arguments: given }, callable) {
  if (!callable(name)) {
    const shown = JSON.stringify(name.slice(0, SHOWN)).replace(
      /[^ -~]/g,
      (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
    const why = `there is no tool ${shown} in this conversation`;
    return failed(Denied, "denied", "not_offered", why);
  }
  let params;
  try {
    params = isObject(given) ? given : parsed(given || "{}");
  } catch (error) {
    return badArguments(`the arguments are not JSON: ${error.message}`);
  }
  if (isObject(params)) return [name, params];
  return badArguments("the arguments are not a JSON object");
}

/** The value of a JSON text, with exact integers. Deep texts could end the run. */
function parsed(text) {
  let depth = 0;
  for (const [bracket] of text.replace(STRING, "").matchAll(/[[\]{}]/g)) {
    depth += "[{".includes(bracket) ? 1 : -1;
    if (depth > MOST_LEVELS) throw new SyntaxError(`more than ${MOST_LEVELS} levels`);
  }
  return JSON.parse(text, (_key, value, { source }) =>
    typeof value === "number" && !Number.isSafeInteger(value) && INTEGER.test(source)
      ? BigInt(source)
      : value,
  );
}

/** The outcome of a call as text for the model. */
function told(outcome, most) {
  let text = outcome.message;
  if (outcome instanceof AgentError)
    text = `${outcome.status}: ${outcome.message} (${outcome.code})`;
  else if (!outcome.data?.content?.length && outcome.data?.structuredContent !== undefined)
    text = JSON.stringify(outcome.data.structuredContent);
  const rest = text.length - most;
  return rest > 0
    ? `${text.slice(0, most)}\n(${rest} more characters were cut)`
    : text;
}
