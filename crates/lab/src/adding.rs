//! Rows that were run apart, among the stored results of the others.
//!
//! The idea: a row stands for itself, so it may be measured at another time than its neighbours,
//! on the same machine. What is stored of a row goes when it comes again, and a note on it says
//! when it was run.

use super::model::Experiment;
use super::record::{Head, Note, Record};
use load::Error;
use report::{Tone, units};

/// Fails where rows of this machine may not stand beside the stored ones.
pub(crate) fn check(stored: &Record, new: &Head) -> Result<(), Error> {
    let theirs = &stored.head.machine;
    if *theirs == new.machine {
        return Ok(());
    }
    Err(Error::new(
        "add to the stored results",
        format!(
            "they are of another machine or kernel ({}, {} cores, Linux {}); run all rows without --add",
            theirs.processor, theirs.cores, theirs.kernel
        ),
    ))
}

/// The stored record with the rows of the new one in it, in the order of the experiment.
pub(crate) fn add(stored: Record, new: Record, experiment: &Experiment) -> Record {
    let again: Vec<String> = new.head.rows.iter().map(|row| row.name.clone()).collect();
    let is_again = |row: &str| again.iter().any(|name| name == row);
    let rows = stored.head.rows.into_iter();
    let rows: Vec<_> = rows.filter(|row| !is_again(&row.name)).collect();
    if rows.is_empty() {
        return new;
    }
    let slices = stored.slices.into_iter();
    let curves = stored.curves.into_iter();
    let notes = stored.notes.into_iter();
    let stays = |note: &Note| !note.row.as_deref().is_some_and(is_again);
    let mut whole = Record {
        slices: slices.filter(|slice| !is_again(&slice.row)).collect(),
        curves: curves.filter(|curve| !is_again(&curve.row)).collect(),
        notes: notes.filter(stays).collect(),
        head: Head {
            // The answers to these are told once, those of the row in its note.
            started: stored.head.started,
            seed: stored.head.seed,
            rows,
            versions: stored.head.versions,
            missing: stored.head.missing,
            ..new.head.clone()
        },
    };
    whole.notes.extend(again.iter().map(|row| Note {
        row: Some(row.clone()),
        tone: Tone::Plain,
        text: format!(
            "run apart from the rest, {}, seed {}",
            units::instant(new.head.began()),
            new.head.seed
        ),
    }));
    append(&mut whole.head.versions, new.head.versions);
    append(&mut whole.head.missing, new.head.missing);
    whole.head.rows.extend(new.head.rows);
    whole.head.rows.sort_by_key(|row| {
        let mut names = experiment.rows.iter().map(|row| &row.name);
        names
            .position(|name| *name == row.name)
            .unwrap_or(usize::MAX)
    });
    whole.slices.extend(new.slices);
    whole.notes.extend(new.notes);
    whole
}

/// What is not there yet.
fn append<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::reading;
    use super::super::record::{Machine, example};
    use super::*;

    const FILE: &str = "
title = \"Example\"
question = \"?\"
[[variants]]
name = \"one\"
command = [\"one\"]
[[rows]]
name = \"first\"
path = \"/\"
[[rows]]
name = \"row\"
path = \"/\"
";

    fn experiment() -> Experiment {
        let read = reading::check(Path::new("example.toml"), FILE.to_owned());
        read.expect("an experiment")
    }

    /// The example's only row, under another name.
    fn called(name: &str, seed: u64) -> Record {
        let mut record = example();
        record.head.seed = seed;
        record.head.rows[0].name = name.to_owned();
        for slice in &mut record.slices {
            slice.row = name.to_owned();
        }
        record
    }

    #[test]
    fn a_row_comes_in_its_place_and_says_when_it_was_run() {
        let whole = add(called("row", 1), called("first", 2), &experiment());
        let names: Vec<&str> = whole
            .head
            .rows
            .iter()
            .map(|row| row.name.as_str())
            .collect();
        assert_eq!(names, ["first", "row"]);
        assert_eq!(whole.slices.len(), 2 * example().slices.len());
        assert_eq!((whole.head.seed, whole.head.versions.len()), (1, 1));
        let note = whole.notes.first().expect("a note");
        assert_eq!(note.row.as_deref(), Some("first"));
        assert!(note.text.ends_with("seed 2"), "{}", note.text);
    }

    #[test]
    fn a_row_that_comes_again_takes_the_place_of_the_old_one() {
        let whole = add(called("row", 1), called("first", 2), &experiment());
        let mut again = called("first", 3);
        again.slices.truncate(4);
        let whole = add(whole, again, &experiment());
        let of_first = whole.slices.iter().filter(|slice| slice.row == "first");
        assert_eq!(of_first.count(), 4);
        assert_eq!(whole.notes.len(), 1, "{:?}", whole.notes);
        assert_eq!(
            add(called("row", 1), called("row", 2), &experiment()),
            called("row", 2)
        );
    }

    #[test]
    fn figures_of_two_machines_are_not_put_into_one_table() {
        let (stored, mut new) = (example(), example().head);
        assert!(check(&stored, &new).is_ok());
        new.machine = Machine {
            cores: 64,
            ..new.machine
        };
        assert!(check(&stored, &new).is_err());
    }
}
