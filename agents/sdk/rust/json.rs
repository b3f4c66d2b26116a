//! Reads JSON text. Internal.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::{Error, Kind, Value};

/// Maximum depth; above the limit of the host.
const DEPTH: usize = 128;
const MIN: i128 = i64::MIN as i128;
const MAX: i128 = u64::MAX as i128;

/// The reason why a text is not JSON, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for ParseError {}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Error {
        Error {
            kind: Kind::BadRequest,
            code: "json".to_owned(),
            message: error.to_string(),
            data: Value::Null,
        }
    }
}

/// Reads JSON text: `let value: Value = reply.message.parse()?;`.
///
/// # Errors
///
/// The text is not JSON as RFC 8259 defines it, has more than 128 levels, repeats a key,
/// or has a number that is neither an integer from -2^63 to 2^64 - 1 nor a finite float.
impl FromStr for Value {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Value, ParseError> {
        let mut reader = Reader { text, at: 0 };
        reader.space();
        let value = reader.value(DEPTH)?;
        reader.space();
        match reader.peek() {
            None => Ok(value),
            Some(_) => reader.fail("the end of the text is expected"),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    /// Index of the next byte. Every token ends at the boundary of a character.
    at: usize,
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, message: &str) -> Result<T, ParseError> {
        self.fail_at(self.at, message)
    }

    fn fail_at<T>(&self, at: usize, message: &str) -> Result<T, ParseError> {
        let before = &self.text[..at];
        let line = before.rsplit('\n').next().unwrap_or_default();
        Err(ParseError {
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
            message: message.to_owned(),
        })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += found as usize;
        found
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, ParseError> {
        match self.peek() {
            Some(b'{' | b'[') if depth == 0 => self.fail(&format!("more than {} levels", DEPTH)),
            Some(b'{') => self.map(depth - 1),
            Some(b'[') => self.list(depth - 1),
            Some(b'"') => self.string().map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Value, ParseError> {
        let words = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
        ];
        for (word, value) in words {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        self.fail("a value is expected")
    }

    fn list(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            self.space();
            items.push(self.value(depth)?);
            self.space();
            if self.take(b']') {
                return Ok(Value::List(items));
            }
            if !self.take(b',') {
                return self.fail("a comma or ] is expected");
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.at += 1;
        let mut pairs = Vec::new();
        let mut keys = BTreeSet::new();
        self.space();
        if self.take(b'}') {
            return Ok(Value::Map(pairs));
        }
        loop {
            self.space();
            let start = self.at;
            if self.peek() != Some(b'"') {
                return self.fail("a key in double quotes is expected");
            }
            let key = self.string()?;
            if !keys.insert(key.clone()) {
                return self.fail_at(start, "the key occurs twice");
            }
            self.space();
            if !self.take(b':') {
                return self.fail("a colon is expected");
            }
            self.space();
            pairs.push((key, self.value(depth)?));
            self.space();
            if self.take(b'}') {
                return Ok(Value::Map(pairs));
            }
            if !self.take(b',') {
                return self.fail("a comma or } is expected");
            }
        }
    }

    fn string(&mut self) -> Result<String, ParseError> {
        let start = self.at;
        self.at += 1;
        let mut found = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .find(|char| matches!(char, '"' | '\\' | '\0'..='\x1f'))
                .unwrap_or(rest.len());
            found.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(found);
                }
                Some(b'\\') => found.push(self.escape()?),
                Some(_) => return self.fail("a control character must be escaped"),
                None => return self.fail_at(start, "the text has no closing quote"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        let start = self.at;
        self.at += 2;
        Ok(match self.text.as_bytes().get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let mut unit = self.unit(start)?;
                if let 0xd800..=0xdbff = unit {
                    if self.text[self.at..].starts_with("\\u") {
                        self.at += 2;
                        let low = self.unit(start)?;
                        if let 0xdc00..=0xdfff = low {
                            unit = 0x10000 + ((unit - 0xd800) << 10 | (low - 0xdc00));
                        }
                    }
                }
                match char::from_u32(unit) {
                    Some(char) => char,
                    None => return self.fail_at(start, "half of a surrogate pair"),
                }
            }
            _ => return self.fail_at(start, "an unknown escape"),
        })
    }

    /// The four hexadecimal digits of an escape that began at `start`.
    fn unit(&mut self, start: usize) -> Result<u32, ParseError> {
        let digits = self.text.get(self.at..self.at + 4).unwrap_or_default();
        if digits.len() < 4 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return self.fail_at(start, "four hexadecimal digits are expected");
        }
        self.at += 4;
        Ok(u32::from_str_radix(digits, 16).unwrap_or_default())
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let start = self.at;
        self.take(b'-');
        let zero = self.peek() == Some(b'0');
        let digits = self.digits()?;
        if zero && digits > 1 {
            return self.fail_at(start, "a number must not begin with 0");
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        if integer {
            return match text.parse() {
                Ok(number @ MIN..=MAX) => Ok(Value::Int(number)),
                _ => self.fail_at(start, "an integer has more than 64 bits"),
            };
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Float(number)),
            _ => self.fail_at(start, "a number is too large"),
        }
    }

    fn digits(&mut self) -> Result<usize, ParseError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        match self.at - start {
            0 => self.fail("a digit is expected"),
            count => Ok(count),
        }
    }
}
