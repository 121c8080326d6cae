//! What a run leaves: `data.jsonl`, one line a fact, from which every report can be drawn again.
//!
//! The first line is the head; then come slices in the order they were run, and notes. What is kept
//! of it beside the code (`summary`) has series and curves in place of slices, and is read as the
//! same record. Readers skip kinds of lines they do not know, and refuse versions they do not know.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::model::{Reported, Step, Target};
use super::summary::{Curve, Series};
use load::Error;
use report::Tone;

/// The file of all that was measured.
pub(crate) const DATA: &str = "data.jsonl";
/// The file of what is kept of it.
pub(crate) const SUMMARY: &str = "summary.jsonl";
/// Version of the lines.
pub(crate) const VERSION: u32 = 1;
/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Longest line.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first.
    Head(Box<Head>),
    /// A slice.
    Slice(Slice),
    /// Slices, as a summary has them.
    Series(Series),
    /// Response times, as a summary has them.
    Curve(Curve),
    /// Something to be said.
    Note(Note),
}

/// What was run, on what, when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) version: u32,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) question: String,
    /// Source and words of the field report.
    #[serde(default)]
    pub(crate) report: Option<(String, String)>,
    /// Seconds since 1970.
    pub(crate) started: u64,
    pub(crate) seed: u64,
    pub(crate) machine: Machine,
    /// Programs and what they say of themselves.
    pub(crate) versions: Vec<(String, String)>,
    /// What was not there, and so was not measured.
    #[serde(default)]
    pub(crate) missing: Vec<String>,
    pub(crate) rows: Vec<RowHead>,
    /// The run goes on, or did not come to its end.
    #[serde(
        default,
        rename = "unfinished",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub(crate) is_unfinished: bool,
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
}

/// A row as it was run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowHead {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) note: Option<String>,
    pub(crate) variants: Vec<String>,
    pub(crate) figures: Vec<String>,
    /// Whether more of the main figure is better; by its name where it is not said.
    #[serde(default)]
    pub(crate) more_is_better: Option<bool>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
    #[serde(default)]
    pub(crate) reported: Vec<Reported>,
    /// How it was loaded, in words.
    pub(crate) load: String,
    /// What it has more or less of than others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scale: Option<Step>,
}

/// One slice of one variant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slice {
    pub(crate) row: String,
    pub(crate) variant: String,
    /// What was measured there.
    pub(crate) arm: Arm,
    pub(crate) block: usize,
    /// Its place in the block.
    pub(crate) order: usize,
    /// Why the block counts for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) void: Option<String>,
    pub(crate) figures: BTreeMap<String, f64>,
    /// Response times: microseconds and how many, ascending, in steps of about 1 %.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) times: Vec<(u64, u64)>,
}

/// What a slice is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arm {
    /// The variant.
    #[default]
    Variant,
    /// The second copy of the row's first variant.
    Control,
    /// The variant, loaded by wrk.
    Wrk,
}

/// Something to be said of a row, or of the whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    #[serde(default)]
    pub(crate) row: Option<String>,
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// A whole run, as read or as made.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Record {
    pub(crate) head: Head,
    pub(crate) slices: Vec<Slice>,
    /// Response times of which a summary has kept a few.
    pub(crate) curves: Vec<Curve>,
    pub(crate) notes: Vec<Note>,
}

impl Record {
    /// Its lines.
    pub(crate) fn to_text(&self) -> Result<String, Error> {
        let head = std::iter::once(Line::Head(Box::new(self.head.clone())));
        let slices = self.slices.iter().cloned().map(Line::Slice);
        let curves = self.curves.iter().cloned().map(Line::Curve);
        let notes = self.notes.iter().cloned().map(Line::Note);
        text(head.chain(slices).chain(curves).chain(notes))
    }

    /// Reads a results directory, or one of the files in it.
    ///
    /// Of a directory's data and summary the data has more, unless the summary is of a later run.
    pub(crate) fn read(path: &Path) -> Result<Record, Error> {
        if !path.is_dir() {
            return Record::read_file(path);
        }
        let (data, summary) = (path.join(DATA), path.join(SUMMARY));
        if !summary.exists() {
            return Record::read_file(&data);
        }
        let kept = Record::read_file(&summary)?;
        if !data.exists() {
            return Ok(kept);
        }
        let measured = Record::read_file(&data)?;
        Ok(match kept.head.started > measured.head.started {
            true => kept,
            false => measured,
        })
    }

    fn read_file(file: &Path) -> Result<Record, Error> {
        let open = std::fs::File::open(file);
        let open = open.map_err(|e| Error::new(format!("open {}", file.display()), e))?;
        Record::from_reader(file, open.take(FILE_BYTES_MAX))
    }

    /// Whether there is anything to be read in a results directory.
    pub(crate) fn is_stored(directory: &Path) -> bool {
        [DATA, SUMMARY]
            .iter()
            .any(|file| directory.join(file).exists())
    }

    #[cfg(test)]
    pub(crate) fn of_text(text: &str) -> Result<Record, Error> {
        Record::from_reader(Path::new(DATA), text.as_bytes())
    }

    fn from_reader(file: &Path, from: impl Read) -> Result<Record, Error> {
        let mut record = Record::default();
        for (index, line) in BufReader::new(from).split(b'\n').enumerate() {
            let doing = || format!("read {}:{}", file.display(), index + 1);
            let line = line.map_err(|e| Error::new(doing(), e))?;
            if line.is_empty() {
                continue;
            }
            if line.len() > LINE_BYTES_MAX {
                return Err(Error::new(
                    doing(),
                    format!("a line of {} bytes", line.len()),
                ));
            }
            match parse(&line).map_err(|e| Error::new(doing(), e))? {
                Some(Line::Head(head)) if index == 0 => record.head = *head,
                Some(Line::Slice(slice)) if index > 0 => record.slices.push(slice),
                Some(Line::Series(series)) if index > 0 => record.slices.extend(series.slices()),
                Some(Line::Curve(curve)) if index > 0 => record.curves.push(curve),
                Some(Line::Note(note)) if index > 0 => record.notes.push(note),
                None if index > 0 => {}
                _ => {
                    return Err(Error::new(
                        doing(),
                        "a head has to come first, and only there; is this a result of `nagaya-lab run`?",
                    ));
                }
            }
        }
        match record.head.version {
            VERSION => Ok(record),
            0 => Err(Error::new(
                format!("read {}", file.display()),
                "it is empty",
            )),
            other => Err(Error::new(
                format!("read {}", file.display()),
                format!(
                    "it has version {other}, and this program reads {VERSION}; use the `nagaya` that wrote it"
                ),
            )),
        }
    }

    /// The values of a figure by block, for blocks that count.
    pub(crate) fn by_block(
        &self,
        row: &str,
        variant: &str,
        arm: Arm,
        figure: &str,
    ) -> BTreeMap<usize, f64> {
        let wanted = self.slices.iter().filter(|slice| {
            slice.row == row && slice.variant == variant && slice.arm == arm && slice.void.is_none()
        });
        wanted
            .filter_map(|slice| Some((slice.block, *slice.figures.get(figure)?)))
            .filter(|(_, value)| value.is_finite())
            .collect()
    }
}

/// Slices as lines.
pub(crate) fn slices_text(slices: &[Slice]) -> Result<String, Error> {
    text(slices.iter().cloned().map(Line::Slice))
}

/// Lines, each with its end.
pub(crate) fn text(lines: impl Iterator<Item = Line>) -> Result<String, Error> {
    let mut text = String::new();
    for line in lines {
        let line = serde_json::to_string(&line).map_err(|e| Error::new("write the data", e))?;
        text += &line;
        text.push('\n');
    }
    Ok(text)
}

/// A line; `None` of a kind that is not known.
fn parse(line: &[u8]) -> Result<Option<Line>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    let kind: Kind = serde_json::from_slice(line)?;
    match kind.kind.as_str() {
        "head" | "slice" | "series" | "curve" | "note" => serde_json::from_slice(line).map(Some),
        _ => Ok(None),
    }
}

impl Head {
    /// When the run began; 1970 where no clock goes that far.
    pub(crate) fn began(&self) -> SystemTime {
        let since = Duration::from_secs(self.started);
        UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
    }
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(PathBuf::from(path)).unwrap_or_default();
        let value = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
        };
        let cpus = read("/proc/cpuinfo");
        let memory = value(&read("/proc/meminfo"), "MemTotal");
        let kib = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Machine {
            processor: value(&cpus, "model name").unwrap_or_else(|| "unknown processor".into()),
            // Not those this process may run on: it is pinned.
            cores: cpus
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count()
                .max(1) as u64,
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

#[cfg(test)]
pub(crate) fn example() -> Record {
    let slice = |variant: &str, arm: Arm, block: usize, figure: f64| Slice {
        row: "row".into(),
        variant: variant.into(),
        arm,
        block,
        order: 0,
        void: (block == 12).then(|| "steal".to_owned()),
        figures: [
            ("per_cpu_second".to_owned(), figure),
            ("per_second".to_owned(), figure / 2.0),
        ]
        .into(),
        times: vec![(100, 990), (5000, 10)],
    };
    let mut record = Record {
        head: Head {
            version: VERSION,
            name: "example".into(),
            title: "Example".into(),
            question: "How fast? In truth.".into(),
            report: Some(("a report".into(), "one run".into())),
            started: 1_795_331_700,
            machine: Machine {
                processor: "Abacus".into(),
                cores: 2,
                memory_bytes: 1 << 30,
                kernel: "6.1".into(),
            },
            versions: vec![("nagaya".into(), "nagaya 0.1".into())],
            rows: vec![RowHead {
                name: "row".into(),
                variants: vec!["one".into(), "two".into()],
                figures: vec!["per_cpu_second".into()],
                targets: vec![Target {
                    of: "per_cpu_second".into(),
                    variant: "one".into(),
                    than: Some(super::model::Than::Variant("two".into())),
                    at_least: Some(1.1),
                    at_most: None,
                    more_at_most: None,
                }],
                reported: vec![Reported {
                    variant: None,
                    figure: 91.38,
                    of: "per_second".into(),
                }],
                load: "64 connections".into(),
                ..RowHead::default()
            }],
            ..Head::default()
        },
        ..Record::default()
    };
    for block in 0..13 {
        let wobble = 1.0 + (block % 3) as f64 / 100.0;
        record
            .slices
            .push(slice("one", Arm::Variant, block, 50_000.0 * wobble));
        record
            .slices
            .push(slice("one", Arm::Control, block, 50_100.0 * wobble));
        record
            .slices
            .push(slice("two", Arm::Variant, block, 40_000.0 * wobble));
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let record = example();
        let text = record.to_text().expect("it is written");
        assert_eq!(Record::of_text(&text).expect("it is read"), record);
        let with_later_kinds = format!("{text}{{\"kind\":\"weather\",\"rain\":1}}\n");
        assert_eq!(
            Record::of_text(&with_later_kinds).expect("it is read"),
            record
        );
    }

    #[test]
    fn void_blocks_do_not_count() {
        let blocks = example().by_block("row", "two", Arm::Variant, "per_cpu_second");
        assert_eq!(blocks.len(), 12);
        assert!(
            example()
                .by_block("row", "two", Arm::Wrk, "per_cpu_second")
                .is_empty()
        );
    }

    #[test]
    fn what_is_no_record_is_refused_in_words() {
        let head = example()
            .to_text()
            .expect("written")
            .lines()
            .next()
            .expect("a head")
            .to_owned();
        for (text, said) in [
            ("", "it is empty"),
            ("{}\n", "data.jsonl:1: missing field `kind`"),
            ("not json\n", "data.jsonl:1: expected"),
            (
                "{\"kind\":\"note\",\"tone\":\"bad\",\"text\":\"x\"}\n",
                "a head has to come first",
            ),
            (
                &head.replace("\"version\":1", "\"version\":9"),
                "it has version 9",
            ),
            (
                &format!("{head}\n{{\"kind\":\"slice\",\"row\":3}}\n"),
                "data.jsonl:2: ",
            ),
        ] {
            let error = Record::of_text(text).expect_err(text).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
