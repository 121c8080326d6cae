//! `[maps.NAME]`: what answers a key with a text.

use std::path::PathBuf;

use super::template::Template;

/// `[maps.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Its name.
    pub name: String,
    /// Where its answers come from.
    pub source: MapSource,
    /// Longest key that is asked. Default 4 KiB.
    pub key_bytes: usize,
    /// Longest answer that is taken. Default 4 KiB.
    pub answer_bytes: usize,
}

/// Where a map's answers come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapSource {
    /// A program that answers a line with a line.
    Program(MapProgram),
    /// A file of keys and values.
    File(PathBuf),
}

/// A program that answers a line with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapProgram {
    /// The program and its arguments; at least the first. One without a slash is looked for in the
    /// usual directories.
    pub command: Vec<String>,
    /// Where it starts: the directory of the configuration file that names it.
    pub directory: PathBuf,
    /// Who it runs as, never root. Default: the server's user.
    pub user: String,
    /// Whether the map names that user itself.
    pub has_own_user: bool,
    /// Processes of it. Default 1.
    pub processes: usize,
    /// How long one question may take. Default 2 s.
    pub timeout_ms: u64,
    /// Questions that may wait for the answers of one process. Default 1,024.
    pub waiting: usize,
    /// For how long an answer is kept, and how many; `None`: each question is asked.
    pub cache: Option<MapCache>,
    /// The answer where the program has none to give: it died, hangs or floods. `None` is no answer.
    pub on_error: Option<String>,
}

/// How answers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapCache {
    /// How long.
    pub ms: u64,
    /// How many. Default 4,096.
    pub entries: usize,
    /// Their keys and answers together. Default 1 MiB.
    pub bytes: usize,
}

/// What a rule asks a map, and what the answer must be.
#[derive(Debug, Clone, PartialEq)]
pub struct MapMatch {
    /// Index into [`super::Model::maps`].
    pub map: usize,
    /// The map's name.
    pub name: String,
    /// What is asked; it names no map.
    pub key: Template,
    /// Whether there must be an answer, or none.
    pub answered: bool,
    /// The answer is a number above this one.
    pub above: Option<f64>,
    /// The answer is a number below this one.
    pub below: Option<f64>,
    /// The answer is this text.
    pub equals: Option<String>,
}

/// `${NAME:KEY|DEFAULT}`: a map's answer within a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapLookup {
    /// Index into [`super::Model::maps`].
    pub map: usize,
    /// The map's name.
    pub name: String,
    /// What is asked; it names no map.
    pub key: Template,
    /// What stands there where there is no answer; it names no map. Empty where none is written.
    pub default: Template,
}
