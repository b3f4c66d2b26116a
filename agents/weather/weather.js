/*
 * Asks for the weather, then calls a tool that is not granted.
 *
 * Input: {"location": text}; without one, Seattle. Output: a map with the answers
 * and the denial.
 */
import { AgentError, Denied, input, log, mcpCall } from "caxton";

function ask(name, params) {
  try {
    return mcpCall(name, params);
  } catch (error) {
    if (error instanceof AgentError) return error;
    throw error;
  }
}

const answer = ({ status, message }) => ({ status, message });

export function run() {
  const wanted = input()?.location;
  const location = typeof wanted === "string" && wanted ? wanted : "Seattle";

  const weather = ask("weather", { location });
  log[weather.status === "ok" ? "info" : "warning"](weather.message);

  const forecast = ask("mcp__webhook__forecast", { location });
  const echo = ask("mcp__demo__echo", { text: "is anybody there?" });

  return {
    summary: weather.message,
    forecast: answer(forecast),
    denied: echo instanceof Denied,
    echo: answer(echo),
  };
}
