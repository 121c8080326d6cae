//! What tenants take just now, for `nagaya top`.
//!
//! The idea: whoever asks is told what has changed since a [look](TenantLook) that is about a second old, and
//! the thread that answers keeps the last two; who asks first is told levels alone.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use control::TenantNow;

use super::table::{bytes, count, grid, percent};
use super::taken::TenantLook;
use crate::generation::Generation;
use crate::worker::Shared;

/// How far apart two looks are that are compared, at least and at most.
const APART_MIN: Duration = Duration::from_millis(900);
const APART_MAX: Duration = Duration::from_secs(10);
/// Tenants that are shown unless it is said how many, and at most.
const ROWS: usize = 20;
const ROWS_MAX: usize = 1_000;

/// The last looks, the older one first.
#[derive(Debug, Default)]
pub(crate) struct Looks(VecDeque<TenantLook>);

/// What is asked.
#[derive(Debug, Clone, Copy)]
struct TopQuestion {
    by: By,
    rows: usize,
    is_json: bool,
}

/// Who comes first.
#[derive(Debug, Clone, Copy)]
enum By {
    Cpu,
    Memory,
    Io,
    Waiting,
    Refused,
}

impl TopQuestion {
    fn read(words: &str) -> Result<Self, String> {
        let mut asked = Self {
            by: By::Cpu,
            rows: ROWS,
            is_json: false,
        };
        for word in words.split_ascii_whitespace() {
            match (word, word.parse()) {
                ("cpu", _) => asked.by = By::Cpu,
                ("memory", _) => asked.by = By::Memory,
                ("io", _) => asked.by = By::Io,
                ("waiting", _) => asked.by = By::Waiting,
                ("refused", _) => asked.by = By::Refused,
                ("json", _) => asked.is_json = true,
                (_, Ok(rows)) => asked.rows = rows,
                _ => return Err(format!("error: `{word}` means nothing after `top`\n")),
            }
        }
        asked.rows = asked.rows.clamp(1, ROWS_MAX);
        Ok(asked)
    }
}

impl Looks {
    /// Answers `top [N] [BY] [json]`.
    pub(crate) fn answer(&mut self, shared: &Shared, words: &str) -> String {
        let asked = match TopQuestion::read(words) {
            Ok(asked) => asked,
            Err(why) => return why,
        };
        let Some(generation) = shared.generation() else {
            return "error: nothing is served yet\n".to_owned();
        };
        let (mut tenants, left_out) = self.look(shared, &generation);
        tenants.sort_by(|one, other| asked.by.order(one, other));
        let more = tenants.len().saturating_sub(asked.rows);
        tenants.truncate(asked.rows);
        match asked.is_json {
            true => control::json(&tenants),
            false => table(&tenants, more, left_out),
        }
    }

    /// The so many tenants that take most of processors, or answer most requests.
    pub(crate) fn busiest(&mut self, shared: &Shared, most: usize) -> Vec<TenantNow> {
        let generation = shared.generation();
        let mut tenants = generation.map_or_else(Vec::new, |it| self.look(shared, &it).0);
        tenants.sort_by(|one, other| By::Cpu.order(one, other));
        tenants.truncate(most);
        tenants
    }

    /// What each tenant takes now, and how many groups were not read.
    fn look(&mut self, shared: &Shared, generation: &Generation) -> (Vec<TenantNow>, usize) {
        let look = TenantLook::take(generation, &shared.rows.tenants.all(), Instant::now());
        let left_out = look.groups_left_out;
        (self.compare(look), left_out)
    }

    /// What each tenant takes, and has taken since a look before this one.
    fn compare(&mut self, look: TenantLook) -> Vec<TenantNow> {
        let age = |before: &TenantLook| look.at.saturating_duration_since(before.at);
        self.0.retain(|before| age(before) <= APART_MAX);
        let mut looks = self.0.iter().rev();
        let tenants = look.since(looks.find(|before| age(before) >= APART_MIN));
        if self.0.back().is_none_or(|last| age(last) >= APART_MIN) {
            self.0.push_back(look);
        }
        while self.0.len() > 2 {
            self.0.pop_front();
        }
        tenants
    }
}

impl By {
    /// Who has most comes first, and of those who have the same who waits most.
    fn order(self, one: &TenantNow, other: &TenantNow) -> Ordering {
        let key = |it: &TenantNow| match self {
            Self::Cpu => it.cpu_cores.unwrap_or(-1.0),
            Self::Memory => it.memory_bytes.map_or(-1.0, |bytes| bytes as f64),
            Self::Io => it.io_bytes_per_s.unwrap_or(-1.0),
            Self::Waiting => it.waiting as f64,
            Self::Refused => it.refused_per_s.unwrap_or(-1.0),
        };
        let requests = |it: &TenantNow| it.requests_per_s.unwrap_or(-1.0);
        let most = key(other).total_cmp(&key(one));
        most.then_with(|| other.waiting.cmp(&one.waiting))
            .then_with(|| requests(other).total_cmp(&requests(one)))
            .then_with(|| one.tenant.cmp(&other.tenant))
    }
}

fn table(tenants: &[TenantNow], more: usize, groups_left_out: usize) -> String {
    if tenants.is_empty() {
        return "no tenant has had a request yet\n".to_owned();
    }
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let per_s = |number: f64| format!("{number:.1}/s");
    let rows = tenants.iter().map(|it| {
        vec![
            it.tenant.clone(),
            or_dash(it.cpu_cores.map(percent)),
            or_dash(it.throttled_share.map(percent)),
            or_dash(it.memory_bytes.map(bytes)),
            or_dash(
                it.io_bytes_per_s
                    .map(|rate| format!("{}/s", bytes(rate as u64))),
            ),
            or_dash(it.requests_per_s.map(per_s)),
            count(it.waiting),
            or_dash(it.refused_per_s.map(per_s)),
        ]
    });
    let heads = [
        "tenant",
        "cpu",
        "throttled",
        "memory",
        "i/o",
        "requests",
        "waiting",
        "refused",
    ];
    let mut out = String::new();
    grid(&heads, rows.collect(), &mut out);
    // Writing to memory does not fail.
    if more > 0 {
        let all = (tenants.len() + more).min(ROWS_MAX);
        let _ = writeln!(out, "and {more} more: nagaya top -n {all}");
    }
    if groups_left_out > 0 {
        let _ = writeln!(out, "{groups_left_out} further groups were not read");
    }
    out.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, reply};

    #[test]
    fn what_is_taken_in_a_second_is_the_difference_to_a_look_that_is_old_enough() {
        let begun = Instant::now();
        let mut looks = Looks::default();
        let mut look = |ms: u64, of: &[(&str, u64)]| {
            let look = TenantLook::of_groups(begun + Duration::from_millis(ms), of);
            let now = looks.compare(look).into_iter();
            let now = now.map(|it| (it.cpu_cores, it.memory_bytes));
            (now.collect::<Vec<_>>(), looks.0.len())
        };
        let page = Some(4_096);
        assert_eq!(look(0, &[("a", 9_000_000)]).0, [(None, page)]);
        let soon = look(100, &[("a", 9_100_000)]).0;
        assert_eq!(soon, [(None, page)], "both are of the same moment");
        let now = look(2_000, &[("a", 12_000_000)]).0;
        assert_eq!(now, [(Some(1.5), page)]);
        // Another who asks meanwhile is told of the same second.
        let soon = look(2_500, &[("a", 12_500_000)]).0;
        assert_eq!(soon, [(Some(1.4), page)]);
        let late = look(60_000, &[("a", 13_000_000)]);
        assert_eq!(late, (vec![(None, page)], 1), "a minute is no moment");
    }

    #[test]
    fn who_takes_most_comes_first_and_no_more_rows_than_asked_for() {
        let now = |tenant: &str, cpu_cores, waiting| TenantNow {
            tenant: tenant.to_owned(),
            cpu_cores,
            waiting,
            ..TenantNow::default()
        };
        let mut tenants = vec![
            now("idle", Some(0.0), 0),
            now("no-group", None, 7),
            now("waits", Some(0.0), 2),
            now("busy", Some(0.4), 1),
        ];
        let names = |tenants: &[TenantNow]| {
            let names = tenants.iter().map(|it| it.tenant.clone());
            names.collect::<Vec<_>>().join(" ")
        };
        tenants.sort_by(|one, other| By::Cpu.order(one, other));
        assert_eq!(names(&tenants), "busy waits idle no-group");
        tenants.sort_by(|one, other| By::Waiting.order(one, other));
        assert_eq!(names(&tenants), "no-group waits busy idle");
        let page = table(&tenants[..2], 2, 0);
        assert!(page.ends_with("and 2 more: nagaya top -n 4\n"), "{page}");
        assert!(page.starts_with("tenant  "), "{page}");
    }

    #[test]
    fn tenants_are_told_with_what_their_sites_were_asked() {
        let fixture = Fixture::new(
            r#"
limits = [{ key = "path", rate = "1/d", burst = 1 }]
[[sites]]
hosts = ["a"]
tenant = "t"
rules = [{ handler = { respond = { body = "fine" } } }]
[[sites]]
hosts = ["b"]
rules = [{ handler = { respond = { body = "fine" } } }]
"#,
        );
        let serving = fixture.worker.serving();
        fixture.shared.set_generation(&serving.generation);
        let ask = |words: &str| Looks::default().answer(&fixture.shared, words);
        assert_eq!(ask(""), "no tenant has had a request yet\n");
        assert!(ask("cpus").starts_with("error: `cpus` means nothing"));
        for status in [200, 503] {
            let request = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
            assert_eq!(reply(&fixture.ask(request)).0, status);
        }
        assert_eq!(ask("json"), "[{\"tenant\":\"t\",\"waiting\":0}]\n");
        assert_eq!(ask("5 refused").lines().count(), 2);
    }
}
