//! What an operator may ask of limits over the control socket, and the answers as text or JSON.
//!
//! `limits list [json]`, `limits top [N] [json]`, `limits set LIMIT KEY=VALUE…`, `why REQUEST-ID`;
//! and what `nagaya limits set` says to change what it will keep in the overrides file, which it
//! writes itself: `limits keep`, `limits kept` and `limits forget`.
//! An answer that begins with `error: ` says that nothing was done, and why.

use std::cmp::Reverse;
use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use limits::{Concurrent, Definition, GateLook, Mode, Why};

use super::caps::UNBOUNDED;
use super::gates::GatesLook;
use super::refusals::{REMEMBERED_MAX, Remembered};
use super::rows::{self, Row};
use super::set;
use crate::costs::Costs;
use crate::directory::told as of_rows;
use crate::figures::{count, grid};
use crate::programs::recent;
use crate::rewrite::told as rewriting;
use crate::scripts::tried;
use crate::shedding;
use crate::worker::Shared;

/// Keys `limits top` shows unless it is told how many.
const TOP: usize = 20;
/// Keys `limits top` shows at most.
const TOP_MAX: usize = 10_000;

/// What an answer looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

/// Answers a question about limits; `None` where it is none.
pub fn answer(shared: &Shared, question: &str) -> Option<String> {
    let (first, rest) = question.split_once(' ').unwrap_or((question, ""));
    match first {
        "why" => Some(why(shared, rest.trim())),
        "limits" => Some(about_limits(shared, rest)),
        _ => None,
    }
}

fn about_limits(shared: &Shared, rest: &str) -> String {
    let mut words = rest.split_ascii_whitespace();
    let verb = words.next().unwrap_or_default();
    let (mut form, mut number) = (Form::Text, None);
    let order = rest.trim_start().strip_prefix(verb).unwrap_or_default();
    let done = match verb {
        "set" => Some(set::set(shared, order.trim())),
        "keep" => Some(set::set_to_keep(shared, order.trim())),
        "kept" => Some(set::keep(shared, order.trim())),
        "forget" => Some(set::forget(shared, order.trim())),
        _ => None,
    };
    if let Some(done) = done {
        return done.unwrap_or_else(|why| format!("error: {why}\n"));
    }
    for word in words {
        match word.parse::<usize>() {
            _ if word == "json" => form = Form::Json,
            Ok(count) if verb == "top" => number = Some(count),
            _ => return format!("error: `{word}` means nothing after `limits {verb}`\n"),
        }
    }
    match (verb, form) {
        ("list", Form::Text) => {
            let mut out = list(&rows::collect(shared));
            tell_gates(shared.limits.gates.look(), &mut out);
            out
        }
        ("list", Form::Json) => list_json(&rows::collect(shared)),
        ("top", Form::Text) => {
            let gates = busiest(shared, number.unwrap_or(TOP));
            top(&gates, keys_in_use(shared), &costs(shared))
        }
        ("top", Form::Json) => {
            let gates = busiest(shared, number.unwrap_or(TOP));
            top_json(&gates, &costs(shared))
        }
        _ => "error: known are: limits list, limits top, limits set, why\n".to_owned(),
    }
}

fn list_json(rows: &[Row]) -> String {
    control::json(&rows.iter().map(listed).collect::<Vec<_>>())
}

fn list(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no limits are configured\n".to_owned();
    }
    let mut out = String::new();
    let files = files_of(rows);
    let heads = [
        "limit",
        "is",
        "in flight",
        "waiting",
        "keys",
        "admitted",
        "waited",
        "refused",
        "would be refused",
        "from",
    ];
    let cells = rows.iter().map(|row| {
        vec![
            row.limit.identity.clone(),
            is(row),
            count(row.look.in_flight),
            count(row.look.queued),
            count(row.look.keys),
            count(row.look.totals.admitted),
            count(row.look.totals.waited),
            count(row.refused_total()),
            count(row.look.totals.shadow_refused),
            match files.as_slice() {
                [_] => row.origin.without_file(),
                _ => row.origin.to_string(),
            },
        ]
    });
    grid(&heads, cells.collect(), &mut out);
    if let [file] = files.as_slice() {
        let _ = writeln!(out, "kept in {file}");
    }
    out.trim_start().to_owned()
}

/// The gates of `Nagaya::Limit.acquire`, which no configuration knows.
fn tell_gates(look: GatesLook, out: &mut String) {
    if look != GatesLook::default() {
        let GatesLook {
            keys,
            in_flight,
            queued,
        } = look;
        // Writing to memory does not fail.
        let _ = writeln!(
            out,
            "limits of scripts (Nagaya::Limit): keys {keys}, in flight {in_flight}, waiting {queued}"
        );
    }
}

/// Files that lines of are in force: there is one, unless it was moved while running.
fn files_of(rows: &[Row]) -> Vec<&str> {
    let mut files: Vec<&str> = rows.iter().filter_map(|row| row.origin.file()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// What a limit is, and whether it counts some requests only, or none now.
fn is(row: &Row) -> String {
    let mut is = describe(&row.limit, row.look.cap);
    if row.is_of_handshakes {
        is.push_str(", of handshakes");
    }
    for reserve in &row.reserves {
        is.push_str(&format!(", {} for {}", reserve.permits, reserve.tenant));
    }
    if row.has_match {
        is.push_str(", some requests");
    }
    if !row.holds {
        is.push_str(", not now");
    }
    is
}

/// A limit in the words of the configuration: `concurrent 2, queue 10, wait 2s`.
pub(super) fn describe(limit: &Definition, cap: Option<u32>) -> String {
    let mut parts = Vec::new();
    match limit.concurrent {
        None => {}
        Some(Concurrent::Fixed(UNBOUNDED)) => parts.push(match cap.filter(is_bound) {
            Some(now) => format!("concurrent - (now {now})"),
            None => "concurrent -".to_owned(),
        }),
        Some(Concurrent::Fixed(count)) => parts.push(match cap.filter(|now| *now != count) {
            Some(now) => format!("concurrent {count} (now {now})"),
            None => format!("concurrent {count}"),
        }),
        Some(Concurrent::Auto { .. }) => parts.push(match cap {
            Some(now) => format!("concurrent auto (now {now})"),
            None => "concurrent auto".to_owned(),
        }),
    }
    if limit.concurrent.is_some() && limit.queue > 0 {
        parts.push(format!("queue {}", limit.queue));
        parts.push(format!("wait {}", spelled(limit.wait)));
        parts.extend(limit.late.map(|late| format!("late {}", spelled(late))));
    }
    if let Some(rate) = &limit.rate {
        parts.push(format!("rate {rate}, burst {}", rate.burst));
    }
    if limit.mode == Mode::Shadow {
        parts.push("shadow".to_owned());
    }
    parts.join(", ")
}

/// Whether there are only so many permits.
fn is_bound(permits: &u32) -> bool {
    *permits != UNBOUNDED
}

/// A duration as the configuration spells it.
pub(super) fn spelled(duration: Duration) -> String {
    config::duration(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// A limit as an answer has it.
pub(crate) fn listed(row: &Row) -> control::Limit {
    let (limit, look, totals) = (&row.limit, &row.look, &row.look.totals);
    let has_queue = limit.concurrent.is_some();
    let reasons = Why::ALL.map(Why::word).into_iter();
    control::Limit {
        limit: limit.identity.clone(),
        name: limit.name.clone(),
        from: row.origin.to_string(),
        mode: mode_word(limit.mode).into(),
        holds: row.holds,
        has_match: row.has_match,
        on: row.is_of_handshakes.then(|| "handshake".into()),
        concurrent: match limit.concurrent {
            None | Some(Concurrent::Fixed(UNBOUNDED)) => None,
            Some(Concurrent::Fixed(count)) => Some(control::Concurrent::Fixed(count)),
            Some(Concurrent::Auto { .. }) => Some(control::Concurrent::Word("auto".into())),
        },
        permits: look.cap.filter(is_bound),
        concurrent_now: match limit.concurrent {
            None => None,
            Some(Concurrent::Fixed(count)) => look.cap.filter(|now| *now != count),
            Some(Concurrent::Auto { .. }) => Some(look.cap.unwrap_or_default()),
        },
        queue: has_queue.then_some(limit.queue),
        wait_ms: has_queue.then_some(limit.wait.as_millis()),
        late_ms: limit
            .late
            .filter(|_| has_queue)
            .map(|late| late.as_millis()),
        rate: limit.rate.map(|rate| rate.to_string()),
        burst: limit.rate.map(|rate| rate.burst),
        keys: look.keys,
        in_flight: look.in_flight,
        in_flight_most: look.in_flight_most,
        queued: look.queued,
        admitted: totals.admitted,
        waited: totals.waited,
        shadow_refused: totals.shadow_refused,
        refused: reasons.zip(totals.refused).collect(),
    }
}

/// The word of a mode.
pub(super) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
    }
}

/// How many keys there are.
fn keys_in_use(shared: &Shared) -> u64 {
    let looks = shared.limits.ledger.totals().into_iter();
    looks.map(|look| look.keys).sum()
}

/// The keys with most going on: those at which most wait first, then those with most under way,
/// then those that refused most, or would have.
pub(super) fn busiest(shared: &Shared, number: usize) -> Vec<GateLook> {
    let now = shared.limits.time(Instant::now());
    let number = number.clamp(1, TOP_MAX);
    let mut gates = shared.limits.ledger.look(now, None, number);
    gates.sort_by_key(|gate| {
        let refused = gate.refused + gate.shadow_refused;
        Reverse((gate.queued, gate.in_flight, refused, gate.admitted))
    });
    gates
}

/// What files cost.
fn costs(shared: &Shared) -> Arc<Costs> {
    let generation = shared.generation();
    generation.map_or_else(Arc::default, |it| Arc::clone(&it.costs))
}

fn top(gates: &[GateLook], keys: u64, costs: &Costs) -> String {
    if gates.is_empty() {
        return "no key of a limit is in use\n".to_owned();
    }
    let mut out = String::new();
    let heads = [
        "limit",
        "key",
        "in flight",
        "waiting",
        "oldest",
        "admitted",
        "waited",
        "refused",
        "would be refused",
        "cost",
    ];
    let cells = gates.iter().map(|gate| {
        let of = |now: u32, max: Option<u32>| match max {
            Some(max) => format!("{now}/{max}"),
            None => now.to_string(),
        };
        vec![
            gate.identity.to_string(),
            gate.key.clone(),
            of(gate.in_flight, gate.cap),
            of(gate.queued, Some(gate.queue_max)),
            gate.oldest.map_or("-".to_owned(), tenths),
            count(gate.admitted),
            count(gate.waited),
            count(gate.refused),
            count(gate.shadow_refused),
            costs.of_shown(&gate.key).map_or("-".to_owned(), tenths),
        ]
    });
    grid(&heads, cells.collect(), &mut out);
    if let more @ 1.. = keys.saturating_sub(gates.len() as u64) {
        let _ = writeln!(
            out,
            "and {} keys with less going on: nagaya limits top {}",
            count(more),
            keys.min(TOP_MAX as u64)
        );
    }
    out.trim_start().to_owned()
}

/// Those of the keys with most going on that are chosen, as an answer has them.
pub(crate) fn listed_keys(
    shared: &Shared,
    choose: impl FnOnce(&mut Vec<GateLook>),
) -> Vec<control::Key> {
    let mut gates = busiest(shared, TOP_MAX);
    choose(&mut gates);
    keys(&gates, &costs(shared))
}

fn top_json(gates: &[GateLook], costs: &Costs) -> String {
    control::json(&keys(gates, costs))
}

fn keys(gates: &[GateLook], costs: &Costs) -> Vec<control::Key> {
    let key = |gate: &GateLook| control::Key {
        limit: gate.identity.to_string(),
        key: gate.key.clone(),
        overflow: gate.overflow,
        in_flight: gate.in_flight,
        queued: gate.queued,
        queue: gate.queue_max,
        admitted: gate.admitted,
        waited: gate.waited,
        refused: gate.refused,
        shadow_refused: gate.shadow_refused,
        concurrent: gate.cap.filter(is_bound),
        oldest_ms: gate.oldest.map(|oldest| oldest.as_millis()),
        cost_us: costs.of_shown(&gate.key).map(|cost| cost.as_micros()),
    };
    gates.iter().map(key).collect()
}

fn why(shared: &Shared, id: &str) -> String {
    if id.is_empty() {
        return "error: say which request: why REQUEST-ID\n".to_owned();
    }
    let shed = [&shared.shed, &shared.shadow_shed].map(|all| all.find(id.as_bytes()));
    let shed = shed.iter().flatten();
    let refusals = shared.limits.refusals.find(id.as_bytes());
    let all = shed.map(|shed| shedding::told(shed, &moment(shed.at)));
    let mut all: Vec<String> = all.collect();
    let costs = costs(shared);
    all.extend(refusals.iter().map(|it| told(it, &costs)));
    let tried = shared.tried.find(id.as_bytes());
    all.extend(tried.iter().map(|it| tried::told(it, &moment(it.at))));
    let recent = [&shared.program_pools.recent, &shared.suspension.recent];
    let recent = recent.iter().filter_map(|it| it.find(id.as_bytes()));
    all.extend(recent.map(|it| recent::told(&it, &moment(it.at))));
    let of_row = shared.rows.recent.find(id.as_bytes());
    all.extend(of_row.map(|it| of_rows::told(&it, &moment(it.at))));
    let rewritten = shared.rewritten.find(id.as_bytes());
    all.extend(rewritten.map(|it| rewriting::told(&it, &moment(it.at))));
    if all.is_empty() {
        return format!(
            "error: no refusal of request {id} is remembered: the last {} are, and of each limit, key and \
             network the last one, until the server restarts; its access record has the reason, if json or ltsv is written{}\n",
            count(REMEMBERED_MAX as u64),
            elsewhere(shared)
        );
    }
    all.join("\n")
}

/// Where else a refusal may be remembered: a machine of a fleet knows its own.
fn elsewhere(shared: &Shared) -> &'static str {
    let rules = shared.generation().and_then(|it| it.limits.fleet);
    rules.map_or(
        "",
        |_| "; each machine of the fleet remembers its own: `nagaya fleet` names them",
    )
}

fn told(remembered: &Remembered, costs: &Costs) -> String {
    let Remembered {
        id,
        at,
        site,
        class,
        refusal,
        others,
        ..
    } = remembered;
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn Display| {
        let _ = writeln!(out, "{name:<11} {value}");
    };
    line("request", id);
    line("at", &moment(*at));
    line("site", site);
    if let Some(class) = class {
        line("class", class);
    }
    line("limit", &refusal.identity);
    if !refusal.key.is_empty() {
        line("key", &refusal.key);
    }
    if let Some(cost) = costs.of_shown(&refusal.key) {
        let cost = format!("{} of processor time, each run", tenths(cost));
        line("cost", &cost);
    }
    let is_shadow = refusal.mode == Mode::Shadow;
    if is_shadow {
        line(
            "outcome",
            &"passed: would have been refused, but the limit is in shadow",
        );
    }
    line("reason", &refusal.why.word());
    line("found", refusal);
    if !refusal.waited.is_zero() {
        let (waited, wait) = (tenths(refusal.waited), tenths(refusal.wait));
        line("had waited", &format!("{waited} of {wait}"));
    }
    if let Some(late) = refusal.late {
        line("late is", &format!("who has waited {}", tenths(late)));
    }
    if !refusal.held.is_zero() {
        let held = format!("for {} lately, each place", tenths(refusal.held));
        line("held", &held);
    }
    // Who has waited in vain knows better than any prediction.
    if !is_shadow && refusal.why != Why::WaitedTooLong {
        let free = format!("in {}, as predicted then", tenths(refusal.retry_after));
        let free = match refusal.why {
            Why::WaitTooLong => format!("{free}; it may wait {}", tenths(refusal.wait)),
            _ => free,
        };
        line("free again", &free);
    }
    line("passes if", &refusal.admits_if());
    if *others > 0 {
        let limits = if *others == 1 { "limit" } else { "limits" };
        let besides = format!("{others} further {limits} in shadow would have refused it");
        line("besides", &besides);
    }
    out
}

/// A moment as RFC 3339 has it, in UTC.
pub(crate) fn moment(since_1970: Duration) -> String {
    let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |it| it.to_string())
}

/// `12 ms`, `1.5 s`
fn tenths(duration: Duration) -> String {
    match duration.as_millis() {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::sample_tests::{assert_stored, limits};

    /// Keys of a limit: one that is full, and one of which little is known.
    fn gates() -> Vec<GateLook> {
        let full = GateLook {
            limit: limits().remove(0).look.limit,
            name: "all".into(),
            identity: "all".into(),
            key: "a \"b\" \\ c\n\u{7f}é".to_owned(),
            overflow: true,
            in_flight: 4,
            cap: Some(4),
            queued: 2,
            queue_max: 10,
            admitted: 1_234,
            refused: 5,
            shadow_refused: 6,
            waited: 7,
            oldest: Some(Duration::from_millis(1_250)),
        };
        let other = GateLook {
            key: String::new(),
            overflow: false,
            cap: None,
            oldest: None,
            ..full.clone()
        };
        vec![full, other]
    }

    #[test]
    fn limits_are_listed_as_they_were() {
        let (rows, gates) = (limits(), gates());
        assert_stored("limits-list.txt", &list(&rows));
        assert_stored("limits-list.json", &list_json(&rows));
        let costs = Costs::default();
        costs.note(
            "a",
            gates[0].key.as_bytes(),
            (20, 1_250_000),
            Instant::now(),
        );
        assert_stored("limits-top.txt", &top(&gates, 5, &costs));
        assert_stored("limits-top.json", &top_json(&gates, &costs));
        assert_eq!(list_json(&[]) + &top_json(&[], &costs), "[]\n[]\n");
    }
}
