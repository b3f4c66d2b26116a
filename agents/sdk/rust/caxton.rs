//! Write an agent for caxton_host in Rust.
//!
//! ```ignore
//! use caxton::{json, Error, Level};
//!
//! caxton::agent!(run);
//!
//! fn run() -> Result<(), Error> {
//!     let reply = caxton::mcp_call("weather", json!({"location": "Seattle"}))?;
//!     caxton::log(Level::Info, &reply.message);
//!     caxton::output(json!({"summary": reply.message}));
//!     Ok(())
//! }
//! ```
//!
//! `caxton agent build` compiles it for `wasm32-unknown-unknown`; it needs no other
//! crate. The parts of `std` that need no operating system work. Files, sockets, threads
//! and `std::time` panic or return an error. A panic ends the run and writes its message
//! to the log; running out of memory does the same.

mod chat;
mod json;
mod msgpack;
mod value;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;

pub use chat::Chat;
pub use json::ParseError;
pub use value::Value;

/// Makes a function `fn() -> Result<(), E>` the entry point of the agent.
///
/// `E` implements `Display`. An error is written to the run's log and fails the run
/// (`agent_error`).
///
/// An agent that has a `#[global_allocator]` writes `caxton::agent!(run, own_allocator);`.
#[macro_export]
macro_rules! agent {
    ($function:path) => {
        #[global_allocator]
        static CAXTON_MEMORY: $crate::Memory = $crate::Memory;
        $crate::agent!($function, own_allocator);
    };
    ($function:path, own_allocator) => {
        const _: () = {
            #[export_name = "run"]
            extern "C" fn entry() -> i32 {
                $crate::start($function)
            }
        };
    };
}

#[doc(hidden)]
pub fn start<E: fmt::Display>(function: fn() -> Result<(), E>) -> i32 {
    std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
    match function() {
        Ok(()) => 0,
        Err(error) => {
            log(Level::Error, &error.to_string());
            1
        }
    }
}

/// The allocator of `std`, which logs a failed allocation: `std` aborts without a message.
pub struct Memory;

fn given(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        log(Level::Error, "out of memory");
    }
    memory
}

unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        given(System.alloc(layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        given(System.alloc_zeroed(layout))
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        given(System.realloc(memory, layout, size))
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        System.dealloc(memory, layout)
    }
}

// ---- Calls ------------------------------------------------------------------

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// A short text for people.
    pub message: String,
    /// Every content block under `content`, and `structuredContent` if there is one.
    pub data: Value,
}

/// The kinds of errors of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The tool answered with an error.
    ToolError,
    /// The call was not sent: no rule allows it, one denies it, or a budget is spent.
    Denied,
    /// The call has no answer. It may have had an effect.
    Failed,
    /// The host could not read the call.
    BadRequest,
}

/// The reason why a call has no reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    pub kind: Kind,
    /// A code for programs: `not_granted`, `timeout`, ...
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// The answer of the tool, if it answered.
    pub data: Value,
}

impl Error {
    /// The host's name of the kind: `denied`, `tool_error`, `failed`, `bad_request`.
    pub fn status(&self) -> &'static str {
        match self.kind {
            Kind::ToolError => "tool_error",
            Kind::Denied => "denied",
            Kind::Failed => "failed",
            Kind::BadRequest => "bad_request",
        }
    }

    pub fn is_denied(&self) -> bool {
        self.kind == Kind::Denied
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} ({})", self.status(), self.message, self.code)
    }
}

impl std::error::Error for Error {}

/// Calls a tool by its exposed name. `params` is a map.
pub fn mcp_call(name: &str, params: impl Into<Value>) -> Result<Reply, Error> {
    let params = msgpack::encoded(&params.into());
    let (_, reply) = received(|out, cap| unsafe {
        host::mcp_call(
            name.as_ptr(),
            name.len(),
            params.as_ptr(),
            params.len(),
            out,
            cap,
        )
    });
    outcome(reply)
}

/// Calls up to 64 tools at once, and returns their answers in the order of the calls.
///
/// # Errors
///
/// The batch has more than 64 calls or more than 1 MiB. The error of a single call is
/// in its own answer and does not affect the other calls.
pub fn mcp_call_many<N, P>(
    calls: impl IntoIterator<Item = (N, P)>,
) -> Result<Vec<Result<Reply, Error>>, Error>
where
    N: Into<String>,
    P: Into<Value>,
{
    let items = calls.into_iter();
    let pairs = items.map(|(name, params)| Value::List(vec![name.into().into(), params.into()]));
    let batch = msgpack::encoded(&Value::List(pairs.collect()));
    let (status, reply) =
        received(|out, cap| unsafe { host::mcp_call_many(batch.as_ptr(), batch.len(), out, cap) });
    match reply {
        Value::List(replies) if status == 0 => Ok(replies.into_iter().map(outcome).collect()),
        refused => Err(problem(&refused)),
    }
}

fn outcome(reply: Value) -> Result<Reply, Error> {
    if reply["status"] != "ok" {
        return Err(problem(&reply));
    }
    Ok(Reply {
        message: text(&reply["message"]),
        data: reply["data"].clone(),
    })
}

fn problem(reply: &Value) -> Error {
    let kind = match reply["status"].as_str() {
        Some("tool_error") => Kind::ToolError,
        Some("denied") => Kind::Denied,
        Some("failed") => Kind::Failed,
        _ => Kind::BadRequest,
    };
    Error {
        kind,
        code: text(&reply["error"]["code"]),
        message: text(&reply["message"]),
        data: reply["data"].clone(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

// ---- The run ----------------------------------------------------------------

/// A granted tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
}

/// The granted tools.
pub fn tools() -> Vec<Tool> {
    let (_, found) = received(|out, cap| unsafe { host::tools(out, cap) });
    let tool = |one: &Value| Tool {
        name: text(&one["name"]),
        description: text(&one["description"]),
        input_schema: one["input_schema"].clone(),
    };
    found.items().iter().map(tool).collect()
}

/// A variable of the run.
pub fn context(key: &str) -> Option<Value> {
    let (status, value) =
        received(|out, cap| unsafe { host::context(key.as_ptr(), key.len(), out, cap) });
    (status == 0).then(|| value)
}

/// The input of the run; `Value::Null` by default.
pub fn input() -> Value {
    received(|out, cap| unsafe { host::input(out, cap) }).1
}

/// Sets the output of the run. The last value counts.
pub fn output(value: impl Into<Value>) {
    let bytes = msgpack::encoded(&value.into());
    unsafe { host::output(bytes.as_ptr(), bytes.len()) }
}

/// Time of the last recorded reply, or else of the start: microseconds since 1970, UTC.
/// A replay returns the same.
pub fn now() -> i64 {
    unsafe { host::now() }
}

/// 64 random bits from the seed in the log. A replay returns the same.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    unsafe { host::random(bytes.as_mut_ptr(), bytes.len()) };
    u64::from_le_bytes(bytes)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
}

/// Writes a line to the run's log.
pub fn log(level: Level, text: &str) {
    unsafe { host::log(level as u32, text.as_ptr(), text.len()) }
}

// ---- The host's functions ----------------------------------------------------

const FIRST_ROOM: usize = 8192;

/// The host keeps a reply that does not fit: grow the buffer, then fetch it.
fn received(ask: impl FnOnce(*mut u8, usize) -> u64) -> (u32, Value) {
    let mut bytes = vec![0; FIRST_ROOM];
    let result = ask(bytes.as_mut_ptr(), bytes.len());
    let size = result as u32 as usize;
    let waiting = size > bytes.len();
    bytes.resize(size, 0);
    if waiting {
        unsafe { host::take_reply(bytes.as_mut_ptr(), size) };
    }
    (
        (result >> 32) as u32,
        msgpack::decoded(&bytes).unwrap_or(Value::Null),
    )
}

mod host {
    #[link(wasm_import_module = "caxton")]
    extern "C" {
        pub fn mcp_call(
            name: *const u8,
            name_len: usize,
            params: *const u8,
            params_len: usize,
            out: *mut u8,
            cap: usize,
        ) -> u64;
        pub fn mcp_call_many(batch: *const u8, len: usize, out: *mut u8, cap: usize) -> u64;
        pub fn take_reply(out: *mut u8, cap: usize) -> u32;
        pub fn tools(out: *mut u8, cap: usize) -> u64;
        pub fn context(key: *const u8, len: usize, out: *mut u8, cap: usize) -> u64;
        pub fn input(out: *mut u8, cap: usize) -> u64;
        pub fn output(bytes: *const u8, len: usize);
        pub fn now() -> i64;
        pub fn random(out: *mut u8, len: usize);
        pub fn log(level: u32, text: *const u8, len: usize);
    }
}
