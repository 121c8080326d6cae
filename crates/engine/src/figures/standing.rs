//! How pools stand, for `nagaya pools`, and what operators have done to them.
//!
//! What runs the spawner tells; what was asked of it, and has not been answered, the workers know,
//! and php-fpm itself, where it has a process left to say so: of two that know the longest request
//! the longer one is told.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use control::PoolStanding;
use ipc::pools::{self, PoolAnswer, PoolQuestion, PoolState};

use super::fpm_status::{self, Longest, SCRIPT_CHARS_MAX};
use super::table::{bytes, count, grid, micros, percent};
use crate::generation::Generation;
use crate::programs::pools::ProgramPool;
use crate::tree::Tree;
use crate::worker::Shared;

/// Pools whose php-fpm is asked for one answer.
const ASKED_MAX: usize = 128;

/// Answers `pools`, with `json` after it or not.
pub(crate) fn pools(shared: &Shared, is_json: bool) -> String {
    match shared.pool_inquiries.ask(PoolQuestion::List) {
        Ok(PoolAnswer::Pools(pools)) => {
            let pools = standings(shared, pools, ASKED_MAX);
            match is_json {
                true => control::json(&pools),
                false if pools.is_empty() => "no site has a pool\n".to_owned(),
                false => table(&pools),
            }
        }
        other => unexpected(other),
    }
}

/// How they stand, without a word of php-fpm's own; none where the spawner does not say.
pub(crate) fn look(shared: &Shared) -> Vec<PoolStanding> {
    let generation = shared.generation();
    if generation.is_none_or(|it| it.program_pools.is_empty() && it.row_programs.is_empty()) {
        return Vec::new();
    }
    match shared.pool_inquiries.ask(PoolQuestion::List) {
        Ok(PoolAnswer::Pools(pools)) => standings(shared, pools, 0),
        _ => Vec::new(),
    }
}

/// How they stand, of which so many are asked for their longest request.
fn standings(
    shared: &Shared,
    pools: Vec<pools::PoolStanding>,
    asked_max: usize,
) -> Vec<PoolStanding> {
    let all = shared.program_pools.each();
    let known = all.iter();
    let known: HashMap<&str, &Arc<ProgramPool>> = known.map(|it| (&*it.id, it)).collect();
    // One without a child answers nobody, and would start one to say so.
    let asked = pools.iter().enumerate().filter_map(|(at, pool)| {
        let socket = known.get(&*pool.id)?.php_socket.as_deref();
        let is_warm = matches!(pool.state, PoolState::Warm | PoolState::HandingOver);
        Some((at, socket.filter(|_| is_warm && pool.processes > 0)?))
    });
    let mut longest = fpm_status::longest(asked.take(asked_max));
    let mut asked = asked_of_pools(shared);
    let each = pools.into_iter().enumerate().map(|(at, pool)| {
        let mut asked = asked.remove(&pool.id).unwrap_or_default();
        let known = known.get(&*pool.id);
        let own = asked.longest.take().into_iter();
        asked.longest = own.chain(longest.remove(&at)).max_by_key(|it| it.ms);
        let pages_max = known.and_then(|known| known.pages_max());
        let queued = pages_max.map_or(0, |most| asked.under_way.saturating_sub(most.into()));
        asked.waiting = queued + known.map_or(0, |known| known.waiting() as u64);
        PoolStanding {
            processes_max: pages_max,
            ..standing(pool, asked)
        }
    });
    each.collect()
}

/// What was asked of a pool and has no answer.
#[derive(Debug, Default)]
struct PoolDemand {
    under_way: u64,
    waiting: u64,
    longest: Option<Longest>,
}

/// What the workers have asked of each pool, by its id.
fn asked_of_pools(shared: &Shared) -> HashMap<String, PoolDemand> {
    let uptime = shared.process.started.elapsed();
    let mut pools = HashMap::<String, PoolDemand>::new();
    for stats in shared.stats.iter().flat_map(|stats| stats.upstreams()) {
        let Some(id) = stats.upstream.strip_prefix(config::POOL_PREFIX) else {
            continue;
        };
        let under_way = stats.under_way();
        let asked = pools.entry(id.to_owned()).or_default();
        asked.under_way += under_way.count;
        let oldest = under_way.oldest_ms.map(|since_ms| Longest {
            ms: millis(uptime).saturating_sub(since_ms),
            script: under_way.script.chars().take(SCRIPT_CHARS_MAX).collect(),
        });
        let both = asked.longest.take().into_iter().chain(oldest);
        asked.longest = both.max_by_key(|it| it.ms);
    }
    pools
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Answers `pools-restart SITE` and the like: what is done to the pools of a site.
pub(crate) fn act(
    shared: &Shared,
    site: &str,
    question: fn(Vec<String>) -> PoolQuestion,
) -> String {
    let Some(generation) = shared.generation() else {
        return "error: nothing is served yet\n".to_owned();
    };
    let pools = match pools_of(&generation, site.trim()) {
        Ok(pools) => pools,
        Err(why) => return format!("error: {why}\n"),
    };
    let ids = pools.iter().map(|(_, pool)| pool.id.to_string());
    match shared.pool_inquiries.ask(question(ids.collect())) {
        Ok(PoolAnswer::Begun(count)) => {
            for (at, pool) in pools {
                // The spawner has ended its rest; so workers are to ask again.
                pool.note_rested(None);
                let newcomers = generation.newcomers.iter();
                let own = newcomers.filter(|((pool, _), _)| *pool == at);
                own.for_each(|(_, newcomer)| pool.note_rested(Some(newcomer)));
            }
            format!("{count}\n")
        }
        other => unexpected(other),
    }
}

fn unexpected(answer: Result<PoolAnswer, String>) -> String {
    match answer {
        Err(why) | Ok(PoolAnswer::Refused(why)) => format!("error: {why}\n"),
        Ok(_) => "error: the spawner answered something else\n".to_owned(),
    }
}

/// The pools that a site's rules lead to, with their indices.
fn pools_of<'a>(
    generation: &'a Generation,
    name: &str,
) -> Result<Vec<(usize, &'a ProgramPool)>, String> {
    let by_name = || generation.sites.iter().find(|site| *site.name == *name);
    let by_host = || {
        let at = generation.destination_of(&name.to_ascii_lowercase())?.site;
        generation.sites.get(at as usize)
    };
    let site = by_name().or_else(by_host);
    let site = site.ok_or_else(|| format!("there is no site {name}"))?;
    let handlers = site.rules.iter().filter_map(|rule| rule.handler.as_ref());
    let handlers = handlers.chain(site.trees().flat_map(Tree::handlers));
    let handlers = handlers.chain(site.named_handlers());
    let pools: BTreeSet<usize> = handlers.filter_map(|handler| handler.pool()).collect();
    let known = |at: usize| Some((at, &**generation.program_pools.get(at)?));
    let pools: Vec<_> = pools.into_iter().filter_map(known).collect();
    if pools.is_empty() {
        return Err(format!("site {} has no pool", site.name));
    }
    Ok(pools)
}

fn standing(pool: pools::PoolStanding, demand: PoolDemand) -> PoolStanding {
    let share = |parts: Option<u32>| parts.map(|parts| f64::from(parts) / 10_000.0);
    let [cpu_pressure, memory_pressure, io_pressure] = pool.pressure.map(share);
    let periods = pool.periods.filter(|(all, _)| *all > 0);
    let (longest_ms, longest_script) = demand.longest.map(|it| (it.ms, it.script)).unzip();
    PoolStanding {
        pool: pool.id,
        name: pool.name,
        tenant: pool.tenant,
        state: pool.state.word().into(),
        waiting: demand.waiting,
        under_way: demand.under_way,
        pid: pool.pid,
        processes: pool.processes,
        processes_max: None,
        starts: pool.starts,
        starts_failed: pool.starts_failed,
        start_p50_ms: pool.start_p50_ms,
        start_p99_ms: pool.start_p99_ms,
        cpu_us: pool.cpu_us,
        throttled_share: periods.map(|(all, ran_out)| ran_out as f64 / all as f64),
        cpu_pressure,
        memory_pressure,
        io_pressure,
        memory_bytes: pool.memory_bytes,
        longest_ms,
        longest_script: longest_script.unwrap_or_default(),
        mails: pool.mails,
        mails_unsent: pool.mails_unsent,
        failure: pool.failure,
        retry_ms: pool.retry_ms,
    }
}

fn table(pools: &[PoolStanding]) -> String {
    let dash = || "-".to_owned();
    let or_dash = |value: Option<u64>, spell: fn(u64) -> String| value.map_or_else(dash, spell);
    let some = |number: u64| Some(number).filter(|number| *number > 0);
    let percent = |share: Option<f64>| share.map_or_else(dash, percent);
    let spelt = |ms: u64| micros(ms.saturating_mul(1_000));
    let rows = pools.iter().map(|pool| {
        let pressure = [pool.cpu_pressure, pool.memory_pressure, pool.io_pressure];
        let pressure = pressure.into_iter().flatten().reduce(f64::max);
        vec![
            pool.name.clone(),
            pool.tenant.clone(),
            pool.state.to_string(),
            count(pool.waiting),
            count(pool.under_way),
            processes(pool),
            count(pool.starts),
            count(pool.starts_failed),
            or_dash(pool.start_p50_ms, spelt),
            or_dash(pool.start_p99_ms, spelt),
            or_dash(pool.cpu_us, micros),
            percent(pool.throttled_share),
            or_dash(pool.memory_bytes, bytes),
            percent(pressure),
            or_dash(pool.longest_ms, spelt),
            or_dash(some(pool.mails), count),
            or_dash(some(pool.mails_unsent), count),
        ]
    });
    let heads = [
        "pool",
        "tenant",
        "state",
        "waiting",
        "under way",
        "processes",
        "starts",
        "failed",
        "p50",
        "p99",
        "cpu",
        "throttled",
        "memory",
        "pressure",
        "longest",
        "mails",
        "unsent",
    ];
    let mut out = String::new();
    filled(&heads, rows.collect(), &mut out);
    // Writing to memory does not fail, here and below.
    for pool in pools.iter().filter(|pool| !pool.longest_script.is_empty()) {
        let (name, script) = (&pool.name, pool.longest_script.escape_debug());
        let _ = writeln!(out, "{name}: longest in {script}");
    }
    for pool in pools.iter().filter(|pool| !pool.failure.is_empty()) {
        let (name, failure) = (&pool.name, pool.failure.escape_debug());
        let again = pool.retry_ms.map(spelt);
        let again = again.map_or_else(String::new, |it| format!(" (again in {it})"));
        let _ = writeln!(out, "{name}: {failure}{again}");
    }
    out
}

fn processes(pool: &PoolStanding) -> String {
    let there = count(pool.processes.into());
    match pool.processes_max {
        Some(most) => format!("{there} of {most}"),
        None => there,
    }
}

/// A grid of the columns in which some row says something.
fn filled(heads: &[&str], mut rows: Vec<Vec<String>>, out: &mut String) {
    let says = |at: usize| {
        rows.iter()
            .any(|row| row.get(at).is_some_and(|it| it != "-"))
    };
    let shown: Vec<bool> = (0..heads.len()).map(says).collect();
    for row in &mut rows {
        let mut shown = shown.iter();
        row.retain(|_| shown.next().is_some_and(|shown| *shown));
    }
    let heads = heads.iter().zip(&shown).filter(|(_, shown)| **shown);
    let heads: Vec<&str> = heads.map(|(head, _)| *head).collect();
    grid(&heads, rows, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_a_figure_are_left_out_and_words_of_pools_stay_in_their_line() {
        let pool = |throttled_share, script: &str| PoolStanding {
            name: "php of a".to_owned(),
            tenant: "a".to_owned(),
            state: "warm".into(),
            processes: 2,
            processes_max: Some(8),
            throttled_share,
            longest_ms: Some(2_500),
            longest_script: script.to_owned(),
            failure: "it\nended".to_owned(),
            retry_ms: Some(1_000),
            ..PoolStanding::default()
        };
        let page = table(&[pool(Some(0.25), "/srv/a\nb.php"), pool(None, "")]);
        assert_eq!(
            page,
            "\npool      tenant  state  waiting  under way  processes  starts  failed  throttled  longest\n\
             php of a       a   warm        0          0     2 of 8       0       0     25.0 %    2.5 s\n\
             php of a       a   warm        0          0     2 of 8       0       0          -    2.5 s\n\
             php of a: longest in /srv/a\\nb.php\n\
             php of a: it\\nended (again in 1 s)\n\
             php of a: it\\nended (again in 1 s)\n"
        );
    }
}
