//! What a comparison came to, as it is written and read again.

use std::collections::BTreeMap;

use serde::Serialize;

use load::stats::{Better, Interval, Verdict};
use report::units;

/// Version of what is written.
pub(super) const VERSION: u32 = 1;

/// Which slice of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// A.
    A,
    /// B.
    B,
    /// A a second time.
    Again,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// CPU time of the server per request.
    CpuPerRequest,
    /// Requests per second.
    PerSecond,
    /// Median of the response times.
    P50,
    /// 90th of a hundred.
    P90,
    /// 99th of a hundred.
    P99,
}

/// What a slice showed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Whole replies per second.
    pub per_second: f64,
    /// Microseconds of the server's CPU time per request.
    pub cpu_us: Option<f64>,
    /// Response times in microseconds.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p90_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// Requests recorded, failed ones included.
    pub requests: u64,
    /// Failed ones.
    pub failed: u64,
}

/// A block that counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlockRecord {
    /// In which order its slices ran.
    pub order: [Side; 3],
    /// The slice on A.
    pub a: Figures,
    /// The slice on B.
    pub b: Figures,
    /// The second slice on A.
    pub again: Figures,
    /// What disturbed it, where it counts nevertheless.
    pub noise: Option<String>,
    /// Slices in which the generator may have been the limit.
    pub generator_bound: u32,
}

/// A server over all blocks.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SideRecord {
    /// Quantiles of the response times of all slices together, with microseconds.
    pub quantiles: Vec<(f64, f64)>,
    /// Points of the whole curve.
    pub curve: Vec<(f64, f64)>,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The verdict fell.
    Decided,
    /// All blocks were run.
    UsedUp,
    /// Somebody stopped it.
    Interrupted,
}

/// How much a doubt weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// To be known.
    Remark,
    /// No verdict can be given.
    Refusal,
}

/// What speaks against taking figures at face value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doubt {
    /// How much.
    pub weight: Weight,
    /// What, and what to try.
    pub text: String,
}

/// What the blocks come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// In words.
    pub verdict: Verdict,
    /// B to A.
    pub ratio: Option<Interval>,
    /// The second A to the first.
    pub control: Option<Interval>,
    /// Level of both intervals: 97 % over all looks together.
    pub level: f64,
    /// By how much the ratio's was widened because blocks resembled the ones before.
    pub widening: f64,
    /// Deviation of the logarithms of the ratios from block to block.
    pub deviation: Option<f64>,
    /// The smallest difference that so many blocks show in 80 of 100 comparisons, as a share.
    pub detectable: Option<f64>,
    /// Chance of differences at least as lopsided without a cause (signed ranks).
    pub chance: f64,
    /// The other figures, each with a 95 % interval of its own; they decide nothing.
    pub others: Vec<(Metric, Interval)>,
    /// What speaks against it.
    pub doubts: Vec<Doubt>,
}

/// A comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this record.
    pub version: u32,
    /// What A and B are called.
    pub names: [String; 2],
    /// What decides.
    pub metric: Metric,
    /// Differences below this share are none.
    pub margin: f64,
    /// Length of a slice.
    pub slice_seconds: f64,
    /// Connections of each slice.
    pub connections: usize,
    /// Blocks at most.
    pub blocks_max: usize,
    /// Seed of the order of slices and of resamples.
    pub seed: u64,
    /// The blocks that count.
    pub blocks: Vec<BlockRecord>,
    /// Blocks that were run again, by what disturbed them.
    pub voided: BTreeMap<String, usize>,
    /// What they come to.
    pub judgement: Judgement,
    /// A (both slices) and B.
    pub sides: [SideRecord; 2],
    /// Why it ended.
    pub ended: Ended,
    /// How long it took.
    pub seconds: f64,
}

impl Comparison {
    /// 0 where B is the same or faster, 1 where it is slower, 3 where that cannot be told.
    pub fn exit_status(&self) -> u8 {
        match self.judgement.verdict {
            Verdict::Faster | Verdict::Same { .. } => 0,
            Verdict::Slower => 1,
            Verdict::CannotTell { .. } => 3,
        }
    }

    /// Blocks that were run again.
    pub fn voided(&self) -> usize {
        self.voided.values().sum()
    }

    /// The same as JSON.
    pub fn to_json(&self) -> String {
        // Maps have text for keys, and no value refuses to be written.
        serde_json::to_string_pretty(self).expect("plain values only")
    }
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 5] = [
        Metric::CpuPerRequest,
        Metric::PerSecond,
        Metric::P50,
        Metric::P90,
        Metric::P99,
    ];

    /// Which way is the good one.
    pub fn better(self) -> Better {
        match self {
            Metric::PerSecond => Better::Higher,
            _ => Better::Lower,
        }
    }

    /// What reports call it.
    pub fn title(self) -> &'static str {
        match self {
            Metric::CpuPerRequest => "server CPU time per request",
            Metric::PerSecond => "requests per second",
            Metric::P50 => "median response time",
            Metric::P90 => "p90 of the response times",
            Metric::P99 => "p99 of the response times",
        }
    }

    /// A value in words.
    pub fn write(self, value: f64) -> String {
        match self {
            Metric::PerSecond => units::per_second(value),
            _ => units::micros(value),
        }
    }
}

impl Figures {
    /// The value of a metric, where the slice has one that can stand in a ratio.
    pub fn of(&self, metric: Metric) -> Option<f64> {
        let value = match metric {
            Metric::CpuPerRequest => self.cpu_us?,
            Metric::PerSecond => self.per_second,
            Metric::P50 => self.p50_us,
            Metric::P90 => self.p90_us,
            Metric::P99 => self.p99_us,
        };
        (value > 0.0 && value.is_finite()).then_some(value)
    }
}

impl BlockRecord {
    /// The logarithm of one side's value to another's.
    pub(super) fn logarithm(&self, metric: Metric, over: Side, under: Side) -> Option<f64> {
        let value = |side| self.side(side).of(metric);
        Some((value(over)? / value(under)?).ln())
    }

    /// The slice of a side.
    pub fn side(&self, side: Side) -> &Figures {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
            Side::Again => &self.again,
        }
    }

    /// B to A in this block: the middle of the logarithms to either A.
    pub(super) fn middle(&self, metric: Metric) -> Option<f64> {
        let first = self.logarithm(metric, Side::B, Side::A)?;
        let second = self.logarithm(metric, Side::B, Side::Again)?;
        Some(f64::midpoint(first, second))
    }
}
