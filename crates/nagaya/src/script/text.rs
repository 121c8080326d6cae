//! A script as it is named on the command line: a file, or `-` for standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use script::{Script, Source};

/// The name that stands for standard input.
const STDIN: &str = "-";
/// Largest script, as in a gateway.
const BYTES_MAX: u64 = 1 << 20;

/// A script's text under its name.
#[derive(Debug, Clone)]
pub(super) struct Text {
    name: Arc<str>,
    text: Arc<[u8]>,
}

impl Text {
    /// Reads a script.
    ///
    /// # Errors
    /// What to tell the user.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let name = match file.to_str() {
            Some(STDIN) => "standard input".into(),
            _ => file.to_string_lossy(),
        };
        let mut text = Vec::new();
        read(file, &mut text).map_err(|why| format!("{name}: {why}\n"))?;
        Ok(Self {
            name: name.into(),
            text: text.into(),
        })
    }

    /// The script, not compiled yet.
    pub(super) fn script(&self) -> Script {
        let source = Source::Code {
            text: Arc::clone(&self.text),
            line: 1,
        };
        Script::new(Arc::clone(&self.name), source)
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

fn read(file: &Path, text: &mut Vec<u8>) -> Result<(), String> {
    let opened: io::Result<Box<dyn Read>> = match file.to_str() {
        Some(STDIN) => Ok(Box::new(io::stdin())),
        _ => File::open(file).map(|file| Box::new(file) as _),
    };
    let read = opened.and_then(|from| from.take(BYTES_MAX + 1).read_to_end(text));
    read.map_err(|error| config::reason(&error))?;
    match text.len() as u64 > BYTES_MAX {
        true => Err("longer than 1 MiB, the most a script may have".to_owned()),
        false => Ok(()),
    }
}
