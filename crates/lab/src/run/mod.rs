//! Runs an experiment: starts what a row needs, checks that it answers alike, and runs the blocks.
//!
//! The idea: what goes wrong with one variant or one row is written down, and the rest is measured
//! all the same; only an interrupt ends everything. What was started belongs to the run, and ends
//! with it.

mod blocks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::adding;
use super::answer::{self, Answer};
use super::bed::{Bed, Keep, Started};
use super::generator;
use super::interrupt;
use super::model::{Ask, Better, Command, Control, Experiment, Measure, Row, Service};
use super::program::{self, Programs};
use super::progress::Progress;
use super::record::{Arm, Head, Machine, Note, Record, RowHead, VERSION};
use super::results::Unfinished;
use super::wrk;
use load::Error;
use report::Tone;

/// What a slice takes beside its load, for the estimate of the time left.
const SLICE_OVERHEAD: f64 = 0.3;

/// How an experiment is to be run.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) programs: Programs,
    pub(crate) without: Vec<String>,
    pub(crate) only: Vec<String>,
    pub(crate) keep: Keep,
    pub(crate) stored: Stored,
    pub(crate) seed: u64,
}

/// What becomes of the results that are stored already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// They make room.
    Replaced,
    /// Rows that were not run stay.
    Added,
}

/// What is measured side by side in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Contender {
    variant: usize,
    arm: Arm,
}

impl Contender {
    /// Where it runs: wrk loads the variant itself.
    fn process(self) -> Contender {
        match self.arm {
            Arm::Wrk => Contender {
                arm: Arm::Variant,
                ..self
            },
            _ => self,
        }
    }
}

struct Run<'a> {
    experiment: &'a Experiment,
    setting: &'a Setting,
    /// Dropped before the bed.
    running: BTreeMap<Contender, Started>,
    bed: Bed,
    /// Variants that are not there or did not come up.
    absent: BTreeSet<usize>,
    random: fastrand::Rng,
    record: Record,
    progress: Progress,
    store: Unfinished,
    failed: bool,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Where its data lies.
    pub(crate) directory: PathBuf,
    pub(crate) end: End,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// All was measured.
    Whole,
    /// Something was not; a note says what.
    Gaps,
    /// By a signal, before its last row.
    CutShort,
}

/// Runs an experiment from its first command to its last. What it has measured is written in any
/// case; an error is of a run that has measured nothing.
pub(crate) fn run(experiment: &Experiment, setting: &Setting, output: &Path) -> Result<Ran, Error> {
    check_rows(experiment, setting)?;
    let store = Unfinished::new(output, &experiment.name)?;
    let bed = Bed::new(experiment, setting.programs.clone(), setting.keep)?;
    let mut run = Run {
        experiment,
        setting,
        running: BTreeMap::new(),
        bed,
        absent: BTreeSet::new(),
        random: fastrand::Rng::with_seed(setting.seed),
        record: Record::default(),
        progress: Progress::new(),
        store,
        failed: false,
    };
    run.head();
    let stored = match setting.stored {
        Stored::Added => run.store.stored()?,
        Stored::Replaced => None,
    };
    if let Some(stored) = &stored {
        adding::check(stored, &run.record.head)?;
    }
    run.find_missing();
    run.start_backends()?;
    run.commands(&experiment.before)?;
    let ended = run.rows();
    run.running.clear();
    if let Err(error) = ended {
        if run.record.slices.is_empty() {
            run.store.discard();
            return Err(error);
        }
        run.note(None, Tone::Bad, format!("cut short: {error}"));
        return Ok(Ran {
            directory: run.store.leave(&run.record)?,
            end: End::CutShort,
        });
    }
    if let Err(error) = run.commands(&experiment.after) {
        run.failed = true;
        run.note(None, Tone::Bad, error.to_string());
    }
    run.record.head.is_unfinished = false;
    let record = match stored {
        Some(stored) => adding::add(stored, run.record, experiment),
        None => run.record,
    };
    Ok(Ran {
        directory: run.store.finish(&record)?,
        end: if run.failed { End::Gaps } else { End::Whole },
    })
}

/// Fails where no row is to be run.
fn check_rows(experiment: &Experiment, setting: &Setting) -> Result<(), Error> {
    if wants_any(experiment, setting) {
        return Ok(());
    }
    let names = experiment.rows.iter().map(|row| row.name.as_str());
    Err(Error::new(
        "choose rows",
        format!(
            "no name holds what --only says; there are {}",
            names.collect::<Vec<_>>().join(", ")
        ),
    ))
}

/// Whether an experiment has a row that is to be run.
pub(crate) fn wants_any(experiment: &Experiment, setting: &Setting) -> bool {
    experiment
        .rows
        .iter()
        .any(|row| wants(experiment, row, setting))
}

/// A whole name means its row alone, although it may be a part of others' names.
fn wants(experiment: &Experiment, row: &Row, setting: &Setting) -> bool {
    let is_name = |text: &String| experiment.rows.iter().any(|row| row.name == *text);
    let means = |text: &String| match is_name(text) {
        true => row.name == *text,
        false => row.name.contains(text.as_str()),
    };
    setting.only.is_empty() || setting.only.iter().any(means)
}

/// How long a row will take.
fn expected(row: &Row) -> Duration {
    let arms = row.variants.len() + usize::from(row.control == Control::Again);
    let slice = row.load.seconds + row.load.warm_up.as_secs_f64() + SLICE_OVERHEAD;
    Duration::from_secs_f64(slice * (arms * row.load.blocks) as f64)
}

impl Run<'_> {
    /// Measures one row after another; fails only when it is interrupted.
    fn rows(&mut self) -> Result<(), Error> {
        let experiment = self.experiment;
        let wanted = experiment.rows.iter().filter(|row| self.wants(row));
        let rows: Vec<&Row> = wanted.collect();
        for (index, row) in rows.iter().enumerate() {
            let later = rows.iter().skip(index + 1).map(|row| expected(row)).sum();
            let result = self.row(row, later);
            interrupt::check()?;
            if let Err(error) = result {
                let text = format!("not measured to the end: {error}");
                self.note(Some(row), Tone::Bad, text);
                self.failed = true;
            }
        }
        Ok(())
    }

    fn head(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let report = self.experiment.report.as_ref();
        self.record.head = Head {
            version: VERSION,
            name: self.experiment.name.clone(),
            title: self.experiment.title.clone(),
            question: self.experiment.question.clone(),
            report: report.map(|report| (report.source.clone(), report.words.clone())),
            started: now.map_or(0, |now| now.as_secs()),
            seed: self.setting.seed,
            machine: Machine::here(),
            is_unfinished: true,
            ..Head::default()
        };
    }

    /// Says what is not there, and asks what is there for its version.
    fn find_missing(&mut self) {
        let experiment = self.experiment;
        let wanted: BTreeSet<usize> = experiment
            .rows
            .iter()
            .filter(|row| self.wants(row))
            .flat_map(|row| row.variants.iter().copied())
            .collect();
        for index in wanted {
            let Some(variant) = experiment.variants.get(index) else {
                continue;
            };
            if self.setting.without.contains(&variant.name) {
                self.absent.insert(index);
                continue;
            }
            if let Err(missing) = self.find(variant) {
                self.absent.insert(index);
                // A program left out on purpose needs no words.
                if !missing.contains("--without") {
                    let text = format!("{} is skipped: {missing}", variant.name);
                    self.progress.say(&text);
                    self.record.head.missing.push(text);
                }
            }
        }
    }

    /// Finds all that a service and its back ends need.
    fn find(&mut self, service: &Service) -> Result<(), String> {
        for name in &service.needs {
            let path = self.setting.programs.find(name)?;
            let known =
                |versions: &[(String, String)]| versions.iter().any(|(other, _)| other == name);
            if !name.starts_with('/') && !known(&self.record.head.versions) {
                let version = program::version(name, &path);
                let version = version.unwrap_or_else(|| name.clone());
                self.record.head.versions.push((name.clone(), version));
            }
        }
        let experiment = self.experiment;
        for name in &service.backends {
            let backend = experiment
                .backends
                .iter()
                .find(|backend| backend.name == *name);
            if let Some(backend) = backend {
                self.find(backend)?;
            }
        }
        Ok(())
    }

    /// Starts the back ends that the variants which are there lean on, in the order of the file.
    fn start_backends(&mut self) -> Result<(), Error> {
        let experiment = self.experiment;
        let mut wanted: BTreeSet<&str> = BTreeSet::new();
        for row in experiment.rows.iter().filter(|row| self.wants(row)) {
            let variants = self.present(row).into_iter();
            let services = variants.filter_map(|index| experiment.variants.get(index));
            wanted.extend(services.flat_map(|service| service.backends.iter().map(String::as_str)));
            wanted.extend(
                row.background
                    .iter()
                    .filter_map(|load| load.backend.as_deref()),
            );
        }
        // Each leans on earlier ones only, so one walk from the end finds all.
        for backend in experiment.backends.iter().rev() {
            if wanted.contains(backend.name.as_str()) {
                wanted.extend(backend.backends.iter().map(String::as_str));
            }
        }
        for backend in &experiment.backends {
            if wanted.contains(backend.name.as_str()) {
                self.progress.doing(&format!("starting {}", backend.name));
                self.bed.start_backend(backend)?;
            }
        }
        Ok(())
    }

    fn wants(&self, row: &Row) -> bool {
        wants(self.experiment, row, self.setting)
    }

    fn present(&self, row: &Row) -> Vec<usize> {
        let present = row.variants.iter().copied();
        present
            .filter(|index| !self.absent.contains(index))
            .collect()
    }

    fn note(&mut self, row: Option<&Row>, tone: Tone, text: String) {
        let shown = row.map_or_else(String::new, |row| format!("{}: ", row.name));
        self.progress.say(&format!("{shown}{text}"));
        self.record.notes.push(Note {
            row: row.map(|row| row.name.clone()),
            tone,
            text,
        });
    }

    fn name(&self, variant: usize) -> String {
        let service = self.experiment.variants.get(variant);
        service.map_or_else(String::new, |service| service.name.clone())
    }

    /// Measures a row. `later` is what the rows after it will take.
    fn row(&mut self, row: &Row, later: Duration) -> Result<(), Error> {
        let mut places = self.places(row);
        let slices = places.len() * row.load.blocks;
        self.progress.row(&row.name, slices as u32, later);
        let processes: BTreeSet<Contender> = places.iter().map(|place| place.process()).collect();
        self.running.retain(|place, _| processes.contains(place));
        for place in processes {
            self.bring_up(row, place)?;
        }
        places.retain(|place| !self.absent.contains(&place.variant));
        self.describe(row);
        self.store.write(&self.record)?;
        if places.is_empty() {
            self.note(
                Some(row),
                Tone::Warn,
                "skipped: none of its variants is here".into(),
            );
            return Ok(());
        }
        if !self.answer_alike(row, &places)? {
            self.failed = true;
            return Ok(());
        }
        let rate = self.rate(row, &places)?;
        self.blocks(row, &places, rate)
    }

    /// Who takes part: the variants that are there, the control, and wrk.
    fn places(&self, row: &Row) -> Vec<Contender> {
        let present = self.present(row);
        let place = |arm| {
            move |variant: &usize| Contender {
                variant: *variant,
                arm,
            }
        };
        let mut places: Vec<Contender> = present.iter().map(place(Arm::Variant)).collect();
        if row.control == Control::Again && present.len() > 1 {
            places.extend(present.first().map(place(Arm::Control)));
        }
        let crossed = |asks: &Vec<Ask>| row.cross_check && wrk::can(asks, &row.load);
        if matches!(&row.measure, Measure::Load(asks) if crossed(asks)) {
            places.extend(present.first().map(place(Arm::Wrk)));
        }
        places
    }

    /// Starts what does not run yet. A variant that does not come up is written down, and absent
    /// from then on.
    fn bring_up(&mut self, row: &Row, place: Contender) -> Result<(), Error> {
        if self.running.contains_key(&place) || self.absent.contains(&place.variant) {
            return Ok(());
        }
        let Some(service) = self.experiment.variants.get(place.variant) else {
            return Ok(());
        };
        self.progress.doing(&format!("starting {}", service.name));
        match self.bed.start(service, "variant") {
            Ok(started) => {
                self.running.insert(place, started);
            }
            Err(error) => {
                interrupt::check()?;
                self.bed.check_backends()?;
                self.absent.insert(place.variant);
                self.running
                    .retain(|other, _| other.variant != place.variant);
                self.failed = true;
                self.note(
                    Some(row),
                    Tone::Bad,
                    format!("{} is left out: {error}", service.name),
                );
            }
        }
        Ok(())
    }

    fn started(&self, place: Contender) -> Result<&Started, Error> {
        let found = self.running.get(&place.process());
        found.ok_or_else(|| {
            Error::new(
                format!("measure {}", self.name(place.variant)),
                "it does not run",
            )
        })
    }

    /// Writes the row into the head, as it is run.
    fn describe(&mut self, row: &Row) {
        let variants = self.present(row).into_iter();
        let variants: Vec<String> = variants.map(|index| self.name(index)).collect();
        let load = match &row.measure {
            Measure::Load(_) => generator::words(&row.load),
            Measure::Hold { connections, .. } => {
                format!("{connections} idle connections, {} times", row.load.blocks)
            }
            Measure::Command { .. } => format!("a command, {} times", row.load.blocks),
        };
        self.record.head.rows.push(RowHead {
            name: row.name.clone(),
            note: row.note.clone(),
            variants,
            figures: row.figures.clone(),
            more_is_better: match row.better {
                Better::ByName => None,
                Better::More => Some(true),
                Better::Less => Some(false),
            },
            targets: row.targets.clone(),
            reported: row.reported.clone(),
            load,
            scale: row.scale.clone(),
        });
    }

    /// Asks every variant once for everything; differences are written down.
    fn answer_alike(&mut self, row: &Row, places: &[Contender]) -> Result<bool, Error> {
        let asks: &[Ask] = match &row.measure {
            Measure::Load(asks) => asks,
            Measure::Hold { ask, .. } => std::slice::from_ref(ask),
            Measure::Command { .. } => return Ok(true),
        };
        let mut differing = Vec::new();
        for ask in asks {
            let mut first: Option<(String, Answer)> = None;
            for place in places {
                let name = self.name(place.variant);
                let answer = answer::ask(self.started(*place)?.address, ask)
                    .map_err(|e| Error::new(format!("ask {name} for {}", ask.path), e))?;
                if let Some(expected) = row.alike.expected.filter(|status| *status != answer.status)
                {
                    differing.push(format!(
                        "{name} answers {} with status {} instead of {expected} ({})",
                        ask.path,
                        answer.status,
                        answer::shown(&answer.body)
                    ));
                }
                match &first {
                    None => first = Some((name, answer)),
                    Some((other, theirs)) => {
                        let found = answer::differences(theirs, &answer, &row.alike);
                        let told = |what: &String| {
                            format!("{other} and {name} answer {} differently: {what}", ask.path)
                        };
                        differing.extend(found.iter().map(told));
                    }
                }
            }
        }
        differing.dedup();
        for text in &differing {
            self.note(
                Some(row),
                Tone::Bad,
                format!("not measured, for {text}; say in `alike` what has to be the same"),
            );
        }
        Ok(differing.is_empty())
    }

    fn commands(&mut self, commands: &[Command]) -> Result<(), Error> {
        let output = self.bed.command_output();
        let surroundings = self.bed.surroundings(None, &output);
        surroundings.run_all(commands).map(drop)
    }
}
