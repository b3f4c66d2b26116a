/*
 * Plans a trip: asks for the weather in all cities at once, for the distances of a
 * tour one after the other, and orders things until the budget is spent.
 *
 * Input: {"cities": [text, ...], "since": integer}. Output: the weather by city, null
 * where there is none; the length of the tour; and what came of the orders.
 */
import { AgentError, input, log, mcpCallMany, tools } from "caxton";

const ITEMS = { lamp: 1, map: 300, tent: 70000 };
const OPTIONS = { avoid: ["tolls", null], walk: false, detour: 0.5, altitude: -200 };

function seen(city, { value, reason }) {
  if (reason) {
    log.warning(reason.message);
    return null;
  }
  log.info(`${city}: ${value.sky}`);
  return { sky: value.sky, celsius: value.celsius };
}

export async function run() {
  const { cities, since } = input();
  const outcomes = await Promise.allSettled(
    cities.map((location) => tools.weather({ location, since })),
  );
  const weather = {};
  cities.forEach((city, i) => (weather[city] = seen(city, outcomes[i])));

  const fine = cities.filter((city) => weather[city]);
  let km = 0;
  for (const [i, start] of fine.entries()) {
    const end = fine[(i + 1) % fine.length];
    km += await tools.maps.distance({ start, end, options: OPTIONS });
  }

  const orders = mcpCallMany(
    Object.entries(ITEMS).map(([item, count]) => ["mcp__shop__order", { item, count }]),
  );
  let refused = null;
  for (const order of orders) {
    if (order instanceof AgentError) refused = order.code;
    log[order instanceof AgentError ? "warning" : "info"](order.message);
  }
  return { weather, km, orders: orders.map(({ status }) => status), refused };
}
