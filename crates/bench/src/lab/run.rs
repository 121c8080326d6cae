//! Runs an experiment: starts what a row needs, checks that it answers alike, and runs the blocks.
//!
//! The idea: what goes wrong with one variant or one row is written down, and the rest is measured
//! all the same; only an interrupt ends everything. What was started belongs to the run, and ends
//! with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::answer::{self, Answer};
use super::bed::{Bed, Keep, Started};
use super::hold;
use super::interrupt;
use super::load;
use super::model::{Ask, Better, Command, Control, Experiment, Measure, Rate, Row, Service};
use super::program::{self, Programs};
use super::progress::Progress;
use super::record::{Arm, Head, Machine, Note, Record, RowHead, Slice, VERSION};
use super::slice::{self, Measured};
use super::wrk;
use crate::error::Error;
use crate::report::{Tone, units};

/// Seconds of a load that finds out what a variant does flat out.
const CALIBRATION_SECONDS: f64 = 1.0;
/// Seconds of the load that warms a variant up before a row.
const WARM_SECONDS: f64 = 0.5;
/// A row runs at most so many blocks for each that is wanted, the void ones included.
const BLOCKS_FACTOR: usize = 2;
/// What a slice takes beside its load, for the estimate of the time left.
const SLICE_OVERHEAD: f64 = 0.3;

/// How an experiment is to be run.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) programs: Programs,
    pub(crate) without: Vec<String>,
    pub(crate) only: Vec<String>,
    pub(crate) keep: Keep,
    pub(crate) seed: u64,
}

/// What is measured side by side in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    variant: usize,
    arm: Arm,
}

impl Place {
    /// Where it runs: wrk loads the variant itself.
    fn process(self) -> Place {
        match self.arm {
            Arm::Wrk => Place {
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
    running: BTreeMap<Place, Started>,
    bed: Bed,
    /// Variants that are not there or did not come up.
    absent: BTreeSet<usize>,
    random: fastrand::Rng,
    record: Record,
    progress: Progress,
    failed: bool,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) record: Record,
    /// Whether all went well.
    pub(crate) is_whole: bool,
}

/// Runs an experiment from its first command to its last.
pub(crate) fn run(experiment: &Experiment, setting: &Setting) -> Result<Ran, Error> {
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
        failed: false,
    };
    run.head();
    run.find_missing();
    run.start_backends()?;
    run.commands(&experiment.before)?;
    let rows: Vec<&Row> = experiment
        .rows
        .iter()
        .filter(|row| run.wants(row))
        .collect();
    if rows.is_empty() {
        let names: Vec<&str> = experiment
            .rows
            .iter()
            .map(|row| row.name.as_str())
            .collect();
        return Err(Error::new(
            "choose rows",
            format!(
                "no name holds what --only says; there are {}",
                names.join(", ")
            ),
        ));
    }
    for (index, row) in rows.iter().enumerate() {
        let later = rows.iter().skip(index + 1).map(|row| expected(row)).sum();
        let result = run.row(row, later);
        interrupt::check()?;
        if let Err(error) = result {
            run.note(
                Some(row),
                Tone::Bad,
                format!("not measured to the end: {error}"),
            );
            run.failed = true;
        }
    }
    run.running.clear();
    run.commands(&experiment.after)?;
    Ok(Ran {
        is_whole: !run.failed,
        record: std::mem::take(&mut run.record),
    })
}

/// Whether an experiment has a row that is to be run.
pub(crate) fn wants_any(experiment: &Experiment, setting: &Setting) -> bool {
    experiment.rows.iter().any(|row| wants(row, setting))
}

fn wants(row: &Row, setting: &Setting) -> bool {
    let only = &setting.only;
    only.is_empty() || only.iter().any(|text| row.name.contains(text.as_str()))
}

/// How long a row will take.
fn expected(row: &Row) -> Duration {
    let arms = row.variants.len() + usize::from(row.control == Control::Again);
    let slice = row.load.seconds + row.load.warm_up.as_secs_f64() + SLICE_OVERHEAD;
    Duration::from_secs_f64(slice * (arms * row.load.blocks) as f64)
}

impl Run<'_> {
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
                let version = version.unwrap_or_else(|| path.display().to_string());
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
        wants(row, self.setting)
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
        let processes: BTreeSet<Place> = places.iter().map(|place| place.process()).collect();
        self.running.retain(|place, _| processes.contains(place));
        for place in processes {
            self.bring_up(row, place)?;
        }
        places.retain(|place| !self.absent.contains(&place.variant));
        self.describe(row);
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
    fn places(&self, row: &Row) -> Vec<Place> {
        let present = self.present(row);
        let place = |arm| {
            move |variant: &usize| Place {
                variant: *variant,
                arm,
            }
        };
        let mut places: Vec<Place> = present.iter().map(place(Arm::Variant)).collect();
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
    fn bring_up(&mut self, row: &Row, place: Place) -> Result<(), Error> {
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

    fn started(&self, place: Place) -> Result<&Started, Error> {
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
            Measure::Load(_) => load::words(&row.load),
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
    fn answer_alike(&mut self, row: &Row, places: &[Place]) -> Result<bool, Error> {
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
                let answer = answer::ask(self.started(*place)?.port, ask)
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

    /// The rate of the row: its own, or a share of the slowest variant's, found out here.
    fn rate(&mut self, row: &Row, places: &[Place]) -> Result<Rate, Error> {
        let Measure::Load(asks) = &row.measure else {
            return Ok(Rate::Full);
        };
        let mut slowest = f64::INFINITY;
        let variants = places.iter().filter(|place| place.arm == Arm::Variant);
        for place in variants.collect::<Vec<_>>() {
            let seconds = match row.load.rate {
                Rate::Share(_) => CALIBRATION_SECONDS,
                _ if row.load.requests.is_some() || row.fresh => continue,
                _ => WARM_SECONDS,
            };
            self.progress
                .doing(&format!("warming up {}", self.name(place.variant)));
            let port = self.started(*place)?.port;
            slowest = slowest.min(slice::flat_out(&row.load, asks, port, seconds)?);
        }
        match row.load.rate {
            Rate::Share(share) if slowest.is_finite() && slowest > 0.0 => {
                let rate = slowest * share;
                self.note(
                    Some(row),
                    Tone::Plain,
                    format!("{} requests a second for all", units::figure(rate)),
                );
                Ok(Rate::PerSecond(rate))
            }
            Rate::Share(_) => Err(Error::new(
                "find the rate",
                "the slowest variant answered nothing",
            )),
            rate => Ok(rate),
        }
    }

    /// Runs blocks until enough of them count.
    fn blocks(&mut self, row: &Row, places: &[Place], rate: Rate) -> Result<(), Error> {
        let wanted = row.load.blocks;
        let from = self.record.slices.len();
        let (mut good, mut void) = (0, 0);
        for block in 0..wanted * BLOCKS_FACTOR {
            if good >= wanted {
                break;
            }
            if row.load.restart_blocks > 0 && block > 0 && block % row.load.restart_blocks == 0 {
                self.restart(row, places)?;
            }
            match self.block(row, places, rate, (block, good, wanted))? {
                None => good += 1,
                Some(_) => void += 1,
            }
        }
        if void > 0 {
            self.settle_voids(row, from, good, void);
        }
        Ok(())
    }

    /// Where hardly a block was undisturbed, disturbed ones are better than none; it is said.
    fn settle_voids(&mut self, row: &Row, from: usize, good: usize, void: usize) {
        let (tone, text) = if good * 2 >= row.load.blocks {
            (
                Tone::Plain,
                format!(
                    "{void} of {} blocks were void and count for nothing",
                    good + void
                ),
            )
        } else {
            let own = self.record.slices.iter_mut().skip(from);
            own.for_each(|slice| slice.void = None);
            (
                Tone::Warn,
                format!(
                    "{void} of {} blocks were disturbed; all count, for hardly any was not",
                    good + void
                ),
            )
        };
        let reason = self
            .record
            .slices
            .iter()
            .skip(from)
            .find_map(|slice| slice.void.clone());
        let reason = reason.map_or_else(String::new, |reason| format!(" (the first: {reason})"));
        self.note(Some(row), tone, text + &reason);
    }

    fn restart(&mut self, row: &Row, places: &[Place]) -> Result<(), Error> {
        for place in places {
            self.running.remove(&place.process());
        }
        for place in places {
            self.bring_up(row, place.process())?;
            self.started(*place)?;
        }
        Ok(())
    }

    /// One block: everybody once, in random order. Returns why it is void.
    fn block(
        &mut self,
        row: &Row,
        places: &[Place],
        rate: Rate,
        (block, good, wanted): (usize, usize, usize),
    ) -> Result<Option<String>, Error> {
        let mut order = places.to_vec();
        self.random.shuffle(&mut order);
        let seed = self.random.u64(..);
        let from = self.record.slices.len();
        let mut noise: Option<String> = None;
        for (turn, place) in order.into_iter().enumerate() {
            interrupt::check()?;
            let estimate = self.estimate(row);
            let name = self.name(place.variant);
            self.progress
                .doing(&format!("block {}/{wanted} · {name}{estimate}", good + 1));
            let measured = self.slice(row, place, rate, seed)?;
            noise = noise.or(measured.noise);
            self.record.slices.push(Slice {
                row: row.name.clone(),
                variant: name,
                arm: place.arm,
                block,
                order: turn,
                void: None,
                figures: measured.figures,
                times: measured.times,
            });
            self.progress.slice_done();
        }
        for slice in self.record.slices.iter_mut().skip(from) {
            slice.void.clone_from(&noise);
        }
        Ok(noise)
    }

    /// The main figure so far, for the progress line.
    fn estimate(&self, row: &Row) -> String {
        let figure = row.figures.first().cloned().unwrap_or_default();
        let first = row
            .variants
            .iter()
            .find(|index| !self.absent.contains(index));
        let Some(name) = first.map(|index| self.name(*index)) else {
            return String::new();
        };
        let values = self
            .record
            .by_block(&row.name, &name, Arm::Variant, &figure);
        let values: Vec<f64> = values.into_values().collect();
        let median = crate::stats::median(&values);
        median.map_or_else(String::new, |median| {
            format!(" · {name} {} {figure}", units::figure(median))
        })
    }

    /// One slice of one place, with the commands around it.
    fn slice(&mut self, row: &Row, place: Place, rate: Rate, seed: u64) -> Result<Measured, Error> {
        if row.fresh {
            self.running.remove(&place.process());
            self.bring_up(row, place.process())?;
        }
        std::thread::sleep(row.load.rest);
        let experiment = self.experiment;
        let service = experiment.variants.get(place.variant);
        let before = service.map_or(&[][..], |service| &service.before_slice);
        let after = service.map_or(&[][..], |service| &service.after_slice);
        let output = self.bed.command_output();
        let started = self.started(place)?;
        let surroundings = self.bed.surroundings(Some(started), &output);
        surroundings.run_all(before)?;
        surroundings.run_all(&row.before_slice)?;
        let mut measured = match &row.measure {
            Measure::Load(asks) if place.arm == Arm::Wrk => self.with_wrk(row, asks, started)?,
            Measure::Load(asks) => {
                let port = |name: &str| self.bed.backend(name).map(|backend| backend.port);
                slice::load(row, asks, started, rate, seed, port)?
            }
            Measure::Hold {
                ask,
                connections,
                settle,
            } => Measured {
                figures: hold::measure(started, ask, *connections, *settle)?,
                ..Measured::default()
            },
            Measure::Command { command, within } => Measured {
                figures: surroundings.run(command, *within)?,
                ..Measured::default()
            },
        };
        measured
            .figures
            .extend(surroundings.run_all(&row.after_slice)?);
        measured.figures.extend(surroundings.run_all(after)?);
        if let (Some(logged), Some(replies)) = (
            measured.figures.get("logged"),
            measured.figures.get("replies"),
        ) {
            let unlogged = (replies - logged).max(0.0);
            measured.figures.insert("unlogged".into(), unlogged);
        }
        self.check_alive(place)?;
        let completed = measured.figures.get("completed");
        if completed.is_some_and(|completed| *completed == 0.0) {
            let reason = format!("not one whole reply came from {}", self.name(place.variant));
            measured.noise = Some(reason);
        }
        Ok(measured)
    }

    fn with_wrk(&self, row: &Row, asks: &[Ask], started: &Started) -> Result<Measured, Error> {
        let ask = asks
            .first()
            .ok_or_else(|| Error::new("start wrk", "nothing is asked for"))?;
        let output = self.bed.command_output();
        let surroundings = self.bed.surroundings(None, &output);
        let port = started.port;
        let pid = started.running.pid();
        let watched = slice::watch(&[], pid, || wrk::run(&surroundings, &row.load, ask, port))?;
        let (requests, mut figures) = watched.done?;
        figures.insert(
            "per_cpu_second".into(),
            requests / watched.spent.cpu().as_secs_f64(),
        );
        Ok(Measured {
            figures,
            times: Vec::new(),
            noise: watched.noise,
        })
    }

    fn check_alive(&mut self, place: Place) -> Result<(), Error> {
        self.bed.check_backends()?;
        match self.running.get_mut(&place.process()) {
            Some(started) => started.check(),
            None => Ok(()),
        }
    }

    fn commands(&mut self, commands: &[Command]) -> Result<(), Error> {
        let output = self.bed.command_output();
        let surroundings = self.bed.surroundings(None, &output);
        surroundings.run_all(commands).map(drop)
    }
}
