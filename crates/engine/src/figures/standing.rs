//! How pools stand, for `nagaya pools`, and what operators have done to them.

use std::collections::BTreeSet;

use control::PoolStanding;
use ipc::pools::{self, PoolAnswer, PoolQuestion};

use super::table::{bytes, count, grid, micros};
use crate::generation::Generation;
use crate::worker::Shared;

/// Answers `pools`, with `json` after it or not.
pub(crate) fn pools(shared: &Shared, is_json: bool) -> String {
    match shared.pool_inquiries.ask(PoolQuestion::List) {
        Ok(PoolAnswer::Pools(pools)) => {
            let generation = shared.generation();
            let pools = pools.into_iter().map(|pool| {
                let known = generation.iter().flat_map(|it| it.program_pools.iter());
                let mut known = known.filter(|known| *known.id == *pool.id);
                let waiting = known.next().map_or(0, |known| known.waiting() as u64);
                standing(pool, waiting)
            });
            let pools: Vec<_> = pools.collect();
            match is_json {
                true => control::json(&pools),
                false if pools.is_empty() => "no site has a pool\n".to_owned(),
                false => table(&pools),
            }
        }
        other => unexpected(other),
    }
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
    let ids = match pools_of(&generation, site.trim()) {
        Ok(ids) => ids,
        Err(why) => return format!("error: {why}\n"),
    };
    match shared.pool_inquiries.ask(question(ids)) {
        Ok(PoolAnswer::Begun(pools)) => format!("{pools}\n"),
        other => unexpected(other),
    }
}

fn unexpected(answer: Result<PoolAnswer, String>) -> String {
    match answer {
        Err(why) | Ok(PoolAnswer::Refused(why)) => format!("error: {why}\n"),
        Ok(_) => "error: the spawner answered something else\n".to_owned(),
    }
}

/// The ids of the pools that a site's rules lead to.
fn pools_of(generation: &Generation, name: &str) -> Result<Vec<String>, String> {
    let by_name = || generation.sites.iter().find(|site| *site.name == *name);
    let by_host = || {
        let at = generation.destination_of(&name.to_ascii_lowercase())?.site;
        generation.sites.get(at as usize)
    };
    let site = by_name().or_else(by_host);
    let site = site.ok_or_else(|| format!("there is no site {name}"))?;
    let handlers = site.rules.iter().filter_map(|rule| rule.handler.as_ref());
    let pools: BTreeSet<usize> = handlers.filter_map(|handler| handler.pool()).collect();
    let ids = pools
        .iter()
        .filter_map(|at| generation.program_pools.get(*at));
    let ids: Vec<_> = ids.map(|pool| pool.id.to_string()).collect();
    if ids.is_empty() {
        return Err(format!("site {} has no pool", site.name));
    }
    Ok(ids)
}

fn standing(pool: pools::PoolStanding, waiting: u64) -> PoolStanding {
    PoolStanding {
        pool: pool.id,
        name: pool.name,
        tenant: pool.tenant,
        state: pool.state.word(),
        waiting,
        pid: pool.pid,
        processes: pool.processes,
        starts: pool.starts,
        starts_failed: pool.starts_failed,
        start_p50_ms: pool.start_p50_ms,
        start_p99_ms: pool.start_p99_ms,
        cpu_us: pool.cpu_us,
        throttled_us: pool.throttled_us,
        memory_bytes: pool.memory_bytes,
        failure: pool.failure,
        retry_ms: pool.retry_ms,
    }
}

fn table(pools: &[PoolStanding]) -> String {
    let or_dash =
        |value: Option<u64>, spell: fn(u64) -> String| value.map_or_else(|| "-".to_owned(), spell);
    let millis = |ms: u64| micros(ms.saturating_mul(1_000));
    let rows = pools.iter().map(|pool| {
        vec![
            pool.name.clone(),
            pool.tenant.clone(),
            pool.state.to_owned(),
            count(pool.waiting),
            count(pool.processes.into()),
            count(pool.starts),
            count(pool.starts_failed),
            or_dash(pool.start_p50_ms, millis),
            or_dash(pool.start_p99_ms, millis),
            or_dash(pool.cpu_us, micros),
            or_dash(pool.throttled_us, micros),
            or_dash(pool.memory_bytes, bytes),
        ]
    });
    let heads = [
        "pool",
        "tenant",
        "state",
        "waiting",
        "processes",
        "starts",
        "failed",
        "p50",
        "p99",
        "cpu",
        "throttled",
        "memory",
    ];
    let mut out = String::new();
    grid(&heads, rows.collect(), &mut out);
    for pool in pools.iter().filter(|pool| !pool.failure.is_empty()) {
        let (name, failure) = (&pool.name, pool.failure.escape_debug());
        let again = pool.retry_ms.map(millis);
        let again = again.map_or_else(String::new, |it| format!(" (again in {it})"));
        out.push_str(&format!("{name}: {failure}{again}\n"));
    }
    out
}
