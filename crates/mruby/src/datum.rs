//! Plain data between Rust and Ruby, and the bytes it crosses in.

/// A value without a life of its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// `nil`.
    Nil,
    /// `true` or `false`.
    Bool(bool),
    /// An Integer.
    Int(i64),
    /// A Float.
    Float(f64),
    /// A String of any bytes.
    Bytes(Vec<u8>),
    /// A Symbol.
    Symbol(Vec<u8>),
    /// An Array.
    Array(Vec<Datum>),
    /// A Hash, in order.
    Hash(Vec<(Datum, Datum)>),
    /// A class or module, by its full name.
    Class(&'static str),
    /// A Time: seconds and microseconds since 1970.
    Time(i64, i64),
    /// Any other object; towards Ruby it becomes `nil`.
    Other,
}

impl From<&str> for Datum {
    fn from(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Datum {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Datum {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<i64> for Datum {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Datum {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<f64> for Datum {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl<T: Into<Datum>> From<Option<T>> for Datum {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nil, Into::into)
    }
}

/// Writes `datum` as the shim reads it (`grown` in `shim.c`).
pub(crate) fn write(datum: &Datum, out: &mut Vec<u8>) {
    match datum {
        Datum::Nil | Datum::Other => out.push(b'n'),
        Datum::Bool(true) => out.push(b't'),
        Datum::Bool(false) => out.push(b'f'),
        Datum::Int(number) => write_word(b'i', &number.to_ne_bytes(), out),
        Datum::Float(number) => write_word(b'd', &number.to_ne_bytes(), out),
        Datum::Bytes(bytes) => write_text(b's', bytes, out),
        Datum::Symbol(name) => write_text(b'y', name, out),
        Datum::Class(path) => write_text(b'c', path.as_bytes(), out),
        Datum::Time(seconds, microseconds) => {
            write_word(b'T', &seconds.to_ne_bytes(), out);
            out.extend_from_slice(&microseconds.to_ne_bytes());
        }
        Datum::Array(items) => {
            write_word(b'a', &items.len().to_ne_bytes(), out);
            for item in items {
                write(item, out);
            }
        }
        Datum::Hash(pairs) => {
            write_word(b'h', &pairs.len().to_ne_bytes(), out);
            for (key, value) in pairs {
                write(key, out);
                write(value, out);
            }
        }
    }
}

/// Writes an object of the class `path` that holds what `handle` stands for.
pub(crate) fn write_object(path: &str, handle: u64, out: &mut Vec<u8>) {
    write_text(b'o', path.as_bytes(), out);
    out.extend_from_slice(&handle.to_ne_bytes());
}

fn write_word(tag: u8, word: &[u8; 8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(word);
}

fn write_text(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    write_word(tag, &bytes.len().to_ne_bytes(), out);
    out.extend_from_slice(bytes);
}
