//! {{name}}: asks a tool for the time and outputs its answer.

use caxton::{json, Error, Level};

caxton::agent!(run);

fn run() -> Result<(), Error> {
    match caxton::mcp_call("mcp__time__get_current_time", json!({"timezone": "UTC"})) {
        Ok(reply) => caxton::output(json!({"time": reply.message})),
        Err(error) => {
            caxton::log(Level::Warning, "there is no answer");
            caxton::output(json!({"error": error.code}));
        }
    }
    Ok(())
}
