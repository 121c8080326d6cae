//! The blocks of a row: everybody once in each, in random order, until enough of them count.

use std::collections::{BTreeMap, BTreeSet};

use super::super::bed::Started;
use super::super::hold;
use super::super::interrupt;
use super::super::model::{Ask, Measure, Rate, Row};
use super::super::record::{Arm, Slice};
use super::super::slice::{self, Measured};
use super::super::summary::rounded;
use super::super::wrk;
use super::{Contender, Run};
use load::Error;
use report::{Tone, units};

/// Seconds of a load that finds out what a variant does flat out.
const CALIBRATION_SECONDS: f64 = 1.0;
/// Times that is tried before a variant is said to answer nothing.
const CALIBRATIONS_MAX: usize = 3;
/// Seconds of the load that warms a variant up before a row.
const WARM_SECONDS: f64 = 0.5;
/// A row runs at most so many blocks for each that is wanted, the void ones included.
const BLOCKS_FACTOR: usize = 2;

impl Run<'_> {
    /// The rate of the row: its own, or a share of the slowest variant's, found out here.
    pub(super) fn rate(&mut self, row: &Row, places: &[Contender]) -> Result<Rate, Error> {
        let Measure::Load(asks) = &row.measure else {
            return Ok(Rate::Full);
        };
        let mut slowest = f64::INFINITY;
        // The control as well: cold, it would differ from its twin.
        let variants = places.iter().filter(|place| place.arm != Arm::Wrk);
        for place in variants.collect::<Vec<_>>() {
            let seconds = match row.load.rate {
                Rate::Share(_) => CALIBRATION_SECONDS,
                _ if row.load.requests.is_some() || row.fresh => continue,
                _ => WARM_SECONDS,
            };
            self.progress
                .doing(&format!("warming up {}", self.name(place.variant)));
            let address = self.started(*place)?.address;
            let mut reached = 0.0;
            // On a busy machine even a second may pass without a reply.
            for _ in 0..CALIBRATIONS_MAX {
                reached = slice::flat_out(&row.load, asks, address, seconds)?;
                if reached > 0.0 {
                    break;
                }
            }
            slowest = slowest.min(reached);
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
    pub(super) fn blocks(
        &mut self,
        row: &Row,
        places: &[Contender],
        rate: Rate,
    ) -> Result<(), Error> {
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
            self.store.write(&self.record)?;
        }
        Ok(())
    }

    /// Where hardly a block was undisturbed, disturbed ones are better than none; it is said.
    /// Those in which somebody was silent never count.
    fn settle_voids(&mut self, row: &Row, from: usize, good: usize, void: usize) {
        let silent = self.silent(row, from, good + void);
        let void = void - silent.len();
        if void == 0 {
            return;
        }
        let reason = self
            .record
            .slices
            .iter()
            .skip(from)
            .filter(|slice| !silent.contains(&slice.block))
            .find_map(|slice| slice.void.clone());
        let reason = reason.map_or_else(String::new, |reason| format!(" (the first: {reason})"));
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
            own.filter(|slice| !silent.contains(&slice.block))
                .for_each(|slice| slice.void = None);
            (
                Tone::Warn,
                format!(
                    "{void} of {} blocks were disturbed; all count, for hardly any was not",
                    good + void
                ),
            )
        };
        self.note(Some(row), tone, text + &reason);
    }

    /// The blocks in which somebody gave not one whole reply; they are told.
    fn silent(&mut self, row: &Row, from: usize, blocks: usize) -> BTreeSet<usize> {
        let own = self.record.slices.iter().skip(from);
        let silent: Vec<_> = own.filter(|slice| is_silent(&slice.figures)).collect();
        let names: BTreeSet<&str> = silent.iter().map(|slice| slice.variant.as_str()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let found: BTreeSet<usize> = silent.iter().map(|slice| slice.block).collect();
        if !found.is_empty() {
            self.failed = true;
            let text = format!(
                "not one whole reply came from {names} in {} of {blocks} blocks, which count for nothing; longer slices (`seconds`) or fewer connections may help",
                found.len()
            );
            self.note(Some(row), Tone::Bad, text);
        }
        found
    }

    fn restart(&mut self, row: &Row, places: &[Contender]) -> Result<(), Error> {
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
        places: &[Contender],
        rate: Rate,
        (block, good, wanted): (usize, usize, usize),
    ) -> Result<Option<String>, Error> {
        let mut order = places.to_vec();
        self.random.shuffle(&mut order);
        let seed = self.random.u64(..);
        let from = self.record.slices.len();
        let done = self.slices(row, order, rate, (block, good, wanted), seed);
        // Half a block compares nobody.
        let noise = done.inspect_err(|_| self.record.slices.truncate(from))?;
        for slice in self.record.slices.iter_mut().skip(from) {
            slice.void.clone_from(&noise);
        }
        self.store
            .add(self.record.slices.get(from..).unwrap_or_default())?;
        Ok(noise)
    }

    /// The slices of a block; returns what disturbed one of them.
    fn slices(
        &mut self,
        row: &Row,
        order: Vec<Contender>,
        rate: Rate,
        (block, good, wanted): (usize, usize, usize),
        seed: u64,
    ) -> Result<Option<String>, Error> {
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
                figures: measured
                    .figures
                    .into_iter()
                    .map(|(name, value)| (name, rounded(value)))
                    .collect(),
                times: measured.times,
            });
            self.progress.slice_done();
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
        let median = load::stats::median(&values);
        median.map_or_else(String::new, |median| {
            format!(" · {name} {} {figure}", units::figure(median))
        })
    }

    /// One slice of one place, with the commands around it.
    fn slice(
        &mut self,
        row: &Row,
        place: Contender,
        rate: Rate,
        seed: u64,
    ) -> Result<Measured, Error> {
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
                let address = |name: &str| self.bed.backend(name).map(|backend| backend.address);
                slice::load(row, asks, started, rate, seed, address)?
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
        if is_silent(&measured.figures) {
            // Of a reply or two in the warm-up no cost is told.
            measured.figures.remove("per_cpu_second");
            measured.figures.remove("cpu_us");
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
        let address = started.address;
        let pid = started.running.pid();
        let watched = slice::watch(&[], pid, || {
            wrk::run(&surroundings, &row.load, ask, address)
        })?;
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

    fn check_alive(&mut self, place: Contender) -> Result<(), Error> {
        self.bed.check_backends()?;
        match self.running.get_mut(&place.process()) {
            Some(started) => started.check(),
            None => Ok(()),
        }
    }
}

/// Whether a load got not one whole reply.
fn is_silent(figures: &BTreeMap<String, f64>) -> bool {
    figures.get("completed") == Some(&0.0)
}
