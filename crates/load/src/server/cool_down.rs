//! How a server gives back what it took, once the load is over.

use std::time::{Duration, Instant};

use super::Server;
use super::reading::Reading;
use super::sample::{Sample, Watch, connections};
use report::units;

/// Samples of a cool-down, however long it is.
const SAMPLES: u32 = 120;
/// Least time between two.
const PERIOD_MIN: Duration = Duration::from_secs(1);
/// Longest sleep: Ctrl-C is answered in this time.
const NAP: Duration = Duration::from_millis(50);
/// What is this much above the value before has come back, in percent.
const NEAR_PERCENT: u64 = 10;

/// Watches memory, processes and sockets for a time, or until `is_over` says so (such as
/// `|| live.stopped()`).
pub fn cool_down(server: &mut Server, time: Duration, is_over: impl Fn() -> bool) -> Vec<Sample> {
    let period = (time / SAMPLES).max(PERIOD_MIN);
    let began = Instant::now();
    let mut watch = Watch::start(server);
    let mut samples = vec![watch.look(server)];
    let mut due = began + period;
    while began.elapsed() < time && !is_over() {
        let wait = due.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            samples.push(watch.look(server));
            due = (due + period).max(Instant::now());
        } else {
            std::thread::sleep(wait.min(NAP));
        }
    }
    samples.push(watch.look_at_all(server));
    samples
}

/// Rows for a report: when memory, processes and sockets were back to what they were `before` the
/// load. `before` should have been read with memory.
pub fn cool_down_facts(before: &Reading, samples: &[Sample]) -> Vec<(String, String)> {
    let Some(tree) = &before.tree else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    let mut add = |name: &str, before: Option<u64>, of: Part, text: fn(u64) -> String| {
        let values = samples.iter().filter_map(|it| Some((it.at, of(it)?)));
        let values: Vec<(Duration, u64)> = values.collect();
        let text = before.and_then(|before| told(before, &values, text));
        rows.extend(text.map(|text| (name.to_owned(), text)));
    };
    let number = units::count;
    add(
        "Memory after the load",
        tree.pss_bytes,
        |it| it.pss_bytes,
        |bytes| units::bytes(bytes as f64),
    );
    add(
        "Processes after the load",
        Some(tree.processes),
        |it| Some(it.processes),
        number,
    );
    let sockets = (!tree.sockets.is_empty()).then(|| connections(tree));
    add("Sockets after the load", sockets, |it| it.sockets, number);
    rows
}

/// What of a sample is looked at.
type Part = fn(&Sample) -> Option<u64>;

fn told(before: u64, values: &[(Duration, u64)], text: fn(u64) -> String) -> Option<String> {
    let (last_at, last) = *values.last()?;
    let was = text(before);
    Some(match back_at(before, values) {
        Some(at) => format!(
            "back to within 10 % of {was} after {:.0} s",
            at.as_secs_f64()
        ),
        None => format!(
            "not back after {:.0} s: {}, {was} before",
            last_at.as_secs_f64(),
            text(last)
        ),
    })
}

/// From when on the values stay near the one before, or below it.
fn back_at(before: u64, values: &[(Duration, u64)]) -> Option<Duration> {
    let near = before.saturating_add(before.saturating_mul(NEAR_PERCENT) / 100);
    let staying = values.iter().rev().take_while(|(_, value)| *value <= near);
    staying.last().map(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_back_when_it_stays_near_the_one_before() {
        // The value before, those of each second after, and what is said.
        let cases: [(u64, &[u64], &str); 6] = [
            (
                100,
                &[200, 150, 110, 109],
                "back to within 10 % of 100 after 2 s",
            ),
            (100, &[100, 90], "back to within 10 % of 100 after 0 s"),
            (
                100,
                &[200, 100, 150, 105],
                "back to within 10 % of 100 after 3 s",
            ),
            (100, &[200, 100, 111], "not back after 2 s: 111, 100 before"),
            (0, &[3, 0], "back to within 10 % of 0 after 1 s"),
            (
                u64::MAX,
                &[1],
                "back to within 10 % of 18446744073709551615 after 0 s",
            ),
        ];
        for (before, values, expected) in cases {
            let values: Vec<_> = (0..)
                .map(Duration::from_secs)
                .zip(values.iter().copied())
                .collect();
            let found = told(before, &values, |count| count.to_string());
            assert_eq!(found.as_deref(), Some(expected));
        }
        assert_eq!(told(1, &[], |count| count.to_string()), None);
    }
}
