//! The error log's share of refusals: a line a limit and second, however many keys it refuses.
//!
//! A line names the key that was refused most. Few keys are counted exactly; of more the eight
//! most frequent are followed as in "space saving" (Metwally, Agrawal and El Abbadi 2005, "Efficient
//! computation of frequent and top-k elements in data streams"): a new key takes the place of the
//! least frequent and inherits its count as its error. So memory and log are bounded, whatever keys
//! a client makes up, and what a line says of a key it says with "at least".

use std::fmt;

use limits::{LimitId, Mode, Refusal};

use crate::exchange::request::RequestId;

/// Limits that get a line of their own in a second.
const LINES_MAX: usize = 32;
/// Keys of a limit that are followed.
const KEYS_MAX: usize = 8;

/// What the log has yet to hear.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Vec<RefusalLine>,
    /// Those of further limits: refused, and would have been.
    unnamed: [u64; 2],
}

/// What one limit has refused.
#[derive(Debug)]
pub(super) struct RefusalLine {
    limit: LimitId,
    mode: Mode,
    count: u64,
    keys: Vec<Counted>,
    /// Whether there were more keys than are followed.
    has_more: bool,
}

/// A key and how often it was refused.
#[derive(Debug)]
struct Counted {
    /// The last of them.
    refusal: Refusal,
    request: RequestId,
    count: u64,
    /// By how much the count may be too high.
    error: u64,
}

impl Lines {
    /// Counts one.
    pub(super) fn note(&mut self, refusal: &Refusal, request: RequestId) {
        let (limit, mode) = (refusal.limit, refusal.mode);
        let known = self.lines.iter_mut();
        let mut known = known.filter(|line| line.limit == limit && line.mode == mode);
        if let Some(line) = known.next() {
            line.note(refusal, request);
        } else if self.lines.len() < LINES_MAX {
            self.lines.push(RefusalLine {
                limit,
                mode,
                count: 1,
                keys: vec![Counted::new(refusal, request)],
                has_more: false,
            });
        } else {
            self.unnamed[usize::from(mode == Mode::Shadow)] += 1;
        }
    }

    /// Gives them to `tell`, with the site whose limit it is: those that refused most first.
    pub(super) fn say(mut self, tell: impl Fn(Option<&str>, &dyn Fn())) {
        self.lines.sort_by_key(|line| std::cmp::Reverse(line.count));
        for line in &self.lines {
            let Some(top) = line.top() else {
                continue;
            };
            let (refusal, request_id) = (&top.refusal, top.request);
            let reason = refusal.why.word();
            tell(site_of(&refusal.identity), &|| {
                tracing::warn!(limit = %refusal.identity, reason, %request_id, "{line}");
            });
        }
        let [refused, shadow] = self.unnamed;
        if refused + shadow > 0 {
            tell(None, &|| {
                tracing::warn!(
                    "further limits: {refused} refused, {shadow} would be refused (shadow); \
                     see nagaya limits list"
                );
            });
        }
    }

    /// The lines as the log would get them.
    #[cfg(test)]
    pub(super) fn told(self) -> Vec<String> {
        self.lines.iter().map(RefusalLine::to_string).collect()
    }
}

/// The site of a limit called `site example.jp/file` or `rule example.jp/name/file`.
fn site_of(identity: &str) -> Option<&str> {
    let place = identity.strip_prefix("site ");
    let place = place.or_else(|| identity.strip_prefix("rule "))?;
    place.split('/').next()
}

impl RefusalLine {
    fn note(&mut self, refusal: &Refusal, request: RequestId) {
        self.count += 1;
        let mut known = self.keys.iter_mut();
        if let Some(counted) = known.find(|it| it.refusal.key == refusal.key) {
            counted.again(refusal, request);
            counted.count += 1;
        } else if self.keys.len() < KEYS_MAX {
            self.keys.push(Counted::new(refusal, request));
        } else if let Some(least) = self.keys.iter_mut().min_by_key(|it| it.count) {
            self.has_more = true;
            least.refusal.key.clone_from(&refusal.key);
            least.again(refusal, request);
            least.error = least.count;
            least.count += 1;
        }
    }

    /// The key that was refused most, for all that is known.
    fn top(&self) -> Option<&Counted> {
        self.keys.iter().max_by_key(|it| it.count - it.error)
    }
}

impl Counted {
    fn new(refusal: &Refusal, request: RequestId) -> Self {
        Self {
            refusal: refusal.clone(),
            request,
            count: 1,
            error: 0,
        }
    }

    /// Takes the figures of another refusal of the same limit and key.
    fn again(&mut self, refusal: &Refusal, request: RequestId) {
        let known = &mut self.refusal;
        known.why = refusal.why;
        known.in_flight = refusal.in_flight;
        known.cap = refusal.cap;
        known.queued = refusal.queued;
        known.queue_max = refusal.queue_max;
        self.request = request;
    }
}

impl fmt::Display for RefusalLine {
    /// `limit file=/srv/a.php concurrent 2/2 queue 0/0: 41 refused (and 120 of 7 other keys)`
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(top) = self.top() else {
            return Ok(());
        };
        let surely = top.count - top.error;
        let (at_least, or_more) = match self.has_more {
            true => ("at least ", " or more"),
            false => ("", ""),
        };
        write!(out, "{}: {at_least}{surely} ", top.refusal)?;
        out.write_str(match self.mode {
            Mode::Enforce => "refused",
            Mode::Shadow => "would be refused (shadow)",
        })?;
        let others = self.keys.len() - usize::from(!self.has_more);
        match (self.count - surely, others) {
            (0, _) => Ok(()),
            (rest, 1) => write!(out, " (and {rest} of 1 other key)"),
            (rest, others) => write!(out, " (and {rest} of {others}{or_more} other keys)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use limits::{
        Admission, Ask, Concurrent, Definition, Keyed, Ledger, TenantDefinition, Time, Want,
    };

    use super::*;

    /// A refusal at a limit of files where two may run.
    fn refusal() -> Refusal {
        let ledger = Ledger::new(1, [1, 2, 3, 4]);
        let limit = Definition {
            identity: "site a.jp/file".to_owned(),
            keyed: Keyed::Dynamic,
            concurrent: Some(Concurrent::Fixed(2)),
            ..Definition::of("file")
        };
        let tenant = TenantDefinition {
            name: "a.jp".to_owned(),
            weight: 1,
            keys_max: 8,
        };
        let defined = ledger.define(Time::ZERO, &[limit], &[tenant]);
        let ask = Ask {
            worker: 0,
            tenant: defined.tenants[0],
            class: limits::Class::NONE,
            client: Ipv4Addr::LOCALHOST.into(),
            wants: &[Want {
                limit: defined.limits[0],
                key: Some(b"/srv/sleep.php"),
            }],
        };
        let said = [(); 3].map(|()| ledger.admit(Time::ZERO, &ask));
        match said {
            [_, _, Admission::Refused(refusal)] => *refusal,
            other => panic!("{other:?}"),
        }
    }

    fn told(notes: impl IntoIterator<Item = Refusal>) -> String {
        let mut lines = Lines::default();
        for (number, refusal) in (0..).zip(notes) {
            lines.note(&refusal, RequestId::from_number(number));
        }
        lines.told().join("\n")
    }

    /// So many refusals of each of these keys.
    fn of_keys(keys: &[(&str, usize)]) -> Vec<Refusal> {
        let of = |(key, count): &(&str, usize)| {
            let key = (*key).to_owned();
            let refusal = Refusal { key, ..refusal() };
            std::iter::repeat_n(refusal, *count).collect::<Vec<_>>()
        };
        keys.iter().flat_map(of).collect()
    }

    #[test]
    fn a_line_names_the_key_that_was_refused_most_and_counts_the_others() {
        for (keys, expected) in [
            (
                &[("/srv/sleep.php", 41)][..],
                "limit file=/srv/sleep.php concurrent 2/2 queue 0/0: 41 refused",
            ),
            (
                &[("/a", 1), ("/b", 3)],
                "limit file=/b concurrent 2/2 queue 0/0: 3 refused (and 1 of 1 other key)",
            ),
            (
                &[
                    ("/1", 20),
                    ("/2", 41),
                    ("/3", 20),
                    ("/4", 20),
                    ("/5", 20),
                    ("/6", 20),
                    ("/7", 10),
                    ("/8", 10),
                ],
                "limit file=/2 concurrent 2/2 queue 0/0: 41 refused (and 120 of 7 other keys)",
            ),
        ] {
            assert_eq!(told(of_keys(keys)), expected);
        }
    }

    #[test]
    fn what_a_shadow_would_have_refused_stands_in_a_line_of_its_own() {
        let shadow = Refusal {
            mode: Mode::Shadow,
            ..refusal()
        };
        let both = told([refusal(), shadow.clone(), shadow]);
        let figures = "limit file=/srv/sleep.php concurrent 2/2 queue 0/0";
        let expected = format!("{figures}: 1 refused\n{figures}: 2 would be refused (shadow)");
        assert_eq!(both, expected);
    }

    #[test]
    fn minted_keys_neither_hide_the_busiest_nor_take_memory() {
        let mut lines = Lines::default();
        let id = RequestId::from_number(1);
        let mut minted = refusal();
        for number in 0..50_000 {
            minted.key = format!("/{number}");
            lines.note(&minted, id);
            if number % 5 == 0 {
                lines.note(&refusal(), id);
            }
        }
        assert_eq!(
            (lines.lines.len(), lines.lines[0].keys.len()),
            (1, KEYS_MAX)
        );
        let told = lines.told().join("\n");
        let rest =
            told.strip_prefix("limit file=/srv/sleep.php concurrent 2/2 queue 0/0: at least ");
        let (surely, rest) = rest
            .and_then(|it| it.split_once(" refused (and "))
            .expect(&told);
        let (others, end) = rest.split_once(" of ").expect(&told);
        let (surely, others): (u64, u64) = (surely.parse().unwrap(), others.parse().unwrap());
        assert!(surely <= 10_000 && surely + others == 60_000, "{told}");
        assert_eq!(end, "8 or more other keys)");
    }

    #[test]
    fn a_hostile_key_stays_within_its_quotes() {
        let key = "x concurrent 0/9: 1 refused\u{1b}[2J\u{202e}\"\nlimit";
        let line = told(of_keys(&[(key, 1)]));
        let expected = "limit file=\"x concurrent 0/9: 1 refused\\u{1b}[2J\\u{202e}\\\"\\nlimit\" \
            concurrent 2/2 queue 0/0: 1 refused";
        assert_eq!(line, expected);
    }
}
