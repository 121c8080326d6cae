//! The blocks: random order, disturbed ones run again, looks.

use std::collections::BTreeMap;

use super::comparison::{
    BlockRecord, Comparison, Ended, Figures, Judgement, Metric, Side, SideRecord, VERSION,
};
use super::judgement::{self, Bootstrap};
use super::slice::Slice;
use super::{Options, Progress};
use load::Error;
use load::client::{Live, Series};
use load::stats::{BLOCKS_LEAST, Looks, RESAMPLES, Verdict};
use report::QuantileSeries;

/// Blocks run again at least, before disturbed ones count.
const VOIDED_LEAST: usize = 10;
/// Resamples of the interval that is good for watching only.
const RESAMPLES_WATCHED: usize = 400;
/// Quantiles of the record.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Runs a slice on a side.
pub(super) type RunSlice<'a> = dyn FnMut(Side) -> Result<Slice, Error> + 'a;

/// Runs blocks until the verdict falls, they are used up, or somebody stops it.
pub(super) fn run(
    options: &Options,
    metric: Metric,
    live: &Live,
    told: &mut dyn FnMut(&Progress),
    slice: &mut RunSlice<'_>,
) -> Result<Comparison, Error> {
    let looks = Looks::until(options.blocks_max);
    let mut tally = Tally::new(options, metric);
    // The first slice on each finds cold caches: nobody records it.
    for side in [Side::A, Side::B] {
        if !live.stopped() {
            slice(side)?;
        }
    }
    let mut ended = Ended::UsedUp;
    let mut last = None;
    while tally.blocks.len() < tally.blocks_max {
        let Some(block) = tally.block(live, slice)? else {
            ended = Ended::Interrupted;
            last = None;
            break;
        };
        if !tally.take(block) {
            continue;
        }
        told(&tally.progress());
        if looks.is_due(tally.blocks.len()) {
            let judgement = judgement::judge(&tally.blocks, metric, options, RESAMPLES);
            let is_known = !matches!(judgement.verdict, Verdict::CannotTell { .. });
            last = Some(judgement);
            if is_known {
                ended = Ended::Decided;
                break;
            }
        }
    }
    let judgement =
        last.unwrap_or_else(|| judgement::judge(&tally.blocks, metric, options, RESAMPLES));
    Ok(tally.into_comparison(judgement, ended))
}

/// A block that ran.
struct Block {
    record: BlockRecord,
    /// What disturbed it, in one word.
    noise: Option<&'static str>,
    times: [Option<Series>; 3],
}

struct Tally<'a> {
    options: &'a Options,
    metric: Metric,
    blocks_max: usize,
    random: fastrand::Rng,
    blocks: Vec<BlockRecord>,
    voided: BTreeMap<String, usize>,
    /// Response times of A and B.
    times: [Series; 2],
}

impl Tally<'_> {
    fn new(options: &Options, metric: Metric) -> Tally<'_> {
        Tally {
            options,
            metric,
            blocks_max: options.blocks_max.max(BLOCKS_LEAST),
            random: fastrand::Rng::with_seed(options.seed),
            blocks: Vec::new(),
            voided: BTreeMap::new(),
            times: [Series::default(), Series::default()],
        }
    }

    /// Runs a block; `None` when somebody stopped it.
    fn block(&mut self, live: &Live, slice: &mut RunSlice<'_>) -> Result<Option<Block>, Error> {
        let mut order = [Side::A, Side::B, Side::Again];
        self.random.shuffle(&mut order);
        let mut figures = [Figures::default(); 3];
        let mut times = [None, None, None];
        let mut noise = None;
        let mut said = None;
        let mut generator_bound = 0;
        for side in order {
            if live.stopped() {
                return Ok(None);
            }
            let seen = slice(side)?;
            figures[side as usize] = seen.figures;
            times[side as usize] = seen.response;
            generator_bound += u32::from(seen.is_generator_bound);
            if let Some((word, text)) = seen.noise {
                noise = Some(word);
                said = Some(text);
            }
        }
        // A slice that was cut short is no slice.
        if live.stopped() {
            return Ok(None);
        }
        let [a, b, again] = figures;
        let record = BlockRecord {
            order,
            a,
            b,
            again,
            noise: said,
            generator_bound,
        };
        Ok(Some(Block {
            record,
            noise,
            times,
        }))
    }

    /// Counts a block, or sees to it that it is run again. As many as half of the blocks are run
    /// again; whoever measures on a machine that is never quiet gets an answer nevertheless.
    fn take(&mut self, block: Block) -> bool {
        let voided: usize = self.voided.values().sum();
        let room = VOIDED_LEAST.max(self.blocks_max / 2);
        if let Some(word) = block.noise.filter(|_| voided < room) {
            *self.voided.entry(word.to_owned()).or_default() += 1;
            return false;
        }
        let [a, b, again] = block.times;
        for (own, others) in self.times.iter_mut().zip([[a, again], [b, None]]) {
            for other in others.into_iter().flatten() {
                own.merge(&other);
            }
        }
        self.blocks.push(block.record);
        true
    }

    fn progress(&self) -> Progress {
        let watched = Bootstrap {
            level: 0.95,
            resamples: RESAMPLES_WATCHED,
            seed: self.options.seed,
        };
        Progress {
            blocks: self.blocks.len(),
            blocks_max: self.blocks_max,
            voided: self.voided.values().sum(),
            ratio: watched.ratio(&self.blocks, self.metric, 1.0),
        }
    }

    fn into_comparison(self, judgement: Judgement, ended: Ended) -> Comparison {
        Comparison {
            version: VERSION,
            names: self.options.names.clone(),
            metric: self.metric,
            margin: self.options.margin,
            slice_seconds: self.options.slice.as_secs_f64(),
            connections: 0,
            blocks_max: self.blocks_max,
            seed: self.options.seed,
            blocks: self.blocks,
            voided: self.voided,
            judgement,
            sides: self.times.map(|times| side_record(&times)),
            ended,
            seconds: 0.0,
        }
    }
}

fn side_record(times: &Series) -> SideRecord {
    let count = times.count() as f64;
    let known = QUANTILES.into_iter().filter(|q| count * (1.0 - q) >= 10.0);
    SideRecord {
        quantiles: known.map(|q| (q, times.quantile_us(q) as f64)).collect(),
        curve: QuantileSeries::of("", &times.histogram).points,
    }
}
