//! Where results go: the data, and reports drawn from it.

use std::path::{Path, PathBuf};

use super::draw as drawing;
use super::record::Record;
use super::together;
use crate::error::Error;
use crate::report::Document;

/// The marks between which a document has its figures.
const MARKS: (&str, &str) = ("<!-- figures -->\n", "<!-- /figures -->");

/// Writes the data of a run; returns its directory.
pub(crate) fn write(record: &Record, output: &Path) -> Result<PathBuf, Error> {
    let directory = output.join(&record.head.name);
    std::fs::create_dir_all(&directory)
        .map_err(|e| Error::new(format!("make {}", directory.display()), e))?;
    replace(&directory.join("data.jsonl"), &record.to_text()?)?;
    Ok(directory)
}

/// Draws the reports of a results directory from its data alone.
pub(crate) fn draw(directory: &Path) -> Result<(Record, Document), Error> {
    let record = Record::read(directory)?;
    let document = drawing::document(&record);
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
    fn reports_drawn_again_are_the_same() {
        let directory = testkit::TempDir::new();
        let record = example();
        let own = write(&record, directory.path()).expect("it is written");
        let read = |name: &str| std::fs::read_to_string(own.join(name)).expect("a report");
        draw(&own).expect("it is drawn");
        let first = (read("report.html"), read("report.md"));
        let (again, _) = draw(&own).expect("it is drawn");
        assert_eq!(again, record);
        assert_eq!((read("report.html"), read("report.md")), first);
    }
}
