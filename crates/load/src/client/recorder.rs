//! What one thread counts. No channel and no lock: recorders are merged when the load is over.

use super::live::{Broken, Live};
use super::outcome::{
    ByRequest, Errors, Exchange, Failure, FirstReply, Handshakes, LeftOut, Outcome,
};
use super::outcome::{Schedule, Series, Times};
use super::plan::{Judge, Keep, Pace, Plan};
use super::pulse::Beat;

/// With more requests than this, their histograms are coarser: a hundredth instead of a thousandth.
const FINE_REQUESTS_MAX: usize = 16;
/// Later than this counts as late.
const LATE_US: u64 = 1_000;

/// How an exchange without a whole reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Connect,
    Tls,
    Reset,
    Closed,
    Timeout,
    Framing,
    Write,
}

impl Class {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Connect => "connect",
            Class::Tls => "tls",
            Class::Reset => "reset",
            Class::Closed => "closed",
            Class::Timeout => "timeout",
            Class::Framing => "framing",
            Class::Write => "write",
        }
    }
}

/// A whole exchange; instants in nanoseconds since the load began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    pub(crate) request: u32,
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// Over a connection that had served another.
    pub(crate) kept: bool,
    /// Whether the server let the connection be kept.
    pub(crate) keeps: bool,
    pub(crate) due_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) connected_ns: u64,
    pub(crate) sent_ns: u64,
    pub(crate) first_ns: u64,
    pub(crate) end_ns: u64,
}

/// Whether what is counted counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    WarmUp,
    /// Since this instant.
    Recording(u64),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Recorder {
    stage: Stage,
    open_loop: bool,
    judge: Judge,
    /// Later than this is too late; the largest number where nothing is.
    deadline_us: u64,
    keep_max: usize,
    pub(crate) counts: Counts,
    left_out: LeftOut,
    /// By status, from 100.
    statuses: Vec<u64>,
    /// From the request to the reply's first byte.
    waiting: Series,
    /// Whole exchanges on kept connections, where service and processing are the same.
    kept: Series,
    fresh: Fresh,
    /// In an open loop alone.
    response: Option<Series>,
    /// Response times by what the server said.
    admitted: Series,
    refused: Series,
    /// Where there is more than one request.
    by_request: Vec<ByRequest>,
    schedule: Schedule,
    generator: Series,
    pub(crate) first: Option<FirstReply>,
    failures: Vec<Failure>,
    each: Vec<Exchange>,
    /// Of the tenth of a second that runs.
    pub(crate) beat: Beat,
    /// Not yet told to `Live`.
    untold: (u64, u64),
    untold_broken: Broken,
    /// Instant of the last thing that ended.
    last_ns: u64,
}

/// Plain counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) completed: u64,
    good: u64,
    judged_failed: u64,
    keeps: u64,
    errors: Errors,
    pub(crate) received_bytes: u64,
    body_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) cut: u64,
    pub(crate) handshakes: Handshakes,
}

/// Exchanges on new connections.
#[derive(Debug, Default)]
struct Fresh {
    connect: Series,
    processing: Series,
    service: Series,
}

/// Microseconds between two instants, rounded.
fn us(from_ns: u64, to_ns: u64) -> u64 {
    (to_ns.saturating_sub(from_ns) + 500) / 1_000
}

impl Recorder {
    pub(crate) fn new(plan: &Plan) -> Recorder {
        let digits = match plan.requests.len() {
            ..=FINE_REQUESTS_MAX => 3,
            _ => 2,
        };
        let one = |label: &str| ByRequest {
            label: label.to_owned(),
            completed: 0,
            failed: 0,
            lost: 0,
            good: 0,
            response: Series::with_digits(digits),
            admitted: Series::with_digits(digits),
        };
        let several = plan.requests.iter().filter(|_| plan.requests.len() > 1);
        let open_loop = plan.pace != Pace::Closed;
        Recorder {
            stage: Stage::WarmUp,
            open_loop,
            judge: plan.judge,
            deadline_us: plan
                .deadline
                .map_or(u64::MAX, |most| most.as_micros() as u64),
            keep_max: match plan.keep {
                Keep::Histograms => 0,
                Keep::Each(most) => most,
            },
            counts: Counts::default(),
            left_out: LeftOut::default(),
            statuses: vec![0; 900],
            waiting: Series::default(),
            kept: Series::default(),
            fresh: Fresh::default(),
            response: open_loop.then(Series::default),
            admitted: Series::default(),
            refused: Series::default(),
            by_request: several.map(|request| one(&request.label)).collect(),
            schedule: Schedule::default(),
            generator: Series::default(),
            first: None,
            failures: Vec::new(),
            each: Vec::new(),
            beat: Beat::default(),
            untold: (0, 0),
            untold_broken: Broken::default(),
            last_ns: 0,
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.stage != Stage::WarmUp
    }

    /// The warm-up is over. Exchanges under way count when they end, in an open loop those that
    /// were due from now on.
    pub(crate) fn start(&mut self, at_ns: u64) {
        self.stage = Stage::Recording(at_ns);
        self.counts = Counts::default();
    }

    /// Whether an exchange that was due then counts.
    pub(crate) fn counts_from(&self, due_ns: u64) -> bool {
        match self.stage {
            Stage::WarmUp => false,
            Stage::Recording(from) => !self.open_loop || due_ns >= from,
        }
    }

    /// A request goes out: how late, and how much of that was the generator's own doing.
    pub(crate) fn sent_late(&mut self, due_ns: u64, free_ns: u64, now_ns: u64) {
        if !self.counts_from(due_ns) {
            return;
        }
        let own_us = us(due_ns.max(free_ns), now_ns);
        self.schedule.due += 1;
        self.schedule.late += u64::from(us(due_ns, now_ns) > LATE_US);
        self.schedule.late_by_generator += u64::from(own_us > LATE_US);
        self.generator.record(own_us);
    }

    /// A request was never sent, for the load was over.
    pub(crate) fn unsent(&mut self, due_ns: u64) {
        if self.counts_from(due_ns) {
            self.schedule.due += 1;
            self.schedule.unsent += 1;
        }
    }

    /// An exchange came to its end. `first_length` is what bodies are compared with.
    pub(crate) fn whole(&mut self, whole: &Whole, first_length: u64) {
        let bad_status = !(200..400).contains(&whole.status);
        let failed = match self.judge {
            Judge::Status => bad_status,
            Judge::SameLength => whole.body_bytes != first_length,
            Judge::Nothing => false,
        };
        let response_us = us(whole.due_ns, whole.end_ns);
        self.beat.completed += 1;
        self.beat.failed += u64::from(failed);
        self.beat.response.record(response_us);
        self.untold.0 += 1;
        self.untold.1 += u64::from(failed);
        self.last_ns = self.last_ns.max(whole.end_ns);
        let good = u64::from(!bad_status && response_us <= self.deadline_us);
        self.beat.good += good;
        if !self.counts_from(whole.due_ns) {
            self.left_out.completed += 1;
            return;
        }
        self.counts.completed += 1;
        self.counts.good += good;
        self.counts.judged_failed += u64::from(failed);
        self.counts.keeps += u64::from(whole.keeps);
        self.counts.body_bytes += whole.body_bytes;
        if let Some(count) = self
            .statuses
            .get_mut(usize::from(whole.status.wrapping_sub(100)))
        {
            *count += 1;
        }
        self.times(whole, response_us);
        if let Some(request) = self.by_request.get_mut(whole.request as usize) {
            request.completed += 1;
            request.failed += u64::from(bad_status);
            request.good += good;
            request.response.record(response_us);
            if !bad_status {
                request.admitted.record(response_us);
            }
        }
        if self.each.len() < self.keep_max {
            self.each.push(Exchange {
                start_us: whole.start_ns / 1_000,
                connect_us: us(whole.start_ns, whole.connected_ns),
                total_us: us(whole.start_ns, whole.end_ns),
                waiting_us: us(whole.sent_ns, whole.first_ns),
                request: whole.request,
                status: whole.status,
            });
        }
    }

    fn times(&mut self, whole: &Whole, response_us: u64) {
        self.waiting.record(us(whole.sent_ns, whole.first_ns));
        let service_us = us(whole.start_ns, whole.end_ns);
        if whole.kept {
            self.kept.record(service_us);
        } else {
            self.fresh.service.record(service_us);
            self.fresh
                .connect
                .record(us(whole.start_ns, whole.connected_ns));
            self.fresh
                .processing
                .record(us(whole.connected_ns, whole.end_ns));
        }
        if let Some(response) = &mut self.response {
            response.record(response_us);
        }
        match whole.status {
            200..400 => self.admitted.record(response_us),
            429 | 503 => self.refused.record(response_us),
            _ => {}
        }
    }

    /// An exchange failed. The words are made only for the first of a class.
    pub(crate) fn failed(
        &mut self,
        class: Class,
        (request, due_ns, now_ns): (u32, u64, u64),
        words: impl FnOnce() -> (Option<i32>, String),
    ) {
        self.beat.failed += 1;
        self.untold.1 += 1;
        self.untold_broken.all += 1;
        self.untold_broken.reset += u64::from(class == Class::Reset);
        self.untold_broken.unconnected += u64::from(matches!(class, Class::Connect | Class::Tls));
        self.last_ns = self.last_ns.max(now_ns);
        self.note(class, words);
        if !self.counts_from(due_ns) {
            return;
        }
        let errors = &mut self.counts.errors;
        *match class {
            Class::Connect => &mut errors.connect,
            Class::Tls => &mut errors.tls,
            Class::Reset => &mut errors.reset,
            Class::Closed => &mut errors.closed,
            Class::Timeout => &mut errors.timeout,
            Class::Framing => &mut errors.framing,
            Class::Write => &mut errors.write,
        } += 1;
        if let Some(request) = self.by_request.get_mut(request as usize) {
            request.failed += 1;
            request.lost += 1;
        }
    }

    /// Keeps the words of a failure that is no exchange's.
    pub(crate) fn note(&mut self, class: Class, words: impl FnOnce() -> (Option<i32>, String)) {
        if self.failures.iter().all(|f| f.class != class.name()) {
            let (errno, text) = words();
            self.failures.push(Failure {
                class: class.name(),
                errno,
                text,
            });
        }
    }

    /// Brings `live` up to date.
    pub(crate) fn tell(&mut self, live: &Live) {
        let (completed, failed) = std::mem::take(&mut self.untold);
        live.add(completed, failed);
        live.add_broken(std::mem::take(&mut self.untold_broken));
    }

    /// When the last exchange ended.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Writes what was counted into an outcome that has no counts yet.
    pub(crate) fn finish(mut self, plan: &Plan, outcome: &mut Outcome) {
        if self.stage == Stage::WarmUp {
            // The load ended within it: nothing of it counts, not even bytes.
            self.counts = Counts::default();
        }
        let Fresh {
            connect,
            processing,
            service,
        } = self.fresh;
        let mut times = Times {
            connect,
            waiting: self.waiting,
            processing,
            service,
            response: Series::default(),
            admitted: self.admitted,
            refused: self.refused,
        };
        outcome.on_kept_connections = self.kept.count();
        times.connect.record_n(0, self.kept.count());
        times.processing.merge(&self.kept);
        times.service.merge(&self.kept);
        times.response = self.response.unwrap_or_else(|| times.service.clone());
        outcome.by_request = self.by_request;
        if let [only] = plan.requests.as_slice() {
            let bad = |(at, count): (usize, &u64)| match (200..400).contains(&(at + 100)) {
                true => 0,
                false => *count,
            };
            let bad: u64 = self.statuses.iter().enumerate().map(bad).sum();
            outcome.by_request = vec![ByRequest {
                label: only.label.clone(),
                completed: self.counts.completed,
                failed: bad + self.counts.errors.total(),
                lost: self.counts.errors.total(),
                good: self.counts.good,
                response: times.response.clone(),
                admitted: times.admitted.clone(),
            }];
        }
        outcome.times = times;
        outcome.warm_up.completed = self.left_out.completed;
        outcome.completed = self.counts.completed;
        outcome.good = self.counts.good;
        outcome.kept = self.counts.keeps;
        outcome.judged_failed = self.counts.judged_failed;
        outcome.errors = self.counts.errors;
        outcome.received_bytes = self.counts.received_bytes;
        outcome.body_bytes = self.counts.body_bytes;
        outcome.sent_bytes = self.counts.sent_bytes;
        outcome.cut = self.counts.cut;
        outcome.handshakes = self.counts.handshakes;
        let counted = (100..).zip(&self.statuses).filter(|(_, count)| **count > 0);
        outcome.statuses = counted.map(|(status, count)| (status, *count)).collect();
        outcome.schedule = self.schedule;
        outcome.schedule.generator_p99_us = self.generator.quantile_us(0.99);
        outcome.first = self.first;
        outcome.first_failures = self.failures;
        outcome.each = self.each;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::plan::{Address, Arrivals, Endpoint, ReplyTo, Request};
    use crate::client::schedule::Schedule as Arriving;

    const PER_SECOND: f64 = 1_000.0;

    fn plan(pace: Pace) -> Plan {
        let mut plan = Plan::new(vec![Request {
            endpoint: Endpoint {
                address: Address::Unix("/socket".into()),
                tls: None,
            },
            bytes: Vec::new(),
            numbered: None,
            body_bytes: 0,
            weight: 1,
            reply: ReplyTo::Other,
            patience: None,
            label: "page".to_owned(),
        }]);
        plan.pace = pace;
        plan
    }

    fn open() -> Plan {
        plan(Pace::Open {
            per_second: PER_SECOND,
            arrivals: Arrivals::Constant,
            ramp: Duration::ZERO,
        })
    }

    fn whole(due_ns: u64, start_ns: u64, end_ns: u64) -> Whole {
        Whole {
            request: 0,
            status: 200,
            body_bytes: 5,
            kept: true,
            keeps: true,
            due_ns,
            start_ns,
            connected_ns: start_ns,
            sent_ns: start_ns,
            first_ns: end_ns,
            end_ns,
        }
    }

    fn finished(recorder: Recorder, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        recorder.finish(plan, &mut outcome);
        outcome
    }

    #[test]
    fn quantiles_of_known_delays_are_right_within_a_thousandth() {
        let plan = open();
        let mut recorder = Recorder::new(&plan);
        recorder.start(0);
        let mut schedule = Arriving::new(PER_SECOND, Arrivals::Poisson(3), Duration::ZERO);
        let mut delays = Vec::new();
        for nth in 0..100_000_u64 {
            let share = (nth as f64 * 0.618_033_988_749_894_9).fract();
            let delay_us = (100.0 * 10_000.0_f64.powf(share)) as u64;
            let due_ns = schedule.next_ns();
            delays.push(delay_us);
            recorder.whole(&whole(due_ns, due_ns, due_ns + delay_us * 1_000), 5);
        }
        delays.sort_unstable();
        let response = finished(recorder, &plan).times.response;
        for q in [0.01, 0.5, 0.9, 0.99, 0.999, 0.9999] {
            let known = delays[(q * delays.len() as f64) as usize - 1] as f64;
            let error = response.quantile_us(q) as f64 / known - 1.0;
            assert!(error.abs() <= 0.0015, "p{}: {error}", q * 100.0);
        }
    }

    #[test]
    fn a_stall_is_paid_for_by_everybody_who_was_due() {
        // One connection, a request due every millisecond, each taking half of one; but the
        // first takes a second. The others wait, are sent late, and their wait counts.
        let plan = open();
        let mut recorder = Recorder::new(&plan);
        recorder.start(0);
        let ms = 1_000_000;
        let mut free_ns = 0;
        for nth in 0..1_000_u64 {
            let due_ns = nth * ms;
            let start_ns = due_ns.max(free_ns);
            let took_ns = if nth == 0 { 1_000 * ms } else { ms / 2 };
            recorder.sent_late(due_ns, free_ns, start_ns);
            free_ns = start_ns + took_ns;
            recorder.whole(&whole(due_ns, start_ns, free_ns), 5);
        }
        let outcome = finished(recorder, &plan);
        assert_eq!((outcome.completed, outcome.schedule.due), (1_000, 1_000));
        assert_eq!(outcome.times.service.quantile_us(0.99), 500);
        let median = outcome.times.response.quantile_us(0.5) as f64;
        assert!((median / 750_000.0 - 1.0).abs() < 0.01, "{median}");
        assert!(outcome.schedule.late > 990);
        assert_eq!(outcome.schedule.late_by_generator, 0);
        assert_eq!(outcome.schedule.generator_p99_us, 0);
    }

    #[test]
    fn what_belongs_to_the_warm_up_is_left_out() {
        for (plan, counted) in [(plan(Pace::Closed), 2), (open(), 1)] {
            let mut recorder = Recorder::new(&plan);
            recorder.whole(&whole(0, 0, 10), 5);
            recorder.failed(Class::Reset, (0, 0, 20), || (None, String::new()));
            recorder.start(100);
            // Begun before, ended after: counts where the server's rate is asked for.
            recorder.whole(&whole(90, 90, 110), 5);
            recorder.whole(&whole(110, 110, 120), 5);
            let outcome = finished(recorder, &plan);
            assert_eq!((outcome.completed, outcome.errors.total()), (counted, 0));
            assert_eq!(outcome.warm_up.completed, 3 - counted);
        }
    }

    #[test]
    fn refusals_and_late_replies_are_no_good_ones() {
        let mut plan = open();
        plan.deadline = Some(Duration::from_millis(500));
        let mut recorder = Recorder::new(&plan);
        recorder.start(0);
        for (status, took_ms) in [(200, 100), (200, 700), (503, 1), (429, 2), (404, 3)] {
            let reply = Whole {
                status,
                ..whole(0, 0, took_ms * 1_000_000)
            };
            recorder.whole(&reply, 5);
        }
        let outcome = finished(recorder, &plan);
        assert_eq!((outcome.completed, outcome.good), (5, 1));
        let times = &outcome.times;
        assert_eq!(
            (times.admitted.count(), times.admitted.min_us),
            (2, 100_000)
        );
        assert_eq!((times.refused.count(), times.refused.max_us), (2, 2_000));
        let by = &outcome.by_request[0];
        assert_eq!((by.good, by.admitted.count(), by.failed), (1, 2, 3));
    }

    #[test]
    fn a_load_that_ends_within_its_warm_up_has_counted_nothing() {
        let plan = plan(Pace::Closed);
        let mut recorder = Recorder::new(&plan);
        recorder.whole(&whole(0, 0, 10), 5);
        recorder.counts.received_bytes += 99;
        let outcome = finished(recorder, &plan);
        assert_eq!((outcome.completed, outcome.warm_up.completed), (0, 1));
        assert_eq!((outcome.received_bytes, outcome.cut), (0, 0));
    }

    #[test]
    fn exchanges_are_kept_up_to_a_number() {
        let mut plan = plan(Pace::Closed);
        plan.keep = Keep::Each(2);
        let mut recorder = Recorder::new(&plan);
        recorder.start(0);
        for nth in 0..5_000_000 {
            if nth % 1_000_000 == 0 {
                recorder.whole(&whole(nth, nth, nth + 3_000), 5);
            }
        }
        let each = finished(recorder, &plan).each;
        assert_eq!(each.len(), 2);
        assert_eq!((each[1].start_us, each[1].total_us), (1_000, 3));
    }
}
