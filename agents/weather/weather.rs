//! Asks for the weather, then calls a tool that is not granted.
//!
//! Input: {"location": text}; without one, Seattle. Output: a map with the answers
//! and the denial.

use caxton::{json, Error, Level, Reply, Value};

caxton::agent!(run);

fn run() -> Result<(), Error> {
    let input = caxton::input();
    let location = match input["location"].as_str() {
        None | Some("") => "Seattle",
        Some(location) => location,
    };

    let weather = caxton::mcp_call("weather", json!({"location": location}));
    let summary = message(&weather);
    let level = if weather.is_ok() {
        Level::Info
    } else {
        Level::Warning
    };
    caxton::log(level, summary);

    let forecast = caxton::mcp_call("mcp__webhook__forecast", json!({"location": location}));
    let echo = caxton::mcp_call("mcp__demo__echo", json!({"text": "is anybody there?"}));

    caxton::output(json!({
        "summary": summary,
        "forecast": answer(&forecast),
        "denied": echo.as_ref().map_or_else(Error::is_denied, |_| false),
        "echo": answer(&echo),
    }));
    Ok(())
}

fn message(answer: &Result<Reply, Error>) -> &str {
    match answer {
        Ok(reply) => &reply.message,
        Err(error) => &error.message,
    }
}

fn answer(answer: &Result<Reply, Error>) -> Value {
    let status = answer.as_ref().map_or_else(Error::status, |_| "ok");
    json!({"status": status, "message": message(answer)})
}
