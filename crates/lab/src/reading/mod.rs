//! From an experiment's file to an [`Experiment`] that cannot be wrong, or all its problems.
//!
//! The idea: each kind of table has one function and one list of keys. A problem is written down
//! and reading goes on, so that names are checked even in a file with mistakes elsewhere.

mod loads;
mod row;
mod service;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::model::{Command, Content, Experiment, FieldReport, Load, SiteFile};
use super::source::{FILE_BYTES_MAX, Problem, Problems, Source, Table, Value};

pub(crate) use service::OURS;

const TOP: &str = "\
    title question report values files backends variants rows load read before after";
/// Variants, back ends, rows or files of one experiment.
const ENTRIES_MAX: usize = 256;
/// Files one entry of `[files]` may become.
const REPEAT_MAX: u64 = 100_000;
/// Bytes of one generated file.
const BYTES_MAX: u64 = 1 << 30;

/// Reads and checks the experiment in `file`.
pub(crate) fn read(file: &Path) -> Result<Experiment, Problems> {
    let unreadable = |message: String| Problems {
        path: file.to_owned(),
        list: vec![Problem { line: 1, message }],
    };
    let size = std::fs::metadata(file).map_or(0, |about| about.len());
    if size > FILE_BYTES_MAX {
        return Err(unreadable(format!(
            "{size} bytes; an experiment's file has at most {FILE_BYTES_MAX}"
        )));
    }
    let text = std::fs::read_to_string(file).map_err(|e| unreadable(e.to_string()))?;
    check(file, text)
}

/// Checks the text of an experiment.
pub(crate) fn check(file: &Path, text: String) -> Result<Experiment, Problems> {
    let source = Source::new(file, text);
    let experiment = lower(&source, file);
    match source.problems() {
        Some(problems) => Err(problems),
        None => Ok(experiment),
    }
}

/// `lab/NAME.toml` and `lab/NAME/experiment.toml` are both called NAME.
pub(crate) fn name_of(file: &Path) -> String {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map_or_else(String::new, |part| part.to_string_lossy().into_owned())
    };
    if file
        .file_name()
        .is_some_and(|name| name == "experiment.toml")
    {
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        return text(absolute.parent().and_then(Path::file_name));
    }
    text(file.file_stem())
}

fn lower(source: &Source, file: &Path) -> Experiment {
    let document = source.parse();
    let span = document.span();
    let top = Table::open(
        source,
        "the file",
        document.get_ref(),
        span.start..span.start,
        TOP,
    );
    let directory = file.parent().map_or_else(PathBuf::new, Path::to_owned);
    let backends = service::backends(&top, &directory);
    let names: Vec<&str> = backends
        .iter()
        .map(|backend| backend.name.as_str())
        .collect();
    let variants = service::variants(&top, &directory, &names);
    let base = top
        .get("load")
        .and_then(|value| value.table("[load]", loads::KEYS));
    let base = base.map_or_else(Load::default, |table| loads::load(&table, &Load::default()));
    let rows = row::rows(&top, &variants, &names, &base);
    Experiment {
        name: name_of(file),
        title: top
            .required("title", "title = \"Fixed replies\"")
            .and_then(|value| value.text())
            .unwrap_or_default(),
        question: top
            .required("question", "question = \"What does a reply cost?\"")
            .and_then(|value| value.text())
            .unwrap_or_default(),
        report: report(&top),
        values: values(&top),
        files: files(&top, &directory),
        backends,
        variants,
        rows,
        blocks: base.blocks,
        before: commands(&top, "before"),
        after: commands(&top, "after"),
        directory,
    }
}

fn report(top: &Table<'_>) -> Option<FieldReport> {
    let table = top.get("report")?.table("[report]", "source words")?;
    Some(FieldReport {
        source: table
            .required("source", "source = \"field report 2\"")?
            .text()?,
        words: table.text("words").unwrap_or_default(),
    })
}

/// Placeholders: `name = value`.
fn values(table: &Table<'_>) -> BTreeMap<String, String> {
    words(table, "values")
}

/// A table of words: texts, numbers or flags.
fn words(table: &Table<'_>, key: &str) -> BTreeMap<String, String> {
    let entries = table
        .get(key)
        .map_or_else(Vec::new, |value| value.entries());
    let word = |(name, value): (String, Value<'_>)| Some((name, value.word()?));
    entries.into_iter().filter_map(word).collect()
}

fn files(top: &Table<'_>, directory: &Path) -> Vec<SiteFile> {
    let entries = top
        .get("files")
        .map_or_else(Vec::new, |value| value.entries());
    let file = |(name, value): (String, Value<'_>)| site_file(name, &value, directory);
    limited(top, "files", entries)
        .into_iter()
        .filter_map(file)
        .collect()
}

fn site_file(name: String, value: &Value<'_>, directory: &Path) -> Option<SiteFile> {
    if !stays_below(&name) {
        value.report(format!(
            "`{name}` has to be a path below the site, without `..`"
        ));
    }
    if value.is_text() {
        return Some(SiteFile {
            content: Content::Text(value.text()?),
            name,
            repeat: 1,
            mode: 0o644,
        });
    }
    let title = format!("the file `{name}`");
    let table = value.table(title, "text bytes from repeat executable")?;
    let repeat = table.count("repeat", 1, REPEAT_MAX).unwrap_or(1);
    if (repeat > 1) != name.contains("@n@") {
        table.report(format!(
            "`{name}`: `repeat` and `@n@` in the name go together"
        ));
    }
    let content = match (table.get("text"), table.get("bytes"), table.get("from")) {
        (Some(text), None, None) => Content::Text(text.text()?),
        (None, Some(bytes), None) => Content::Bytes(bytes.count(0, BYTES_MAX)?),
        (None, None, Some(from)) => Content::From(beside(&from, directory)?),
        _ => {
            table.report(format!("`{name}` takes one of `text`, `bytes` and `from`"));
            return None;
        }
    };
    let executable = table.flag("executable").unwrap_or(false);
    Some(SiteFile {
        name,
        content,
        repeat,
        mode: if executable { 0o755 } else { 0o644 },
    })
}

/// A file beside the experiment that has to be there.
fn beside(value: &Value<'_>, directory: &Path) -> Option<PathBuf> {
    let path = directory.join(value.text()?);
    if path.is_file() {
        return Some(path);
    }
    value.report(format!(
        "`{}`: there is no file {}; paths begin where the experiment's file lies",
        value.name,
        path.display()
    ));
    None
}

fn stays_below(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Commands to run: a text is a line for the shell, a list of texts is a list of such, a list of
/// lists is commands word by word.
fn commands(table: &Table<'_>, key: &str) -> Vec<Command> {
    let Some(value) = table.get(key) else {
        return Vec::new();
    };
    if value.is_text() {
        return command(&value).into_iter().collect();
    }
    value.list().iter().filter_map(command).collect()
}

/// One command: a text for the shell, or a list of words.
fn command(value: &Value<'_>) -> Option<Command> {
    if value.is_text() {
        return value.text().map(Command::Shell);
    }
    let words = value.texts();
    if words.is_empty() {
        value.report(format!("`{}` has no words", value.name));
        return None;
    }
    Some(Command::Words(words))
}

/// The entries, unless they are too many.
fn limited<T>(table: &Table<'_>, what: &str, entries: Vec<T>) -> Vec<T> {
    if entries.len() > ENTRIES_MAX {
        let count = entries.len();
        table.report(format!("{count} {what}; there may be {ENTRIES_MAX}"));
        return Vec::new();
    }
    entries
}

#[cfg(test)]
mod tests;
