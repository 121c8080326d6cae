//! Single looks at files and directories, on behalf of [`crate::Sources`].
//!
//! The idea: a look ends in what was found or in words for why not; nothing is remembered here.

use std::path::Path;

use crate::keys;
use crate::reason::reason;

/// Largest file of a map.
const MAP_BYTES_MAX: u64 = 16 << 20;
/// Names in a directory among which one that was meant is looked for.
const NAMES_MAX: usize = 1_000;

/// Lines of a map's file that have a key and no value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Valueless {
    pub(crate) count: usize,
    /// The number of the first.
    pub(crate) first: usize,
}

/// The text of a regular file of at most so many bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String, String> {
    let bytes = read_bytes(path, most)?;
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error
            .as_bytes()
            .iter()
            .take(good)
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        format!("not UTF-8 on line {line}")
    })
}

/// The bytes of a regular file, of at most so many.
pub(crate) fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let facts = std::fs::metadata(path).map_err(|error| reason(&error))?;
    if !facts.is_file() {
        let found = match facts.is_dir() {
            true => "a directory, not a file",
            false => "not a regular file",
        };
        return Err(found.to_owned());
    }
    if facts.len() > most {
        return Err(format!("larger than {} MiB", most >> 20));
    }
    std::fs::read(path).map_err(|error| reason(&error))
}

/// Reads a map's file as a worker will, and keeps nothing of it.
pub(crate) fn look_at_map(path: &Path) -> Result<Valueless, String> {
    let bytes = read_bytes(path, MAP_BYTES_MAX)?;
    let mut valueless = Valueless::default();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let is_entry = |first: &u8| *first != b'#' && !first.is_ascii_whitespace();
        let is_key_alone = !line.trim_ascii_end().iter().any(u8::is_ascii_whitespace);
        if line.first().is_some_and(is_entry) && is_key_alone {
            if valueless.count == 0 {
                valueless.first = number;
            }
            valueless.count += 1;
        }
    }
    Ok(valueless)
}

/// Why there is no such directory, if there is none.
pub(crate) fn look_at_directory(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(facts) if facts.is_dir() => Ok(()),
        Ok(_) => Err("not a directory".to_owned()),
        Err(error) => Err(reason(&error) + &meant_name(path)),
    }
}

/// What to say of a path that is not there where another name was perhaps meant; else nothing.
pub(crate) fn meant_name(path: &Path) -> String {
    let meant = look_beside(path).map(|name| format!("; did you mean `{name}`?"));
    meant.unwrap_or_default()
}

/// The name, in the directory of a path that is not there, that is most like its last part.
fn look_beside(path: &Path) -> Option<String> {
    let entries = std::fs::read_dir(path.parent()?).ok()?;
    let entries = entries.take(NAMES_MAX).flatten();
    let names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let name = path.file_name()?.to_str()?;
    keys::nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
}
