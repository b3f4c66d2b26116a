//! The encoding of values between guest and host. Internal.

use crate::Value;

/// Maximum depth; above the limit of the host.
const DEPTH: usize = 128;

pub fn encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, value);
    out
}

/// The value in `bytes`, or `None` unless they are exactly one value.
pub fn decoded(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader { rest: bytes };
    let value = reader.value(DEPTH)?;
    reader.rest.is_empty().then(|| value)
}

fn write(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(yes) => out.push(0xc2 | *yes as u8),
        Value::Int(number) => write_int(out, *number),
        Value::Float(number) => tagged(out, 0xcb, number.to_bits(), 8),
        Value::Text(text) => {
            head(
                out,
                text.len(),
                [(0xa0, 32), (0xd9, 1 << 8), (0xda, 1 << 16)],
                0xdb,
            );
            out.extend_from_slice(text.as_bytes());
        }
        Value::List(items) => {
            head(
                out,
                items.len(),
                [(0x90, 16), (0xdc, 0), (0xdc, 1 << 16)],
                0xdd,
            );
            items.iter().for_each(|item| write(out, item));
        }
        Value::Map(pairs) => {
            head(
                out,
                pairs.len(),
                [(0x80, 16), (0xde, 0), (0xde, 1 << 16)],
                0xdf,
            );
            for (key, item) in pairs {
                write(out, &Value::Text(key.clone()));
                write(out, item);
            }
        }
    }
}

/// Writes the shortest head for a count: in the tag, or in 1, 2 or 4 bytes after it.
fn head(out: &mut Vec<u8>, count: usize, short: [(u8, usize); 3], long: u8) {
    let bits = count as u64;
    if count < short[0].1 {
        out.push(short[0].0 | count as u8);
    } else if count < short[1].1 {
        tagged(out, short[1].0, bits, 1);
    } else if count < short[2].1 {
        tagged(out, short[2].0, bits, 2);
    } else {
        tagged(out, long, bits, 4);
    }
}

fn write_int(out: &mut Vec<u8>, number: i128) {
    let bits = number as u64;
    match number {
        -32..=127 => out.push(number as u8),
        128..=0xff => tagged(out, 0xcc, bits, 1),
        0x100..=0xffff => tagged(out, 0xcd, bits, 2),
        0x1_0000..=0xffff_ffff => tagged(out, 0xce, bits, 4),
        0x1_0000_0000..=i128::MAX => tagged(out, 0xcf, bits, 8),
        -0x80..=-33 => tagged(out, 0xd0, bits, 1),
        -0x8000..=-0x81 => tagged(out, 0xd1, bits, 2),
        -0x8000_0000..=-0x8001 => tagged(out, 0xd2, bits, 4),
        i128::MIN..=-0x8000_0001 => tagged(out, 0xd3, bits, 8),
    }
}

/// Writes a tag and the low `width` bytes of a number, big-endian.
fn tagged(out: &mut Vec<u8>, tag: u8, bits: u64, width: usize) {
    out.push(tag);
    out.extend_from_slice(&bits.to_be_bytes()[8 - width..]);
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        if size > self.rest.len() {
            return None;
        }
        let (taken, rest) = self.rest.split_at(size);
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self, width: usize) -> Option<u64> {
        let bytes = self.take(width)?;
        Some(
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | *byte as u64),
        )
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let tag = self.take(1)?[0];
        let width = 1 << (tag & 3);
        Some(match tag {
            0x00..=0x7f | 0xe0..=0xff => Value::Int(tag as i8 as i128),
            0x80..=0x8f => self.map((tag & 15) as usize, depth)?,
            0x90..=0x9f => self.list((tag & 15) as usize, depth)?,
            0xa0..=0xbf => self.text((tag & 31) as usize)?,
            0xc0 => Value::Null,
            0xc2 | 0xc3 => Value::Bool(tag == 0xc3),
            0xca => Value::Float(f32::from_bits(self.number(4)? as u32) as f64),
            0xcb => Value::Float(f64::from_bits(self.number(8)?)),
            0xcc..=0xcf => Value::Int(self.number(width)? as i128),
            0xd0..=0xd3 => {
                let unused = 64 - 8 * width as u32;
                Value::Int((((self.number(width)? << unused) as i64) >> unused) as i128)
            }
            0xd9..=0xdb => {
                let size = self.number(1 << (tag - 0xd9))? as usize;
                self.text(size)?
            }
            0xdc | 0xdd => {
                let count = self.number(2 << (tag - 0xdc))? as usize;
                self.list(count, depth)?
            }
            0xde | 0xdf => {
                let count = self.number(2 << (tag - 0xde))? as usize;
                self.map(count, depth)?
            }
            _ => return None,
        })
    }

    fn text(&mut self, size: usize) -> Option<Value> {
        let text = std::str::from_utf8(self.take(size)?).ok()?;
        Some(Value::Text(text.to_owned()))
    }

    fn list(&mut self, count: usize, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        // The count is untrusted, so nothing is allocated in advance.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.value(depth)?);
        }
        Some(Value::List(items))
    }

    fn map(&mut self, count: usize, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            let key = match self.value(depth)? {
                Value::Text(key) => key,
                _ => return None,
            };
            pairs.push((key, self.value(depth)?));
        }
        Some(Value::Map(pairs))
    }
}
