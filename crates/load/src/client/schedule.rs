//! When the requests of an open loop are due: fixed beforehand, whatever the server does.
//!
//! The idea: a schedule is a function of its seed, so nothing of it is stored. Every thread walks
//! the same one and takes what is its own, and requests that find no free connection wait in it:
//! the cursor simply has not gone past them yet. However long the queue, it takes no memory.

use std::time::Duration;

use super::plan::Arrivals;

/// Of a second with a burst: how long that lasts, and what share of the requests it has. Six times
/// the rest's rate: `0.4 / 0.1` over `0.6 / 0.9`.
const BURST_TIME: f64 = 0.1;
/// See [`BURST_TIME`].
const BURST_SHARE: f64 = 0.4;

/// Due instants in nanoseconds since the load began, without end and never falling.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    per_second: f64,
    ramp_seconds: f64,
    gaps: Gaps,
    seconds: Seconds,
    /// How many requests of the full rate have been due.
    units: f64,
}

#[derive(Debug, Clone)]
enum Gaps {
    Equal,
    Exponential(fastrand::Rng),
}

/// How the requests of a second lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seconds {
    Even,
    /// Most of them at its beginning.
    Bursts,
}

impl Seconds {
    /// Where a moment of an even second comes to lie: bursts have in [`BURST_TIME`] of a second the
    /// [`BURST_SHARE`] of what is due in it.
    fn place(self, seconds: f64) -> f64 {
        let (whole, part) = (seconds.floor(), seconds.fract());
        match self {
            Seconds::Even => seconds,
            Seconds::Bursts if part < BURST_SHARE => whole + part / BURST_SHARE * BURST_TIME,
            Seconds::Bursts => {
                let after = (part - BURST_SHARE) / (1.0 - BURST_SHARE);
                whole + BURST_TIME + after * (1.0 - BURST_TIME)
            }
        }
    }
}

impl Schedule {
    pub(crate) fn new(per_second: f64, arrivals: Arrivals, ramp: Duration) -> Schedule {
        let gaps = match arrivals {
            Arrivals::Constant => Gaps::Equal,
            Arrivals::Poisson(seed) | Arrivals::Bursts(seed) => {
                Gaps::Exponential(fastrand::Rng::with_seed(seed))
            }
        };
        let mut schedule = Schedule {
            per_second,
            ramp_seconds: ramp.as_secs_f64(),
            gaps,
            seconds: match arrivals {
                Arrivals::Bursts(_) => Seconds::Bursts,
                Arrivals::Constant | Arrivals::Poisson(_) => Seconds::Even,
            },
            units: 0.0,
        };
        // A constant schedule begins at once, a random one with a gap like any other.
        if matches!(schedule.gaps, Gaps::Exponential(_)) {
            schedule.units = schedule.gap();
        }
        schedule
    }

    /// The next due instant.
    pub(crate) fn next_ns(&mut self) -> u64 {
        let due = self.instant_ns(self.units);
        self.units += self.gap();
        due
    }

    fn gap(&mut self) -> f64 {
        match &mut self.gaps {
            Gaps::Equal => 1.0,
            // 1 - x is never 0, so its logarithm is a number.
            Gaps::Exponential(random) => -(1.0 - random.f64()).ln(),
        }
    }

    /// When so many requests have been due: the rate grows in a straight line over the ramp.
    fn instant_ns(&self, units: f64) -> u64 {
        let in_ramp = self.per_second * self.ramp_seconds / 2.0;
        let seconds = if units < in_ramp {
            (2.0 * self.ramp_seconds * units / self.per_second).sqrt()
        } else {
            units / self.per_second + self.ramp_seconds / 2.0
        };
        (self.seconds.place(seconds) * 1e9).round() as u64
    }
}

/// One thread's requests to one endpoint, in the order they are due.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    schedule: Schedule,
    mine: Mine,
    /// Requests of the whole load that the schedule may still give.
    left: u64,
    position: usize,
    /// Requests to this endpoint so far, all threads together, modulo `mine.lanes`.
    turn: u32,
    next: Option<Due>,
}

/// Which requests a cursor stops at.
#[derive(Debug, Clone)]
pub(crate) struct Mine {
    /// The order of requests, with their endpoints; gone through again and again.
    pub(crate) order: std::sync::Arc<[Turn]>,
    pub(crate) endpoint: u32,
    /// How many threads have connections to the endpoint, and which of them this is.
    pub(crate) lanes: u32,
    pub(crate) lane: u32,
    /// Nothing is due from here on.
    pub(crate) end_ns: u64,
}

/// One turn in the order of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) request: u32,
    pub(crate) endpoint: u32,
}

/// A request that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at_ns: u64,
    pub(crate) request: u32,
}

impl Cursor {
    pub(crate) fn new(schedule: Schedule, mine: Mine, requests: Option<u64>) -> Cursor {
        let mut cursor = Cursor {
            schedule,
            mine,
            left: requests.unwrap_or(u64::MAX),
            position: 0,
            turn: 0,
            next: None,
        };
        cursor.advance();
        cursor
    }

    /// The first request not yet taken; `None` when there is no more.
    pub(crate) fn peek(&self) -> Option<Due> {
        self.next
    }

    /// Whether time and not a number of requests ends it. A load that goes on for a time goes on
    /// after its last request, too: rates are counted over all of it.
    pub(crate) fn ends_by_time(&self) -> bool {
        self.left > 0
    }

    /// Goes past it.
    pub(crate) fn advance(&mut self) {
        self.next = self.find();
    }

    fn find(&mut self) -> Option<Due> {
        while self.left > 0 {
            let at_ns = self.schedule.next_ns();
            if at_ns >= self.mine.end_ns {
                return None;
            }
            self.left -= 1;
            let turn = *self.mine.order.get(self.position)?;
            self.position = (self.position + 1) % self.mine.order.len();
            if turn.endpoint != self.mine.endpoint {
                continue;
            }
            let lane = self.turn;
            self.turn = (self.turn + 1) % self.mine.lanes;
            if lane == self.mine.lane {
                let request = turn.request;
                return Some(Due { at_ns, request });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn instants(schedule: &Schedule, count: usize) -> Vec<u64> {
        let mut schedule = schedule.clone();
        (0..count).map(|_| schedule.next_ns()).collect()
    }

    #[test]
    fn constant_arrivals_are_equally_far_apart() {
        let schedule = Schedule::new(4.0, Arrivals::Constant, Duration::ZERO);
        let quarters = [0, 1, 2, 3, 4].map(|n| n * SECOND / 4);
        assert_eq!(instants(&schedule, 5), quarters);
    }

    #[test]
    fn random_arrivals_have_the_rate_and_are_the_same_for_the_same_seed() {
        let schedule = Schedule::new(1000.0, Arrivals::Poisson(7), Duration::ZERO);
        let due = instants(&schedule, 100_000);
        assert_eq!(due, instants(&schedule, 100_000));
        assert!(due.is_sorted());
        let seconds = *due.last().expect("some") as f64 / 1e9;
        assert!((seconds - 100.0).abs() < 1.5, "{seconds}");
        // Of exponential gaps, a share of 1/e is longer than their mean.
        let longer = due
            .windows(2)
            .filter(|w| w[1] - w[0] > SECOND / 1000)
            .count();
        let share = longer as f64 / due.len() as f64;
        assert!((share - (-1.0_f64).exp()).abs() < 0.01, "{share}");
    }

    #[test]
    fn a_burst_has_six_times_the_rate_of_the_rest_of_its_second() {
        let schedule = Schedule::new(3_000.0, Arrivals::Bursts(7), Duration::ZERO);
        let due = instants(&schedule, 300_000);
        assert!(due.is_sorted());
        let in_burst = |at: &&u64| **at % SECOND < SECOND / 10;
        let burst = due.iter().filter(in_burst).count() as f64;
        let rest = due.len() as f64 - burst;
        let times = (burst / 0.1) / (rest / 0.9);
        assert!((times - 6.0).abs() < 0.1, "{times}");
        let seconds = due[due.len() - 1] as f64 / 1e9;
        assert!((seconds - 100.0).abs() < 1.5, "{seconds}");
    }

    #[test]
    fn a_ramp_grows_in_a_straight_line() {
        let ramp = Duration::from_secs(10);
        let schedule = Schedule::new(1000.0, Arrivals::Constant, ramp);
        let due = instants(&schedule, 15_000);
        let until = |second: u64| due.iter().filter(|at| **at < second * SECOND).count();
        assert_eq!(
            [until(1), until(5), until(10), until(15)],
            [50, 1250, 5000, 10_000]
        );
    }

    fn order(turns: &[(u32, u32)]) -> std::sync::Arc<[Turn]> {
        let turn = |(request, endpoint): &(u32, u32)| Turn {
            request: *request,
            endpoint: *endpoint,
        };
        turns.iter().map(turn).collect()
    }

    #[test]
    fn threads_share_a_schedule_out_without_rest() {
        let schedule = Schedule::new(100.0, Arrivals::Poisson(1), Duration::ZERO);
        let order = order(&[(0, 0), (1, 1), (2, 0)]);
        let mut found = Vec::new();
        for (endpoint, lanes) in [(0, 3), (1, 1)] {
            for lane in 0..lanes {
                let mine = Mine {
                    order: order.clone(),
                    endpoint,
                    lanes,
                    lane,
                    end_ns: 10 * SECOND,
                };
                let mut cursor = Cursor::new(schedule.clone(), mine, None);
                while let Some(due) = cursor.peek() {
                    found.push((due.at_ns, due.request));
                    cursor.advance();
                }
            }
        }
        found.sort_unstable();
        let due = instants(&schedule, found.len() + 1);
        assert!(due[found.len() - 1] < 10 * SECOND && due[found.len()] >= 10 * SECOND);
        let expected: Vec<(u64, u32)> =
            due.into_iter().zip([0, 1, 2].into_iter().cycle()).collect();
        assert_eq!(found, expected[..found.len()]);
    }

    #[test]
    fn fewer_requests_than_threads_are_sent_all_the_same() {
        let schedule = Schedule::new(0.5, Arrivals::Constant, Duration::ZERO);
        let count = |lane| {
            let mine = Mine {
                order: order(&[(0, 0)]),
                endpoint: 0,
                lanes: 8,
                lane,
                end_ns: 5 * SECOND,
            };
            let mut cursor = Cursor::new(schedule.clone(), mine, Some(2));
            std::iter::from_fn(|| cursor.peek().inspect(|_| cursor.advance())).count()
        };
        assert_eq!(
            (0..8).map(count).collect::<Vec<_>>(),
            [1, 1, 0, 0, 0, 0, 0, 0]
        );
    }
}
