//! Plans a trip: asks for the weather in all cities at once, for the distances of a
//! tour one after the other, and orders things until the budget is spent.
//!
//! Input: {"cities": [text, ...], "since": integer}. Output: the weather by city, null
//! where there is none; the length of the tour; and what came of the orders.

use caxton::{json, Error, Level, Value};

caxton::agent!(run);

const ITEMS: [(&str, i64); 3] = [("lamp", 1), ("map", 300), ("tent", 70000)];

fn run() -> Result<(), Error> {
    let input = caxton::input();
    let asks = input["cities"].items().iter().map(|city| {
        let params = json!({"location": city, "since": &input["since"]});
        ("weather", params)
    });
    let mut weather = Vec::new();
    let mut fine = Vec::new();
    let outcomes = caxton::mcp_call_many(asks)?;
    for (city, outcome) in input["cities"].items().iter().zip(outcomes) {
        let city = city.as_str().unwrap_or_default();
        let told = match outcome {
            Ok(reply) => {
                let seen = &reply.data["structuredContent"];
                let sky = seen["sky"].as_str().unwrap_or_default();
                caxton::log(Level::Info, &format!("{}: {}", city, sky));
                fine.push(city);
                json!({"sky": sky, "celsius": &seen["celsius"]})
            }
            Err(error) => {
                caxton::log(Level::Warning, &error.message);
                Value::Null
            }
        };
        weather.push((city.to_owned(), told));
    }

    let mut km = 0.0;
    for (i, start) in fine.iter().enumerate() {
        let reply = caxton::mcp_call(
            "mcp__maps__distance",
            json!({
                "start": *start,
                "end": fine[(i + 1) % fine.len()],
                "options": {"avoid": ["tolls", null], "walk": false, "detour": 0.5, "altitude": -200},
            }),
        )?;
        km += reply.data["structuredContent"]["result"]
            .as_f64()
            .unwrap_or_default();
    }

    let orders = ITEMS.iter().map(|(item, count)| {
        let params = json!({"item": *item, "count": *count});
        ("mcp__shop__order", params)
    });
    let mut statuses = Vec::new();
    let mut refused = None;
    for outcome in caxton::mcp_call_many(orders)? {
        match outcome {
            Ok(reply) => {
                caxton::log(Level::Info, &reply.message);
                statuses.push("ok");
            }
            Err(error) => {
                caxton::log(Level::Warning, &error.message);
                statuses.push(error.status());
                refused = Some(error.code);
            }
        }
    }
    caxton::output(json!({
        "weather": Value::Map(weather),
        "km": km,
        "orders": statuses,
        "refused": refused,
    }));
    Ok(())
}
