//! From blocks to a verdict, and to what speaks against it.

use super::Options;
use super::comparison::{BlockRecord, Doubt, Figures, Judgement, Metric, Side, Weight};
use load::stats::{
    self, BLOCKS_LEAST, Interval, Looks, Verdict, deviation, minimum_detectable, spearman,
    widening, wilcoxon_signed_rank,
};
use report::units;

/// Failed requests of one side that make its other figures worthless, as a share.
const FAILED_MAX: f64 = 0.01;
/// Slices bound by the generator that make a capacity worthless, as a share.
const BOUND_MAX: f64 = 0.1;
/// Blocks that count although they were disturbed, of which is told, as a share.
const NOISY_MAX: f64 = 0.1;

/// Judges the blocks so far as a look does, by intervals of so many resamples.
pub(super) fn judge(
    blocks: &[BlockRecord],
    metric: Metric,
    options: &Options,
    resamples: usize,
) -> Judgement {
    let bootstrap = Bootstrap {
        level: Looks::until(options.blocks_max).level(),
        resamples,
        seed: options.seed,
    };
    let middles: Vec<f64> = blocks.iter().filter_map(|b| b.middle(metric)).collect();
    let widening = widening(&middles);
    let seen = Seen {
        ratio: bootstrap.ratio(blocks, metric, widening),
        control: bootstrap.control(blocks, metric),
        widening,
    };
    let doubts = doubts(blocks, metric, options, &seen, &middles);
    let deviation = deviation(&middles);
    let most = options.blocks_max.max(BLOCKS_LEAST);
    Judgement {
        verdict: verdict(middles.len(), metric, options, &seen, &doubts),
        ratio: seen.ratio,
        control: seen.control,
        level: bootstrap.level,
        widening,
        deviation,
        detectable: deviation
            .map(|d| minimum_detectable(d * widening, most, bootstrap.level, options.margin)),
        chance: wilcoxon_signed_rank(&middles),
        others: bootstrap.others(blocks, metric),
        doubts,
    }
}

struct Seen {
    ratio: Option<Interval>,
    control: Option<Interval>,
    widening: f64,
}

/// How intervals are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bootstrap {
    pub(super) level: f64,
    pub(super) resamples: usize,
    pub(super) seed: u64,
}

impl Bootstrap {
    /// B to A: the logarithms to either A, drawn by blocks.
    pub(super) fn ratio(
        &self,
        blocks: &[BlockRecord],
        metric: Metric,
        widening: f64,
    ) -> Option<Interval> {
        let of_block = |block: &BlockRecord| {
            let sides = [Side::A, Side::Again];
            let logarithms = sides.map(|side| block.logarithm(metric, Side::B, side));
            logarithms.into_iter().flatten().collect()
        };
        self.interval(blocks.iter().map(of_block).collect(), widening)
    }

    /// The second A to the first.
    fn control(&self, blocks: &[BlockRecord], metric: Metric) -> Option<Interval> {
        let pairs = blocks
            .iter()
            .filter_map(|block| block.logarithm(metric, Side::Again, Side::A));
        let logarithms: Vec<f64> = pairs.collect();
        let widening = widening(&logarithms);
        let single = logarithms.into_iter().map(|value| vec![value]).collect();
        self.interval(single, widening)
    }

    /// What decides nothing, at 95 % each.
    fn others(&self, blocks: &[BlockRecord], metric: Metric) -> Vec<(Metric, Interval)> {
        let own = Bootstrap {
            level: 0.95,
            ..*self
        };
        let rest = Metric::ALL.into_iter().filter(|other| *other != metric);
        rest.filter_map(|other| Some((other, own.ratio(blocks, other, 1.0)?)))
            .collect()
    }

    fn interval(&self, logarithms: Vec<Vec<f64>>, widening: f64) -> Option<Interval> {
        let seen = stats::interval(&logarithms, self.level, self.resamples, self.seed)?;
        Some(seen.widened(widening).exponential())
    }
}

fn verdict(
    count: usize,
    metric: Metric,
    options: &Options,
    seen: &Seen,
    doubts: &[Doubt],
) -> Verdict {
    let missing = BLOCKS_LEAST.saturating_sub(count);
    let Some(ratio) = seen.ratio.filter(|_| missing == 0) else {
        let more_blocks = missing.max(1);
        return Verdict::CannotTell { more_blocks };
    };
    let found = stats::verdict(&ratio, count, options.margin, metric.better());
    let is_refused = doubts.iter().any(|doubt| doubt.weight == Weight::Refusal);
    let is_different = matches!(found, Verdict::Faster | Verdict::Slower);
    let floor = seen
        .control
        .map_or(0.0, |control| control.estimate.ln().abs());
    if is_refused || (is_different && ratio.estimate.ln().abs() <= floor) {
        // As many again: there is no width to go by.
        let more_blocks = count.max(BLOCKS_LEAST);
        return Verdict::CannotTell { more_blocks };
    }
    found
}

fn doubts(
    blocks: &[BlockRecord],
    metric: Metric,
    options: &Options,
    seen: &Seen,
    middles: &[f64],
) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    doubts.extend(of_failures(blocks, options));
    doubts.extend(of_generator(blocks, metric));
    doubts.extend(of_control(seen.control, options.margin));
    doubts.extend(of_order(seen.widening, middles));
    doubts.extend(of_noise(blocks));
    doubts
}

fn of_failures(blocks: &[BlockRecord], options: &Options) -> Option<Doubt> {
    let share = |sides: &[Side]| {
        let slices = || blocks.iter().flat_map(|b| sides.iter().map(|s| b.side(*s)));
        let count = |of: fn(&Figures) -> u64| slices().map(of).sum::<u64>() as f64;
        count(|figures| figures.failed) / count(|figures| figures.requests).max(1.0)
    };
    let of_a = share(&[Side::A, Side::Again]);
    let of_b = share(&[Side::B]);
    if of_a <= 0.0 && of_b <= 0.0 {
        return None;
    }
    let [a, b] = &options.names;
    let failed = format!(
        "{} of the requests to A ({a}) failed, and {} of those to B ({b})",
        units::share(of_a),
        units::share(of_b)
    );
    Some(match of_a.max(of_b) > FAILED_MAX {
        true => refusal(format!(
            "{failed}: failing is not serving, so nothing is compared. Look at one of them with \
             `nagaya bench URL`"
        )),
        false => remark(failed),
    })
}

fn of_generator(blocks: &[BlockRecord], metric: Metric) -> Option<Doubt> {
    let bound: u32 = blocks.iter().map(|block| block.generator_bound).sum();
    let share = f64::from(bound) / (3 * blocks.len()).max(1) as f64;
    if share <= BOUND_MAX {
        return None;
    }
    let text = format!(
        "in {} of the slices the generator was the limit or late of its own doing",
        units::share(share)
    );
    Some(match metric {
        // What the server spends on a request does not depend on who asks how fast.
        Metric::CpuPerRequest => remark(format!("{text}; requests per second say little here")),
        _ => refusal(format!(
            "{text}: this compares the generator with itself. Give it cores of its own (--cores), \
             more --threads, or name the servers (--listen, --listen-b) to compare their CPU time"
        )),
    })
}

fn of_control(control: Option<Interval>, margin: f64) -> Option<Doubt> {
    let control = control?;
    let is_off = control.low > 1.0 || control.high < 1.0;
    (is_off && control.estimate.ln().abs() >= margin.ln_1p()).then(|| {
        refusal(format!(
            "A differs from itself by {}: something other than the server changes these figures. \
             Run longer slices, or find what else runs here",
            units::share((control.estimate - 1.0).abs())
        ))
    })
}

fn of_order(widening: f64, middles: &[f64]) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if let Some(drift) = spearman(middles).filter(|drift| drift.is_marked) {
        doubts.push(remark(format!(
            "the ratio drifted while it was measured (rank correlation {:.2}): a cache that fills, \
             or memory that grows; compare once more when it has settled",
            drift.rho
        )));
    }
    if widening > 1.0 {
        doubts.push(remark(format!(
            "blocks resembled the ones before them, so the interval was made {widening:.1} times \
             as wide; longer slices help"
        )));
    }
    doubts
}

fn of_noise(blocks: &[BlockRecord]) -> Option<Doubt> {
    let noisy = blocks.iter().filter(|block| block.noise.is_some()).count();
    (noisy as f64 > NOISY_MAX * blocks.len() as f64).then(|| {
        remark(format!(
            "{noisy} of {} blocks count although they were disturbed, for there was no end to it; \
             the interval is as wide as that made it",
            blocks.len()
        ))
    })
}

fn remark(text: String) -> Doubt {
    Doubt {
        weight: Weight::Remark,
        text,
    }
}

fn refusal(text: String) -> Doubt {
    Doubt {
        weight: Weight::Refusal,
        text,
    }
}
