// Chats as its input says, and outputs what came of it.
import { chat, converse, input, tools } from "caxton";

export function run() {
  const { converse: long, options } = input();
  const messages = [{ role: "user", content: "Hello" }];
  const offered = tools().filter((tool) => tool.name !== "chat");
  let said = null;
  let error = null;
  try {
    said = long
      ? converse(messages, { ...options, rounds: 3 })
      : chat(messages, { ...options, tools: offered });
  } catch (caught) {
    error = [caught.code, caught.message];
  }
  return { said, error, messages };
}
