//! Where results go: the data, what is kept of it, and reports drawn from it.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::draw as drawing;
use super::record::{self, DATA, Record, SUMMARY, Slice};
use super::summary;
use super::together;
use load::Error;
use report::Document;

/// The marks between which a document has its figures.
const MARKS: (&str, &str) = ("<!-- figures -->\n", "<!-- /figures -->");

/// The data of a run while it is made.
///
/// It lies in `NAME.unfinished`, block by block, so that a run that is cut short leaves what it has
/// measured, and leaves the results of an earlier one alone.
#[derive(Debug)]
pub(crate) struct Unfinished {
    directory: PathBuf,
    finished: PathBuf,
}

impl Unfinished {
    /// Where an experiment's results will go.
    pub(crate) fn new(output: &Path, name: &str) -> Result<Unfinished, Error> {
        std::fs::create_dir_all(output)
            .map_err(|e| Error::new(format!("make {}", output.display()), e))?;
        Ok(Unfinished {
            directory: output.join(format!("{name}.unfinished")),
            finished: output.join(name),
        })
    }

    /// Writes all that there is so far.
    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        replace(&self.directory.join(DATA), &record.to_text()?)
    }

    /// Adds a block to what was written.
    pub(crate) fn add(&self, slices: &[Slice]) -> Result<(), Error> {
        let path = self.directory.join(DATA);
        let text = record::slices_text(slices)?;
        let open = std::fs::File::options().append(true).open(&path);
        open.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| Error::new(format!("add to {}", path.display()), e))
    }

    /// What is stored of an earlier run, if any.
    pub(crate) fn stored(&self) -> Result<Option<Record>, Error> {
        if Record::is_stored(&self.finished) {
            return Record::read(&self.finished).map(Some);
        }
        Ok(None)
    }

    /// Takes away the data of a run that has measured nothing.
    pub(crate) fn discard(self) {
        let left = Record::read(&self.directory);
        if left.is_ok_and(|record| record.slices.is_empty()) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    /// Puts the data of a run that came to its end in its place; returns the directory.
    pub(crate) fn finish(self, record: &Record) -> Result<PathBuf, Error> {
        replace(&self.finished.join(DATA), &record.to_text()?)?;
        let _ = std::fs::remove_dir_all(&self.directory);
        Ok(self.finished)
    }

    /// Leaves the data of a run that was cut short where it is; returns the directory.
    pub(crate) fn leave(self, record: &Record) -> Result<PathBuf, Error> {
        self.write(record)?;
        Ok(self.directory)
    }
}

/// Draws the reports of a results directory from its data alone, and writes what is kept of that.
pub(crate) fn draw(directory: &Path) -> Result<(Record, Document), Error> {
    let record = Record::read(directory)?;
    let document = drawing::document(&record);
    replace(&directory.join(SUMMARY), &summary::summary(&record)?)?;
    replace(&directory.join("report.html"), &document.to_html())?;
    replace(&directory.join("report.md"), &document.to_markdown())?;
    Ok((record, document))
}

/// Writes several results into one file, and the short of them into a document.
pub(crate) fn write_together(
    records: &[Record],
    together: Option<&Path>,
    readme: Option<&Path>,
) -> Result<(), Error> {
    if let Some(file) = together {
        replace(file, &together::text(records))?;
    }
    if let Some(file) = readme {
        let old = std::fs::read_to_string(file);
        let old = old.map_err(|e| Error::new(format!("read {}", file.display()), e))?;
        let new = between_marks(&old, &together::short(records));
        let new = new.ok_or_else(|| {
            let marks = format!("it has no {} with {} after it", MARKS.0.trim(), MARKS.1);
            Error::new(format!("put figures into {}", file.display()), marks)
        })?;
        replace(file, &new)?;
    }
    Ok(())
}

/// The document with other text between its marks.
fn between_marks(document: &str, figures: &str) -> Option<String> {
    let (before, rest) = document.split_once(MARKS.0)?;
    let (_, after) = rest.split_once(MARKS.1)?;
    Some([before, MARKS.0, figures, MARKS.1, after].concat())
}

/// Whole, or not at all: a reader never sees half a file.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let write = || {
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            std::fs::create_dir_all(parent)?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(name);
        std::fs::write(&beside, text)?;
        std::fs::rename(&beside, path)
    };
    write().map_err(|e| Error::new(format!("write {}", path.display()), e))
}

#[cfg(test)]
mod tests {
    use super::super::record::example;
    use super::*;

    #[test]
    fn figures_are_replaced_between_their_marks_only() {
        let document = "a\n<!-- figures -->\nold\n<!-- /figures -->\nb\n";
        let replaced = between_marks(document, "new\n").expect("the marks are there");
        assert_eq!(replaced, "a\n<!-- figures -->\nnew\n<!-- /figures -->\nb\n");
        assert!(between_marks("no marks", "new").is_none());
    }

    #[test]
    fn what_is_cut_short_leaves_its_blocks_and_older_results() {
        let directory = testkit::TempDir::new();
        let begin = || Unfinished::new(directory.path(), "example").expect("a directory");
        let old = begin().finish(&example()).expect("it is written");
        let whole = example();
        let mut record = example();
        record.head.is_unfinished = true;
        let later = record.slices.split_off(30);
        begin().write(&record).expect("it is written");
        begin().add(&later).expect("it is added");
        let cut = directory.path().join("example.unfinished");
        let read = Record::read(&cut).expect("it is read");
        assert_eq!(read.slices, whole.slices);
        let text = drawing::document(&read).to_markdown();
        assert!(text.contains("cut short"), "{text}");
        assert_eq!(Record::read(&old).expect("it is read"), whole);
        begin().finish(&whole).expect("it is written");
        assert!(!cut.exists(), "what is finished is not unfinished");
    }

    #[test]
    fn what_measured_nothing_leaves_nothing() {
        let directory = testkit::TempDir::new();
        let begin = || Unfinished::new(directory.path(), "example").expect("a directory");
        let cut = directory.path().join("example.unfinished");
        let mut nothing = example();
        nothing.slices.clear();
        begin().write(&nothing).expect("it is written");
        begin().discard();
        assert!(!cut.exists());
        begin().leave(&example()).expect("it is written");
        begin().discard();
        assert!(cut.exists(), "an older run's blocks stay");
        begin().discard();
    }

    #[test]
    fn reports_drawn_again_are_the_same() {
        let directory = testkit::TempDir::new();
        let record = example();
        let begun = Unfinished::new(directory.path(), "example").expect("a directory");
        let own = begun.finish(&record).expect("it is written");
        let read = |name: &str| std::fs::read_to_string(own.join(name)).expect("a report");
        draw(&own).expect("it is drawn");
        let first = (read("report.html"), read("report.md"));
        let (again, _) = draw(&own).expect("it is drawn");
        assert_eq!(again, record);
        assert_eq!((read("report.html"), read("report.md")), first);
    }
}
