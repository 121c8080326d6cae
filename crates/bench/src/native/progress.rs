//! What a load shows while it runs: one line on a terminal, a line every few seconds elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::order::Order;
use load::client::{End, LiveLook, Phase};
use report::units;

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// The rate that is shown is that of about this time.
const RATE_OVER: Duration = Duration::from_secs(1);

/// Shows progress until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    place: Place,
    end: End,
    /// The look the rate is counted from.
    since: Option<(Instant, u64)>,
    per_second: f64,
}

#[derive(Debug)]
enum Place {
    Terminal(ProgressBar),
    Lines(Instant),
    Nowhere,
}

impl Progress {
    /// Shows a load, unless it is to be quiet.
    pub(crate) fn new(order: &Order) -> Progress {
        let place = match order.options.quiet {
            true => Place::Nowhere,
            false if std::io::stderr().is_terminal() => Place::Terminal(bar()),
            false => Place::Lines(Instant::now()),
        };
        Progress {
            place,
            end: order.plan.end,
            since: None,
            per_second: 0.0,
        }
    }

    /// Shows a look.
    pub(crate) fn show(&mut self, look: &LiveLook) {
        self.count(Instant::now(), look.completed);
        let line = line(look, self.per_second, self.end);
        self.step(permille(look, self.end), line);
    }

    /// Shows a line, so many thousandths of the way.
    pub(crate) fn step(&mut self, permille: u64, line: String) {
        match &mut self.place {
            Place::Nowhere => {}
            Place::Terminal(bar) => {
                bar.set_position(permille);
                bar.set_message(line);
            }
            Place::Lines(last) => {
                if last.elapsed() >= LINE_EVERY {
                    *last = Instant::now();
                    eprintln!("{line}");
                }
            }
        }
    }

    /// Shows a line that stands for a step of its own: where there is no terminal none is left out.
    pub(crate) fn milestone(&mut self, permille: u64, line: String) {
        match &mut self.place {
            Place::Lines(last) => {
                *last = Instant::now();
                eprintln!("{line}");
            }
            Place::Terminal(_) | Place::Nowhere => self.step(permille, line),
        }
    }

    /// Says something beside the line.
    pub(crate) fn say(&self, text: &str) {
        match &self.place {
            Place::Nowhere => {}
            Place::Terminal(bar) => bar.println(text),
            Place::Lines(_) => eprintln!("{text}"),
        }
    }

    fn count(&mut self, now: Instant, completed: u64) {
        match self.since {
            None => self.since = Some((now, completed)),
            Some((since, before)) => {
                let time = now.saturating_duration_since(since);
                if time >= RATE_OVER {
                    self.per_second = completed.saturating_sub(before) as f64 / time.as_secs_f64();
                    self.since = Some((now, completed));
                } else if self.per_second == 0.0 && !time.is_zero() {
                    self.per_second = completed.saturating_sub(before) as f64 / time.as_secs_f64();
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Place::Terminal(bar) = &self.place {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
    ProgressBar::new(1000).with_style(
        style
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("━╸─"),
    )
}

/// How much of the load is done, of a thousand.
fn permille(look: &LiveLook, end: End) -> u64 {
    let by_time = end.after.map_or(0.0, |after| {
        look.elapsed.as_secs_f64() / after.as_secs_f64().max(1e-9)
    });
    let done = look.completed.saturating_add(look.broken) as f64;
    let by_count = end
        .requests
        .map_or(0.0, |requests| done / requests.max(1) as f64);
    (by_time.max(by_count).clamp(0.0, 1.0) * 1000.0) as u64
}

/// `recording  51,300/s  p99 1.09 ms  0 failed  7 s left`
fn line(look: &LiveLook, per_second: f64, end: End) -> String {
    let phase = match look.phase {
        Phase::WarmUp => "warming up",
        Phase::Recording => "recording",
        Phase::Draining => "last replies",
    };
    let left = match (end.after, end.requests) {
        (Some(after), _) => {
            let left = after.saturating_sub(look.elapsed).as_secs_f64().ceil();
            format!("{} left", units::seconds(left))
        }
        (None, Some(requests)) => {
            let done = look.completed.saturating_add(look.broken);
            format!(
                "{} requests left",
                units::count(requests.saturating_sub(done))
            )
        }
        (None, None) => format!(
            "for {} so far",
            units::seconds(look.elapsed.as_secs_f64().floor())
        ),
    };
    format!(
        "{phase}  {}  p99 {}  {} failed  {left}",
        units::per_second(per_second),
        units::micros(look.p99_us as f64),
        units::count(look.failed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(completed: u64, seconds: u64) -> LiveLook {
        LiveLook {
            completed,
            failed: 2,
            broken: 2,
            elapsed: Duration::from_secs(seconds),
            p99_us: 1090,
            phase: Phase::Recording,
        }
    }

    #[test]
    fn a_line_says_rate_latency_failures_and_what_is_left() {
        let ten_seconds = End {
            after: Some(Duration::from_secs(10)),
            requests: None,
        };
        assert_eq!(
            line(&look(9, 3), 51_312.0, ten_seconds),
            "recording  51,300/s  p99 1.09 ms  2 failed  7 s left"
        );
        let hundred = End {
            after: None,
            requests: Some(100),
        };
        assert!(line(&look(9, 3), 3.0, hundred).ends_with("89 requests left"));
        let endless = End {
            after: None,
            requests: None,
        };
        assert!(line(&look(9, 3), 3.0, endless).ends_with("for 3 s so far"));
        assert_eq!(permille(&look(48, 3), hundred), 500);
        assert_eq!(permille(&look(9, 300), ten_seconds), 1000);
        assert_eq!(permille(&look(9, 300), endless), 0);
    }

    #[test]
    fn the_rate_is_that_of_about_the_last_second() {
        let endless = End {
            after: None,
            requests: None,
        };
        let mut progress = Progress {
            place: Place::Nowhere,
            end: endless,
            since: None,
            per_second: 0.0,
        };
        let start = Instant::now();
        for (ms, completed, per_second) in [
            (0, 0, 0.0),
            (500, 50, 100.0),
            (1000, 100, 100.0),
            (3000, 500, 200.0),
        ] {
            progress.count(start + Duration::from_millis(ms), completed);
            assert_eq!(progress.per_second, per_second, "{ms}");
        }
    }
}
