//! Chats as its input says, and outputs what came of it.

use caxton::{json, Chat, Error, Value};

caxton::agent!(run);

fn run() -> Result<(), Error> {
    let input = caxton::input();
    let mut messages = vec![json!({"role": "user", "content": "Hello"})];
    let chat = Chat {
        tools: caxton::tools(),
        options: input["options"].clone(),
        rounds: 3,
        ..Chat::default()
    };
    let said = match input["converse"].as_bool() {
        Some(true) => chat.converse(&mut messages),
        _ => chat.send(&messages),
    };
    let error = |error: Error| json!([error.code, error.message]);
    caxton::output(json!({
        "said": said.as_ref().ok().cloned(),
        "error": said.err().map_or(Value::Null, error),
        "messages": messages,
    }));
    Ok(())
}
