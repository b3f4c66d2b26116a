//! Uses every function of the SDK, as its input says.

use caxton::{json, Level, Value};

caxton::agent!(run);

fn run() -> Result<(), String> {
    let input = caxton::input();
    match input["task"].as_str() {
        Some("find") => {
            let path = input["path"].as_str().unwrap_or_default();
            caxton::output(input["value"].find(path).cloned());
        }
        Some("host") => caxton::output(json!({
            "tools": &caxton::tools()[0].name,
            "name": caxton::context("user_name"),
            "unknown": caxton::context("nobody").is_none(),
            "now": caxton::now(),
            "random": caxton::random(),
        })),
        Some("calls") => caxton::output(json!({
            "alone": alone(input["names"].items()),
            "together": together(input["names"].items()),
        })),
        Some("json") => caxton::output(made()),
        Some("parse") => caxton::output(parsed(input["text"].as_str().unwrap())),
        Some("log") => caxton::log(Level::Debug, "a word"),
        Some("error") => return Err("it is over".to_owned()),
        Some("panic") => drop([1, 2][input["task"].as_str().unwrap_or_default().len()]),
        Some("memory") => {
            let all: Vec<_> = (0..9).map(|_| Vec::<u8>::with_capacity(1 << 30)).collect();
            caxton::log(Level::Info, &format!("{:?}", all[8].as_ptr()));
        }
        _ => caxton::output(&input),
    }
    Ok(())
}

fn told(outcome: Result<caxton::Reply, caxton::Error>) -> Value {
    match outcome {
        Ok(reply) => {
            assert!(reply.data["content"][0]["text"] == reply.message.as_str());
            json!(reply.message)
        }
        Err(error) => {
            assert!(error.is_denied() == (error.status() == "denied"));
            json!(error.to_string())
        }
    }
}

fn alone(names: &[Value]) -> Vec<Value> {
    let call = |name: &Value| told(caxton::mcp_call(name.as_str().unwrap(), json!({"n": 1})));
    names.iter().map(call).collect()
}

fn together(names: &[Value]) -> Value {
    let calls = names
        .iter()
        .map(|name| (name.as_str().unwrap(), json!({"n": 1})));
    match caxton::mcp_call_many(calls) {
        Ok(outcomes) => Value::List(outcomes.into_iter().map(told).collect()),
        Err(error) => json!(error.to_string()),
    }
}

/// The value of a JSON text, and whether its own JSON text has the same value.
fn parsed(text: &str) -> Value {
    match text.parse::<Value>() {
        Ok(value) => json!({"value": &value, "again": value.to_string().parse() == Ok(value)}),
        Err(error) => json!({"error": caxton::Error::from(error).message}),
    }
}

fn made() -> Value {
    let key = String::from("made");
    let shown = json!({"a": [null, true, -1, 0.5, "\"\\\n\u{1}é"], "b": {}});
    json!({
        "nothing": null,
        "list": [1, -2, 2.5, true, null, "x", [], {}, [1, [2]], {"a": {"b": [null]}}],
        "sum": 1 + 2,
        (key): "key",
        "some": Some(1),
        "none": None::<String>,
        "shown": shown.to_string(),
    })
}
