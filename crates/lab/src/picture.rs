//! Pictures that documents show, drawn from stored results: `make readme-figures`.
//!
//! `lab/figures.toml` says which. A picture is made of data that is kept beside the code, so a test
//! can tell that what a document shows is what was measured.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::judge::{self, Judged};
use super::record::Record;
use super::results;
use load::Error;
use report::{Bar, BarGroup, Bars, Chart};

/// The file beside the experiments that says what is drawn; no experiment itself.
pub(crate) const FILE: &str = "figures.toml";

/// Pictures of one file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pictures {
    #[serde(default)]
    figures: Vec<Picture>,
}

/// One picture: bars of one figure, a group for each row.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Picture {
    /// Where it goes, below the root of the project.
    file: PathBuf,
    /// Names of experiments, in order.
    results: Vec<String>,
    /// The figure: `per_cpu_second`.
    figure: String,
    /// Rows to show, in order; empty shows all that have the figure.
    #[serde(default)]
    rows: Vec<String>,
    /// Variants to leave out.
    #[serde(default)]
    without: Vec<String>,
    title: String,
    #[serde(default)]
    caption: String,
}

/// Draws what `lab/figures.toml` below this directory asks for; returns the files written.
pub(crate) fn draw_all(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut written = Vec::new();
    for picture in pictures(root)? {
        let file = root.join(&picture.file);
        results::replace(&file, &svg(root, &picture)?)?;
        written.push(file);
    }
    Ok(written)
}

fn pictures(root: &Path) -> Result<Vec<Picture>, Error> {
    let file = root.join("lab").join(FILE);
    let doing = || format!("read {}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|e| Error::new(doing(), e))?;
    let read: Pictures = toml::from_str(&text).map_err(|e| Error::new(doing(), e))?;
    Ok(read.figures)
}

fn results_of(root: &Path, name: &str) -> PathBuf {
    root.join("lab/results").join(name)
}

fn svg(root: &Path, picture: &Picture) -> Result<String, Error> {
    let mut records = Vec::new();
    for name in &picture.results {
        let directory = results_of(root, name);
        if !Record::is_stored(&directory) {
            let what = format!("draw {}", picture.file.display());
            let why = format!(
                "there are no results in {}; try `nagaya-lab run {name}`",
                directory.display()
            );
            return Err(Error::new(what, why));
        }
        records.push(Record::read(&directory)?);
    }
    Ok(chart(picture, &records).to_svg())
}

fn chart(picture: &Picture, records: &[Record]) -> Chart {
    let mut judged: Vec<Judged<'_>> = records
        .iter()
        .flat_map(|record| record.head.rows.iter().map(move |row| (record, row)))
        .map(|(record, row)| judge::judge(record, row, &picture.figure))
        .filter(|judged| !judged.variants.is_empty())
        .collect();
    if !picture.rows.is_empty() {
        let place =
            |judged: &Judged<'_>| picture.rows.iter().position(|row| *row == judged.row.name);
        judged.retain(|judged| place(judged).is_some());
        judged.sort_by_key(place);
    }
    let unit = judged
        .first()
        .map(|judged| judged.figure.unit)
        .unwrap_or_default();
    Chart::from(Bars {
        title: picture.title.clone(),
        caption: picture.caption.clone(),
        unit,
        groups: judged.iter().map(|judged| group(picture, judged)).collect(),
        reference: None,
    })
}

fn group(picture: &Picture, judged: &Judged<'_>) -> BarGroup {
    let shown = judged
        .variants
        .iter()
        .filter(|variant| !picture.without.contains(&variant.name));
    BarGroup {
        label: judged.row.name.clone(),
        bars: shown
            .map(|variant| Bar {
                name: variant.name.clone(),
                value: variant.summary.median,
                interval: variant
                    .interval
                    .map(|interval| (interval.low, interval.high)),
                reported: None,
            })
            .collect(),
        marker: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::example;
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn pictures_in_documents_are_what_the_stored_results_give() {
        let root = root();
        for picture in pictures(&root).expect("lab/figures.toml can be read") {
            let file = root.join(&picture.file);
            let is_measured = picture
                .results
                .iter()
                .all(|name| Record::is_stored(&results_of(&root, name)));
            // Before its first run an experiment has neither.
            assert_eq!(
                is_measured,
                file.exists(),
                "{}: run make readme-figures",
                file.display()
            );
            if is_measured {
                let drawn = svg(&root, &picture).expect("stored results can be drawn");
                let kept = std::fs::read_to_string(&file).expect("the picture can be read");
                assert!(
                    drawn == kept,
                    "{} is of other data: run make readme-figures",
                    file.display()
                );
            }
        }
    }

    #[test]
    fn a_picture_has_a_group_for_each_row_and_a_bar_for_each_variant() {
        let picture = Picture {
            file: "x.svg".into(),
            results: vec!["example".into()],
            figure: "per_cpu_second".into(),
            rows: Vec::new(),
            without: vec!["two".into()],
            title: "Requests".into(),
            caption: "Medians.".into(),
        };
        let Chart::Bars(bars) = chart(&picture, &[example()]) else {
            panic!("bars");
        };
        assert_eq!(bars.groups.len(), 1);
        assert_eq!(bars.groups[0].label, "row");
        let names: Vec<&str> = bars.groups[0]
            .bars
            .iter()
            .map(|bar| bar.name.as_str())
            .collect();
        assert_eq!(names, ["one"]);
        let bar = &bars.groups[0].bars[0];
        let (low, high) = bar.interval.expect("twelve blocks have an interval");
        assert!(low <= bar.value && bar.value <= high, "{bar:?}");
    }

    #[test]
    fn results_that_are_not_there_are_told_with_what_makes_them() {
        let directory = testkit::temp::TempDir::new();
        directory.write(
            "lab/figures.toml",
            "[[figures]]\nfile = \"docs/a.svg\"\nresults = [\"static\"]\nfigure = \"per_cpu_second\"\ntitle = \"A\"\n",
        );
        let error = draw_all(directory.path())
            .expect_err("nothing was measured")
            .to_string();
        assert!(error.contains("try `nagaya-lab run static`"), "{error}");
    }
}
