//! A JSON value.

use std::fmt;
use std::ops::Index;

/// A value of parameters and answers.
///
/// A missing value reads as `Null`: `value["data"]["content"][0]["text"]` never panics.
/// `text.parse::<Value>()` reads JSON text, and `value.to_string()` writes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// From -2^63 to 2^64 - 1; the host rejects others.
    Int(i128),
    /// Finite; the host rejects others.
    Float(f64),
    Text(String),
    List(Vec<Value>),
    /// In order of insertion. Keys are unique; the host rejects duplicates.
    Map(Vec<(String, Value)>),
}

impl Value {
    pub fn is_null(&self) -> bool {
        *self == Value::Null
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(yes) => Some(*yes),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(number) => i64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Any number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The values of a list; empty for other types.
    pub fn items(&self) -> &[Value] {
        match self {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The pairs of a map; empty for other types.
    pub fn pairs(&self) -> &[(String, Value)] {
        match self {
            Value::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// The value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.pairs()
            .iter()
            .find(|(one, _)| one == key)
            .map(|(_, value)| value)
    }

    /// The value at a path of keys and indexes: `find("data.content.0.text")`.
    pub fn find(&self, path: &str) -> Option<&Value> {
        let path = path.strip_suffix('.').unwrap_or(path);
        if path.is_empty() {
            return Some(self);
        }
        path.split('.').try_fold(self, |value, part| match value {
            Value::List(items) => items.get(part.parse::<usize>().ok()?),
            _ => value.get(part),
        })
    }
}

impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&Value::Null)
    }
}

impl Index<usize> for Value {
    type Output = Value;

    fn index(&self, index: usize) -> &Value {
        self.items().get(index).unwrap_or(&Value::Null)
    }
}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

/// As compact JSON. A float that is not finite is `null`.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => out.write_str("null"),
            Value::Bool(yes) => write!(out, "{}", yes),
            Value::Int(number) => write!(out, "{}", number),
            Value::Float(number) if number.is_finite() => write!(out, "{:?}", number),
            Value::Float(_) => out.write_str("null"),
            Value::Text(text) => quote(out, text),
            Value::List(items) => {
                out.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(out, "{}{}", comma(index), item)?;
                }
                out.write_str("]")
            }
            Value::Map(pairs) => {
                out.write_str("{")?;
                for (index, (key, item)) in pairs.iter().enumerate() {
                    out.write_str(comma(index))?;
                    quote(out, key)?;
                    write!(out, ":{}", item)?;
                }
                out.write_str("}")
            }
        }
    }
}

fn comma(index: usize) -> &'static str {
    if index == 0 {
        ""
    } else {
        ","
    }
}

fn quote(out: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    out.write_str("\"")?;
    for char in text.chars() {
        match char {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            control if control < ' ' => write!(out, "\\u{:04x}", control as u32)?,
            other => write!(out, "{}", other)?,
        }
    }
    out.write_str("\"")
}

macro_rules! from {
    ($($kind:ty: $name:ident => $value:expr),+ $(,)?) => {
        $(impl From<$kind> for Value {
            fn from($name: $kind) -> Value {
                $value
            }
        })+
    };
}

from! {
    bool: yes => Value::Bool(yes),
    i32: number => Value::Int(number.into()),
    i64: number => Value::Int(number.into()),
    u32: number => Value::Int(number.into()),
    u64: number => Value::Int(number.into()),
    usize: number => Value::Int(number as i128),
    f64: number => Value::Float(number),
    &str: text => Value::Text(text.to_owned()),
    String: text => Value::Text(text),
    &String: text => Value::Text(text.clone()),
    &Value: value => value.clone(),
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Value {
        Value::List(items.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// Makes a `Value` from JSON syntax: `json!({"n": 1 + 1, "all": [null, name]})`.
///
/// An expression has a type that converts into `Value`. A key is a string literal or an
/// expression in parentheses.
#[macro_export]
macro_rules! json {
    (@list [$($done:expr,)*]) => { ::std::vec![$($done),*] };
    (@list [$($done:expr,)*] null $(, $($rest:tt)*)?) => {
        $crate::json!(@list [$($done,)* $crate::json!(null),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] [$($item:tt)*] $(, $($rest:tt)*)?) => {
        $crate::json!(@list [$($done,)* $crate::json!([$($item)*]),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] {$($item:tt)*} $(, $($rest:tt)*)?) => {
        $crate::json!(@list [$($done,)* $crate::json!({$($item)*}),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] $item:expr $(, $($rest:tt)*)?) => {
        $crate::json!(@list [$($done,)* $crate::json!($item),] $($($rest)*)?)
    };

    (@map [$($done:expr,)*]) => { ::std::vec![$($done),*] };
    (@map [$($done:expr,)*] $key:tt: null $(, $($rest:tt)*)?) => {
        $crate::json!(@map [$($done,)* (::std::string::String::from($key), $crate::json!(null)),]
            $($($rest)*)?)
    };
    (@map [$($done:expr,)*] $key:tt: [$($item:tt)*] $(, $($rest:tt)*)?) => {
        $crate::json!(@map [$($done,)* (::std::string::String::from($key), $crate::json!([$($item)*])),]
            $($($rest)*)?)
    };
    (@map [$($done:expr,)*] $key:tt: {$($item:tt)*} $(, $($rest:tt)*)?) => {
        $crate::json!(@map [$($done,)* (::std::string::String::from($key), $crate::json!({$($item)*})),]
            $($($rest)*)?)
    };
    (@map [$($done:expr,)*] $key:tt: $item:expr $(, $($rest:tt)*)?) => {
        $crate::json!(@map [$($done,)* (::std::string::String::from($key), $crate::json!($item)),]
            $($($rest)*)?)
    };

    (null) => { $crate::Value::Null };
    ([$($item:tt)*]) => { $crate::Value::List($crate::json!(@list [] $($item)*)) };
    ({$($item:tt)*}) => { $crate::Value::Map($crate::json!(@map [] $($item)*)) };
    ($value:expr) => { $crate::Value::from($value) };
}
