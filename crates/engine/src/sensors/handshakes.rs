//! What handshakes do to the machine, taken out of what its sensors say.
//!
//! The idea: handshake threads stand back behind everybody, so that they wait while there is anything else to do, and
//! the kernel counts their waiting as pressure and them as load. A request is not to be refused for that: whoever floods with
//! handshakes has not asked for anything yet. The kernel tells of each thread how long it ran and how long it waited
//! for a processor; that much is taken out. What is left is never more than was measured, and never less than nothing.

use std::time::Duration;

use config::model::sensor::Gauge;

use super::gauges::Numbers;

/// The means of load, and over how long each is taken, in seconds.
const LOADS: [(Gauge, f64); 3] = [
    (Gauge::Load1, 60.0),
    (Gauge::Load5, 300.0),
    (Gauge::Load15, 900.0),
];

/// What was taken out so far.
#[derive(Debug, Default)]
pub(super) struct TakenOut {
    /// By thread: how long it had run and waited.
    seen: Vec<(Duration, Duration)>,
    at_us: u64,
    /// Pressure as measured, and as told.
    pressure_s: Option<(f64, f64)>,
    /// Part of each mean of load.
    loads: [f64; 3],
}

impl TakenOut {
    /// Takes out what threads did since the last time that ran and waited for so long by now.
    pub(super) fn of(
        &mut self,
        threads: &[(Duration, Duration)],
        at_us: u64,
        numbers: &mut Numbers,
    ) {
        if threads.is_empty() && self.seen.is_empty() {
            return;
        }
        let passed_s = at_us.saturating_sub(self.at_us) as f64 / 1e6;
        self.at_us = at_us;
        let is_known = self.seen.len() == threads.len() && passed_s > 0.0;
        let (mut waited_s, mut ready_s) = (0.0_f64, 0.0);
        if is_known {
            for ((ran, waited), (ran_before, waited_before)) in threads.iter().zip(&self.seen) {
                let waited = waited.saturating_sub(*waited_before).as_secs_f64();
                // They wait at the same time.
                waited_s = waited_s.max(waited);
                ready_s += ran.saturating_sub(*ran_before).as_secs_f64() + waited;
            }
        }
        self.seen = threads.to_vec();
        self.pressure(waited_s, numbers);
        for ((gauge, mean_s), part) in LOADS.into_iter().zip(&mut self.loads) {
            if is_known {
                *part += (ready_s / passed_s - *part) * (1.0 - (-passed_s / mean_s).exp());
            }
            if let Some(load) = numbers.get_mut(gauge.index()) {
                *load = (*load - *part).max(0.0);
            }
        }
    }

    /// It is told as the time lost since the machine started, which only grows.
    fn pressure(&mut self, waited_s: f64, numbers: &mut Numbers) {
        let Some(pressure_s) = numbers.get_mut(Gauge::CpuPressure.index()) else {
            return;
        };
        let measured_s = *pressure_s;
        if measured_s.is_nan() {
            return;
        }
        let told_s = match self.pressure_s {
            Some((before_s, told_s)) => told_s + (measured_s - before_s - waited_s).max(0.0),
            None => measured_s,
        };
        self.pressure_s = Some((measured_s, told_s));
        *pressure_s = told_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensors::gauges::GAUGES;

    fn seconds(ran: f64, waited: f64) -> (Duration, Duration) {
        (
            Duration::from_secs_f64(ran),
            Duration::from_secs_f64(waited),
        )
    }

    fn numbers(pressure_s: f64, load1: f64) -> Numbers {
        let mut numbers = [f64::NAN; GAUGES];
        numbers[Gauge::CpuPressure.index()] = pressure_s;
        numbers[Gauge::Load1.index()] = load1;
        numbers
    }

    #[test]
    fn what_handshake_threads_waited_is_no_pressure_and_they_are_no_load() {
        let mut taken = TakenOut::default();
        let mut now = numbers(10.0, 1.0);
        taken.of(&[], 0, &mut now);
        assert_eq!(now[Gauge::CpuPressure.index()], 10.0, "nobody speaks TLS");
        taken.of(&[seconds(1.0, 5.0), seconds(1.0, 5.0)], 1_000_000, &mut now);
        assert_eq!(
            now[Gauge::CpuPressure.index()],
            10.0,
            "what was before is not known"
        );
        // For a minute two threads are ready all the time, and wait for nine tenths of it.
        for second in 1..=60_u32 {
            let second = f64::from(second);
            now = numbers(10.0 + second, 3.0);
            let thread = seconds(1.0 + 0.1 * second, 5.0 + 0.9 * second);
            let at_us = 1_000_000 + (second * 1e6) as u64;
            taken.of(&[thread; 2], at_us, &mut now);
        }
        let pressure_s = now[Gauge::CpuPressure.index()];
        assert!((15.9..16.1).contains(&pressure_s), "{pressure_s}");
        // 2 * (1 - 1/e) of load 3.
        let load1 = now[Gauge::Load1.index()];
        assert!((1.7..1.8).contains(&load1), "{load1}");
    }

    #[test]
    fn pressure_as_told_never_falls() {
        let mut taken = TakenOut::default();
        let mut told = 0.0;
        for second in 1..10_u32 {
            let waited = f64::from(second) * 2.0;
            let mut now = numbers(f64::from(second), 0.1);
            taken.of(
                &[seconds(0.0, waited)],
                u64::from(second) * 1_000_000,
                &mut now,
            );
            let pressure_s = now[Gauge::CpuPressure.index()];
            assert!(pressure_s >= told, "{pressure_s} after {told}");
            assert!(now[Gauge::Load1.index()] >= 0.0);
            told = pressure_s;
        }
        let mut unknown = numbers(f64::NAN, f64::NAN);
        taken.of(&[seconds(0.0, 99.0)], 99_000_000, &mut unknown);
        assert!(unknown[Gauge::CpuPressure.index()].is_nan());
    }
}
