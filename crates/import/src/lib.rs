//! Configurations of nginx and Apache made into sites: bytes in, files of TOML out, and an account
//! of every line.
//!
//! What is read is the configuration in force, as `nginx -T` and `apache2ctl -t -D DUMP_CONFIG`
//! print it. A table says of each directive what becomes of it ([`Fate`]); small functions make keys
//! of those that are carried. Where a line about access is known not to be carried, what it covers is
//! written as `deny = "all"` with the reason; what comes out more open than it was all the same stands
//! in the guides. Nothing here knows a clock, a file or a process, and every number is bounded.
#![forbid(unsafe_code)]

mod apache;
mod draft;
mod front;
mod ledger;
mod nginx;
mod pools;
mod report;
mod words;

use std::collections::{BTreeMap, BTreeSet};

pub use apache::apache;
use draft::{SharedDraft, SiteDraft};
use ledger::Ledger;
pub use ledger::{Fate, SourceLine};
pub use nginx::nginx;
pub use pools::PoolFile;

/// The longest configuration, in bytes.
pub const BYTES_MAX: usize = 64 << 20;
/// Lines of a configuration.
pub const LINES_MAX: usize = 1_000_000;
/// Blocks within each other.
pub const DEPTH_MAX: usize = 64;
/// The name of the file of what all sites share, without ending.
pub const SHARED: &str = "00-import";

/// What is wanted of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// What the text is called where it does not say so itself.
    pub name: String,
    /// Whether PHP runs in pools of ours and no longer in those of php-fpm.
    pub own_pools: bool,
    /// php-fpm's pools, as their files have them.
    pub pools: Vec<PoolFile>,
    /// Which addresses are served.
    pub listening: Listening,
    /// Whether sites have no logs of their own, as those that were read are still another's.
    pub without_logs: bool,
}

/// Which addresses are served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Listening {
    /// Those that were read.
    #[default]
    AsRead,
    /// These; with TLS where the flag says so.
    At(Vec<(String, bool)>),
    /// None: the main configuration says them.
    Unsaid,
}

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedFile {
    /// Its name, without ending.
    pub name: String,
    /// What stands in it.
    pub text: String,
    /// The lines of the account that it was made of.
    pub lines: Vec<usize>,
}

/// What an import comes to.
#[derive(Debug, Clone, Default)]
pub struct Imported {
    /// The files, what is shared first.
    pub files: Vec<ImportedFile>,
    /// The account of every line, in the order of reading.
    pub lines: Vec<SourceLine>,
}

impl Imported {
    /// Leaves files out, by their names, for reasons that only the machine knows: what they were made
    /// of is not carried.
    pub fn leave_out(&mut self, reasons: &BTreeMap<String, String>) {
        let (left, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.files)
            .into_iter()
            .partition(|file| reasons.contains_key(&file.name));
        let lines = kept.iter().flat_map(|file| &file.lines).copied();
        let others: BTreeSet<usize> = lines.collect();
        for file in &left {
            let why = reasons.get(&file.name).map_or("", String::as_str);
            for line in file.lines.iter().filter(|line| !others.contains(line)) {
                if let Some(line) = self.lines.get_mut(*line) {
                    line.leave_out(why);
                }
            }
        }
        self.files = kept;
    }
}

/// Why a text is no configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// What is wrong there.
    pub text: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.text)
    }
}

impl std::error::Error for Unreadable {}

/// What all sites share and each site, as files with names of their own.
fn assemble(
    shared: &SharedDraft,
    mut drafts: Vec<SiteDraft>,
    ledger: Ledger,
    options: &ImportOptions,
) -> Imported {
    if options.without_logs {
        drafts.iter_mut().for_each(|draft| draft.keys.take("log"));
    }
    let mut files = Vec::new();
    let text = shared.write(&ledger);
    if !text.is_empty() {
        files.push(ImportedFile {
            name: SHARED.to_owned(),
            text,
            lines: Vec::new(),
        });
    }
    let mut names = BTreeSet::from([SHARED.to_owned()]);
    for draft in &drafts {
        let base = draft.name();
        let mut names_of = (1..).map(|number: usize| match number {
            1 => base.clone(),
            number => format!("{base}-{number}"),
        });
        let name = names_of.find(|name| names.insert(name.clone()));
        files.push(ImportedFile {
            name: name.unwrap_or_default(),
            text: draft.write(&ledger),
            lines: draft.lines(),
        });
    }
    Imported {
        files,
        lines: ledger.finish(),
    }
}

/// A text that is not too long; bytes that are no UTF-8 are replaced.
fn text_of<'b>(bytes: &'b [u8], name: &str) -> Result<std::borrow::Cow<'b, str>, Unreadable> {
    if bytes.len() > BYTES_MAX {
        return Err(Unreadable {
            file: name.to_owned(),
            line: 1,
            text: "the configuration is longer than 64 MiB".to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(bytes))
}
