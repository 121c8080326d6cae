//! The search itself, over whatever answers whether a rate holds.

use super::probe::{Probe, Result as ProbeResult};
use super::{Knee, Step, Tried};
use load::Error;
use load::client::Live;

/// Probes of one search at most.
const PROBES_MAX: usize = 60;
/// Times the last rate that held is tried again.
const CONFIRMATIONS: usize = 3;
/// Rates tried at which the generator was late, each half of the one before, until the search is
/// given up: slower ones take longer and would not help.
const LATE_MAX: usize = 6;
/// Slowest rate that is tried, in requests per second.
const SLOWEST: f64 = 1.0;
/// Fastest.
const FASTEST: f64 = 10_000_000.0;

/// Tries a rate; `None` where somebody stopped it meanwhile, for then it says nothing.
pub(super) type TryRate<'a> = dyn FnMut(f64) -> Result<Option<Probe>, Error> + 'a;

pub(super) struct Climb<'a> {
    precision: f64,
    probes: Vec<Tried>,
    told: &'a mut dyn FnMut(&Tried),
}

/// Rates between which the knee is. Each may be missing.
#[derive(Debug, Clone, Copy, Default)]
struct Bracket {
    holds: Option<f64>,
    fails: Option<f64>,
    /// Whether it was the generator that gave up at `fails`.
    generator: bool,
}

impl<'a> Climb<'a> {
    pub(super) fn new(precision: f64, told: &'a mut dyn FnMut(&Tried)) -> Climb<'a> {
        Climb {
            precision: precision.clamp(0.005, 0.5),
            probes: Vec::new(),
            told,
        }
    }

    pub(super) fn into_probes(self) -> Vec<Tried> {
        self.probes
    }

    /// Finds the knee, beginning at half of what a closed loop came to.
    pub(super) fn run(
        &mut self,
        closed_loop: f64,
        live: &Live,
        probe: &mut TryRate<'_>,
    ) -> Result<Knee, Error> {
        let mut bracket = Bracket::default();
        let mut rate = (closed_loop / 2.0).clamp(SLOWEST, FASTEST);
        while !self.is_over(live) {
            let (step, next) = match self.next(&bracket, rate) {
                Next::Try(step, next) => (step, next),
                Next::End(knee) => return Ok(knee),
                Next::Confirm => match self.confirm(&mut bracket, live, probe)? {
                    Some(knee) => return Ok(knee),
                    None => continue,
                },
            };
            rate = next;
            let Some(seen) = self.try_rate(step, rate, probe)? else {
                break;
            };
            bracket.learn(rate, seen);
        }
        let holds = bracket.holds.unwrap_or(0.0);
        Ok(Knee::Unfinished { holds })
    }

    fn next(&self, bracket: &Bracket, last: f64) -> Next {
        match (bracket.holds, bracket.fails) {
            (None, None) => Next::Try(Step::Bracket, last),
            (Some(holds), None) if holds >= FASTEST => Next::End(Knee::Everywhere { tried: holds }),
            (Some(holds), None) => Next::Try(Step::Bracket, (holds * 2.0).min(FASTEST)),
            (None, Some(fails)) if fails <= SLOWEST => Next::End(match bracket.generator {
                true => Knee::GeneratorBound { holds: 0.0 },
                false => Knee::Nowhere { tried: fails },
            }),
            (None, Some(_)) if self.is_always_late() => {
                Next::End(Knee::GeneratorBound { holds: 0.0 })
            }
            (None, Some(fails)) => Next::Try(Step::Bracket, (fails / 2.0).max(SLOWEST)),
            (Some(holds), Some(fails)) if fails / holds > 1.0 + self.precision => {
                Next::Try(Step::Narrow, (holds * fails).sqrt())
            }
            (Some(_), Some(_)) => Next::Confirm,
        }
    }

    /// Tries the last rate that held again. One failure makes it one that fails, and the search
    /// steps down by what it is content with.
    fn confirm(
        &mut self,
        bracket: &mut Bracket,
        live: &Live,
        probe: &mut TryRate<'_>,
    ) -> Result<Option<Knee>, Error> {
        let (Some(holds), Some(fails)) = (bracket.holds, bracket.fails) else {
            return Ok(None);
        };
        for _ in 0..CONFIRMATIONS {
            if self.is_over(live) {
                return Ok(Some(Knee::Unfinished { holds }));
            }
            let Some(seen) = self.try_rate(Step::Confirm, holds, probe)? else {
                return Ok(Some(Knee::Unfinished { holds }));
            };
            if seen == ProbeResult::Holds {
                continue;
            }
            bracket.learn(holds, seen);
            let lower = holds / (1.0 + self.precision);
            if lower < SLOWEST {
                bracket.holds = None;
                return Ok(None);
            }
            let seen = self.try_rate(Step::Narrow, lower, probe)?;
            bracket.holds = None;
            if let Some(seen) = seen {
                bracket.learn(lower, seen);
            }
            return Ok(None);
        }
        Ok(Some(match bracket.generator {
            true => Knee::GeneratorBound { holds },
            false => Knee::Found { holds, fails },
        }))
    }

    fn try_rate(
        &mut self,
        step: Step,
        rate: f64,
        probe: &mut TryRate<'_>,
    ) -> Result<Option<ProbeResult>, Error> {
        let Some(probe) = probe(rate)? else {
            return Ok(None);
        };
        let result = probe.result;
        let tried = Tried { step, probe };
        (self.told)(&tried);
        self.probes.push(tried);
        Ok(Some(result))
    }

    fn is_always_late(&self) -> bool {
        let late = |tried: &Tried| tried.probe.result == ProbeResult::GeneratorBound;
        self.probes.len() >= LATE_MAX && self.probes.iter().all(late)
    }

    fn is_over(&self, live: &Live) -> bool {
        live.stopped() || self.probes.len() >= PROBES_MAX
    }
}

/// What is to be done next.
enum Next {
    Try(Step, f64),
    Confirm,
    End(Knee),
}

impl Bracket {
    fn learn(&mut self, rate: f64, seen: ProbeResult) {
        if seen == ProbeResult::Holds {
            self.holds = Some(rate);
        } else {
            self.fails = Some(rate);
            self.generator = seen == ProbeResult::GeneratorBound;
        }
    }
}
