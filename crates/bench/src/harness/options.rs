//! The flags of the harness. A dozen flags need no parser crate.

use std::path::PathBuf;

use super::bed::Log;

const USAGE: &str = "\
usage: bench [FLAGS]

  --nagaya PATH        the gateway's binary (target/release/nagaya)
  --peer NAME=PATH     another binary for nginx, haproxy or h2o; repeatable
  --without NAME       leave a server out; repeatable
  --only TEXT          only rows whose name holds TEXT; repeatable
  --rounds N           slices per server and row (7)
  --seconds N          length of a slice (3)
  --connections N      connections of the generator (64)
  --log off|on|both    access log of every server (both, in two tables)
  --output PATH        the report (lab/results/bench.md)
  --readme PATH        also put the table in short between its `figures` marks
";

/// What to measure and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// The gateway's binary.
    pub nagaya: PathBuf,
    /// Binaries given for peers, over what PATH has.
    pub peers: Vec<(String, PathBuf)>,
    /// Servers left out.
    pub without: Vec<String>,
    /// Texts, one of which a row's name must hold; empty means every row.
    pub only: Vec<String>,
    /// Slices per server and row.
    pub rounds: usize,
    /// Seconds of a slice.
    pub seconds: u64,
    /// Connections of the generator.
    pub connections: usize,
    /// Where the report goes.
    pub output: PathBuf,
    /// A document whose figures are replaced.
    pub readme: Option<PathBuf>,
    log: LogChoice,
}

#[derive(Debug, Clone, Copy)]
enum LogChoice {
    Off,
    On,
    Both,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            nagaya: PathBuf::from("target/release/nagaya"),
            peers: Vec::new(),
            without: Vec::new(),
            only: Vec::new(),
            rounds: 7,
            seconds: 3,
            connections: 64,
            output: PathBuf::from("lab/results/bench.md"),
            readme: None,
            log: LogChoice::Both,
        }
    }
}

impl Options {
    /// Reads flags; `None` means help was asked for and printed.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Options::default();
        let mut arguments = arguments.into_iter();
        while let Some(flag) = arguments.next() {
            if flag == "--help" || flag == "-h" {
                print!("{USAGE}");
                return Ok(None);
            }
            let value = arguments
                .next()
                .ok_or_else(|| format!("{flag}: no such flag, or no value\n\n{USAGE}"))?;
            options.set(&flag, value)?;
        }
        Ok(Some(options))
    }

    /// Whether a row of this name is asked for.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| row.contains(text.as_str()))
    }

    /// The log settings to measure, each a table of its own.
    pub(crate) fn logs(&self) -> &'static [Log] {
        match self.log {
            LogChoice::Off => &[Log::Off],
            LogChoice::On => &[Log::On],
            LogChoice::Both => &[Log::Off, Log::On],
        }
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), String> {
        match flag {
            "--nagaya" => self.nagaya = value.into(),
            "--peer" => {
                let (name, path) = value.split_once('=').ok_or("--peer takes NAME=PATH")?;
                self.peers.push((name.to_owned(), path.into()));
            }
            "--without" => self.without.push(value),
            "--only" => self.only.push(value),
            "--rounds" => self.rounds = count(flag, &value)?,
            "--seconds" => self.seconds = count(flag, &value)? as u64,
            "--connections" => self.connections = count(flag, &value)?,
            "--output" => self.output = value.into(),
            "--readme" => self.readme = Some(value.into()),
            "--log" => {
                self.log = match value.as_str() {
                    "off" => LogChoice::Off,
                    "on" => LogChoice::On,
                    "both" => LogChoice::Both,
                    _ => return Err(format!("--log {value}: off, on or both")),
                }
            }
            _ => return Err(format!("{flag}: no such flag\n\n{USAGE}")),
        }
        Ok(())
    }
}

fn count(flag: &str, value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(n) if (1..=100_000).contains(&n) => Ok(n),
        _ => Err(format!("{flag} {value}: a number from 1 to 100000")),
    }
}
