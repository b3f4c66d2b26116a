/* {{name}}: asks a tool for the time and outputs its answer. */
import { AgentError, log, mcpCall } from "caxton";

export function run() {
  try {
    const reply = mcpCall("mcp__time__get_current_time", { timezone: "UTC" });
    return { time: reply.message };
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    log.warning("there is no answer");
    return { error: error.code };
  }
}
