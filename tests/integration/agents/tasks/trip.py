"""
Plan a trip: weather of all cities at once, a tour leg by leg, and orders.

Input: {"cities": [text, ...], "since": integer}. Output: the weather by city, null
where there is none; the length of the tour; and what came of the orders.
"""

from __future__ import annotations

import asyncio

from caxton_agent import JSON, AgentError, aio, log, mcp_call_many, tools
from caxton_agent import input as given

ITEMS = {"lamp": 1, "map": 300, "tent": 70000}
OPTIONS = {"avoid": ["tolls", None], "walk": False, "detour": 0.5, "altitude": -200}


async def asked(cities: list[str], since: int) -> list[JSON]:
    calls = (aio.tools.weather(location=city, since=since) for city in cities)
    return await asyncio.gather(*calls, return_exceptions=True)


def seen(city: str, outcome: JSON) -> JSON:
    if isinstance(outcome, AgentError):
        log.warning(outcome.message)
        return None
    log.info(f"{city}: {outcome['sky']}")
    return {"sky": outcome["sky"], "celsius": outcome["celsius"]}


def ordered() -> tuple[list[str], str | None]:
    orders = [{"item": item, "count": count} for item, count in ITEMS.items()]
    outcomes = mcp_call_many(("mcp__shop__order", order) for order in orders)
    refused = None
    for outcome in outcomes:
        if isinstance(outcome, AgentError):
            log.warning(outcome.message)
            refused = outcome.code
        else:
            log.info(outcome.message)
    return [outcome.status for outcome in outcomes], refused


def run() -> JSON:
    cities = given()["cities"]
    outcomes = asyncio.run(asked(cities, given()["since"]))
    weather = dict(zip(cities, map(seen, cities, outcomes), strict=True))
    fine = [city for city in cities if weather[city]]
    km = 0.0
    for start, end in zip(fine, fine[1:] + fine[:1], strict=True):
        km += tools.maps.distance(start=start, end=end, options=OPTIONS)
    statuses, refused = ordered()
    return {"weather": weather, "km": km, "orders": statuses, "refused": refused}
