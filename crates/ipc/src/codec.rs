//! How messages between the gateway's processes are written down.
//!
//! The idea: postcard writes what serde sees; a descriptor leaves nothing but its turn among
//! those beside the bytes, in the order of the message's fields. Nothing is taken on trust: every
//! length is checked against what is there, what a message promises reserves no memory, and
//! neither bytes nor descriptors may be left over.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;

use os::fdpass::Passed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A message that is not one of ours, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadMessage(pub String);

impl fmt::Display for BadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad message between the gateway's processes: {}", self.0)
    }
}

impl std::error::Error for BadMessage {}

impl From<BadMessage> for io::Error {
    fn from(bad: BadMessage) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, bad)
    }
}

impl BadMessage {
    /// Says why.
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

thread_local! {
    /// Those of the message that is being decoded.
    static BESIDE: RefCell<VecDeque<OwnedFd>> = const { RefCell::new(VecDeque::new()) };
}

/// The bytes of a message.
///
/// # Errors
/// A value that cannot be written down: none of ours.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = postcard::to_stdvec(message);
    bytes.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// A message out of its bytes and descriptors, all of them.
pub(crate) fn decode<T: DeserializeOwned>(
    bytes: &[u8],
    fds: Vec<OwnedFd>,
) -> Result<T, BadMessage> {
    BESIDE.set(fds.into());
    let decoded = postcard::take_from_bytes(bytes);
    let left = BESIDE.take();
    match decoded {
        Err(error) => Err(BadMessage::new(error.to_string())),
        Ok((_, rest)) if !(rest.is_empty() && left.is_empty()) => Err(BadMessage::new("too long")),
        Ok((message, _)) => Ok(message),
    }
}

/// As [`decode`], of a message whose descriptors may have found no room here.
pub(crate) fn decode_passed<T: DeserializeOwned>(bytes: &[u8], fds: Passed) -> io::Result<T> {
    let no_room = "this process may open no more descriptors";
    let fds = fds.ok_or_else(|| io::Error::new(io::ErrorKind::OutOfMemory, no_room))?;
    Ok(decode(bytes, fds)?)
}

/// The beginning of a message whose descriptors found no room.
pub(crate) fn decode_beginning<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    let decoded = postcard::take_from_bytes(bytes);
    decoded.map_or_else(
        |error| Err(BadMessage::new(error.to_string())),
        |(beginning, _)| Ok(beginning),
    )
}

/// A text, cut at a character where it is longer than `bytes_max`.
pub fn cut(text: &mut String, bytes_max: usize) {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// A value kept as it is written down, at a fraction of its memory: for what there is much of and is seldom
/// looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Packed<T> {
    bytes: Box<[u8]>,
    of: PhantomData<T>,
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Writes a value down.
    ///
    /// # Errors
    /// It cannot be: none of ours.
    pub fn of(value: &T) -> io::Result<Packed<T>> {
        Ok(Packed {
            bytes: encode(value)?.as_slice().into(),
            of: PhantomData,
        })
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is none of ours: somebody else has written it.
    pub fn open(&self) -> Result<T, BadMessage> {
        decode(&self.bytes, Vec::new())
    }
}

impl<T: Serialize + DeserializeOwned + Default> Default for Packed<T> {
    fn default() -> Self {
        // What cannot be written down cannot be read either.
        Packed::of(&T::default()).unwrap_or(Packed {
            bytes: Box::default(),
            of: PhantomData,
        })
    }
}

/// What descriptors are kept in, without them.
pub(crate) trait Beside: Sized {
    /// What is written in their place.
    type Shape: Serialize + DeserializeOwned;

    fn shape(&self) -> Self::Shape;

    /// Takes the descriptors of a shape, in their order; `None` where one is missing.
    fn fill(shape: Self::Shape, fds: &mut VecDeque<OwnedFd>) -> Option<Self>;
}

impl Beside for OwnedFd {
    type Shape = ();

    fn shape(&self) {}

    fn fill((): (), fds: &mut VecDeque<OwnedFd>) -> Option<Self> {
        fds.pop_front()
    }
}

impl Beside for Option<OwnedFd> {
    type Shape = bool;

    fn shape(&self) -> bool {
        self.is_some()
    }

    fn fill(is_there: bool, fds: &mut VecDeque<OwnedFd>) -> Option<Self> {
        is_there
            .then(|| fds.pop_front())
            .map_or(Some(None), |fd| fd.map(Some))
    }
}

impl Beside for Vec<OwnedFd> {
    type Shape = usize;

    fn shape(&self) -> usize {
        self.len()
    }

    fn fill(count: usize, fds: &mut VecDeque<OwnedFd>) -> Option<Self> {
        (count <= fds.len()).then(|| fds.drain(..count).collect())
    }
}

impl Beside for Result<OwnedFd, String> {
    type Shape = Result<(), String>;

    fn shape(&self) -> Result<(), String> {
        self.as_ref().map(drop).map_err(String::clone)
    }

    fn fill(shape: Result<(), String>, fds: &mut VecDeque<OwnedFd>) -> Option<Self> {
        match shape {
            Ok(()) => fds.pop_front().map(Ok),
            Err(why) => Some(Err(why)),
        }
    }
}

/// For `#[serde(with = "beside")]`.
pub(crate) mod beside {
    use serde::{Deserializer, Serializer};

    use super::{BESIDE, Beside, Deserialize, Serialize};

    pub(crate) fn serialize<T: Beside, S: Serializer>(fds: &T, to: S) -> Result<S::Ok, S::Error> {
        fds.shape().serialize(to)
    }

    pub(crate) fn deserialize<'de, T: Beside, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let shape = T::Shape::deserialize(from)?;
        let filled = BESIDE.with_borrow_mut(|fds| T::fill(shape, fds));
        filled.ok_or_else(|| serde::de::Error::custom("a descriptor is missing"))
    }
}

/// For `#[serde(with = "path")]`: a path is bytes, whatever they mean.
pub(crate) mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let bytes = Vec::deserialize(from)?;
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Shows `look` every beginning of a sound message, and the message with each byte changed.
    pub(crate) fn mangled(sound: &[u8], look: impl Fn(&[u8])) {
        for at in 0..sound.len() {
            look(&sound[..at]);
            for value in [0, 1, 2, 3, 0x7f, 0x80, 0xff] {
                let mut bytes = sound.to_vec();
                bytes[at] = value;
                look(&bytes);
            }
        }
    }

    #[test]
    fn what_is_packed_is_read_again_and_nothing_else() {
        let value = vec![("a".to_owned(), 7_u32), (String::new(), 1 << 20)];
        let packed = Packed::of(&value).unwrap();
        assert_eq!(packed.open().unwrap(), value);
        mangled(&encode(&packed).unwrap(), |bytes| {
            let packed = decode::<Packed<Vec<(String, u32)>>>(bytes, Vec::new());
            let _ = packed.and_then(|packed| packed.open());
        });
        let none: Packed<Vec<String>> = Packed::default();
        assert_eq!(none.open().unwrap(), Vec::<String>::new());
    }
}
