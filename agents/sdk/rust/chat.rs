//! Chats with a language model that is a tool. What a model says is untrusted: everything
//! is checked and bounded before it is used.

use crate::{json, mcp_call, mcp_call_many, tools, Error, Kind, Reply, Tool, Value};

const MOST_CALLS: usize = 64;
const MOST_NAME: usize = 128;
const SHOWN: usize = 80;

/// How to chat: `let chat = Chat { tools: caxton::tools(), ..Chat::default() };`.
///
/// A message is a map: `json!({"role": "user", "content": "..."})`. That of a model has
/// `content`, and `tool_calls` if the model requests calls.
#[derive(Clone, Debug)]
pub struct Chat {
    /// The exposed name of the model; `chat` by default.
    pub via: String,
    /// Tools that the model may request, none by default. The model itself is not offered.
    pub tools: Vec<Tool>,
    /// A map of further parameters, such as `model` or `temperature`.
    pub options: Value,
    /// How often `converse` asks the model at most; 8 by default.
    pub rounds: usize,
    /// Characters of one answer that `converse` tells the model; 16,000 by default.
    pub most: usize,
}

impl Default for Chat {
    fn default() -> Chat {
        Chat {
            via: "chat".to_owned(),
            tools: Vec::new(),
            options: Value::Null,
            rounds: 8,
            most: 16_000,
        }
    }
}

impl Chat {
    /// Sends a conversation, and returns the message of the model. Append it to the
    /// messages before the next chat.
    ///
    /// # Errors
    ///
    /// As of `mcp_call`; with the code `bad_answer`, the answer is not a message.
    pub fn send(&self, messages: &[Value]) -> Result<Value, Error> {
        let mut params = self.options.pairs().to_vec();
        params.push(("messages".to_owned(), Value::List(messages.to_vec())));
        let definitions: Vec<Value> = self.offered().map(definition).collect();
        if !definitions.is_empty() {
            params.push(("tools".to_owned(), Value::List(definitions)));
        }
        let reply = mcp_call(&self.via, Value::Map(params))?;
        self.message(&reply)
    }

    /// Chats, makes the calls that the model requests, and returns its last message.
    ///
    /// The calls of one message are made together, under the grants of the agent. The
    /// model is told about each error, and can continue without that call. Every message
    /// and every answer of a tool is appended to `messages`.
    ///
    /// # Errors
    ///
    /// As of `send`; with the code `rounds`, the model still requests calls in the last
    /// round.
    pub fn converse(&self, messages: &mut Vec<Value>) -> Result<Value, Error> {
        for _ in 0..self.rounds {
            let said = self.send(messages)?;
            messages.push(said.clone());
            let calls = said["tool_calls"].items();
            if calls.is_empty() {
                return Ok(said);
            }
            let outcomes = self.outcomes(calls)?;
            for (call, outcome) in calls.iter().zip(outcomes) {
                messages.push(json!({
                    "role": "tool",
                    "tool_call_id": &call["id"],
                    "content": self.told(outcome),
                }));
            }
        }
        let why = format!("the model still requests calls in round {}", self.rounds);
        Err(error(Kind::ToolError, "rounds", why))
    }

    fn offered(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().filter(move |tool| tool.name != self.via)
    }

    /// The message in the answer of a model, checked.
    fn message(&self, reply: &Reply) -> Result<Value, Error> {
        let bad = |why: String| error(Kind::ToolError, "bad_answer", why);
        let mut found = reply.data["structuredContent"].clone();
        if found.is_null() {
            found = reply.message.parse().map_err(|why| {
                bad(format!(
                    "the answer of {} is not a completion: {}",
                    self.via, why
                ))
            })?;
        }
        if found.pairs().len() == 1 && found.get("result").is_some() {
            found = found["result"].clone();
        }
        if let Some(choices) = found.get("choices") {
            found = choices[0]["message"].clone();
        }
        if found.get("content").is_none() && found.get("tool_calls").is_none() {
            return Err(bad(format!("the answer of {} has no message", self.via)));
        }
        if !matches!(
            found["content"],
            Value::Null | Value::Text(_) | Value::List(_)
        ) {
            let why = "the content of the message is neither text nor a list";
            return Err(bad(why.to_owned()));
        }
        let calls = &found["tool_calls"];
        if !matches!(calls, Value::Null | Value::List(_)) || !calls.items().iter().all(is_call) {
            let why = "tool_calls is not a list of calls with id, name and arguments";
            return Err(bad(why.to_owned()));
        }
        if calls.items().len() > MOST_CALLS {
            return Err(bad(format!(
                "the message requests {} calls, {} are allowed",
                calls.items().len(),
                MOST_CALLS
            )));
        }
        let mut pairs = found.pairs().to_vec();
        pairs.retain(|(key, _)| key != "role");
        pairs.insert(0, ("role".to_owned(), "assistant".into()));
        Ok(Value::Map(pairs))
    }

    /// Makes the calls that are valid, together, and returns the outcome of each.
    fn outcomes(&self, calls: &[Value]) -> Result<Vec<Result<Reply, Error>>, Error> {
        let read: Vec<_> = calls
            .iter()
            .map(|call| self.requested(&call["function"]))
            .collect();
        let valid: Vec<_> = read.iter().flatten().cloned().collect();
        let mut answers = match valid.len() {
            0 => Vec::new(),
            _ => mcp_call_many(valid)?,
        }
        .into_iter();
        let outcomes = read.into_iter().map(|call| {
            let (name, _) = call?;
            let lost = || error(Kind::Failed, "failed", format!("{} has no answer", name));
            answers.next().unwrap_or_else(|| Err(lost()))
        });
        Ok(outcomes.collect())
    }

    fn requested(&self, function: &Value) -> Result<(String, Value), Error> {
        let name = function["name"].as_str().unwrap_or_default();
        if !self.offered().any(|tool| tool.name == name) && !self.is_made_up(name) {
            let shown: String = name.chars().take(SHOWN).collect();
            let why = format!(
                "there is no tool \"{}\" in this conversation",
                shown.escape_default()
            );
            return Err(error(Kind::Denied, "not_offered", why));
        }
        let bad = |why: String| error(Kind::BadRequest, "bad_arguments", why);
        let params = match &function["arguments"] {
            Value::Null => Value::Map(Vec::new()),
            Value::Text(text) if text.is_empty() => Value::Map(Vec::new()),
            Value::Text(text) => text
                .parse()
                .map_err(|why| bad(format!("the arguments are not JSON: {}", why)))?,
            other => other.clone(),
        };
        match params {
            Value::Map(_) => Ok((name.to_owned(), params)),
            _ => Err(bad("the arguments are not a JSON object".to_owned())),
        }
    }

    /// Whether the host is to deny a name, and to record that. What the author left out
    /// of the tools is not called.
    fn is_made_up(&self, name: &str) -> bool {
        let is_offered = |tool: &Tool| self.offered().any(|one| one.name == tool.name);
        (1..=MOST_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic())
            && name != self.via
            && tools().iter().all(|tool| tool.name == self.via || is_offered(tool))
    }

    /// The outcome of a call as text for the model.
    fn told(&self, outcome: Result<Reply, Error>) -> String {
        let text = match outcome {
            Err(error) => error.to_string(),
            Ok(reply) => match reply.data.get("structuredContent") {
                Some(value) if reply.data["content"].items().is_empty() => value.to_string(),
                _ => reply.message,
            },
        };
        match text.char_indices().nth(self.most) {
            None => text,
            Some((end, _)) => format!(
                "{}\n({} more characters were cut)",
                &text[..end],
                text[end..].chars().count()
            ),
        }
    }
}

fn definition(tool: &Tool) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": &tool.name,
            "description": &tool.description,
            "parameters": &tool.input_schema,
        },
    })
}

fn is_call(call: &Value) -> bool {
    let function = &call["function"];
    let arguments = &function["arguments"];
    call["id"].as_str().is_some()
        && function["name"].as_str().is_some()
        && matches!(arguments, Value::Null | Value::Text(_) | Value::Map(_))
}

fn error(kind: Kind, code: &str, message: String) -> Error {
    Error {
        kind,
        code: code.to_owned(),
        message,
        data: Value::Null,
    }
}
