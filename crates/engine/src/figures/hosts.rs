//! How directories stand, and what is known of one host, for operators.

use std::fmt::Write as _;
use std::time::Instant;

use control::Directory;
use ipc::directory::{HOST_BYTES_MAX, Row};

use super::directories::collect;
use super::table::{bytes, count, grid};
use crate::directory::entry::EntryState;
use crate::directory::row;
use crate::generation::Generation;
use crate::worker::Shared;

/// Puts them into lines.
fn table(figures: &[Directory], out: &mut String) {
    let rows = figures.iter().map(|it| {
        let state = if it.linked { "up" } else { "not there" };
        vec![
            it.directory.clone(),
            state.to_owned(),
            count(it.hosts as u64),
            bytes(it.bytes as u64),
            count(it.asked),
            count(it.rows),
            count(it.missing),
            count(it.wrong),
            count(it.down),
            count(it.gave_up + it.busy),
        ]
    });
    let heads = [
        "directory",
        "process",
        "names",
        "bytes",
        "asked",
        "rows",
        "missing",
        "wrong",
        "down",
        "refused",
    ];
    grid(&heads, rows.collect(), out);
}

/// How directories are, as the server and their process see it.
pub(crate) fn answer(shared: &Shared) -> String {
    let figures = collect(shared);
    if figures.is_empty() {
        return "no directory is configured\n".to_owned();
    }
    let mut out = String::new();
    table(&figures, &mut out);
    for it in &figures {
        let up = match it.answers {
            Some(true) => "answers",
            Some(false) => "does not answer",
            None if it.rows + it.missing + it.down > 0 => "has not said yet how it is",
            None => "was not asked for a host yet",
        };
        let name = &it.directory;
        let ago = it.answered_s;
        let ago = ago.map_or_else(String::new, |s| format!(", last {s:.0} s ago"));
        let snapshot = count(it.snapshot_rows);
        // Writing to memory does not fail, here and below.
        let _ = writeln!(
            out,
            "\n{name}: its source {up}{ago} · {snapshot} rows in the snapshot"
        );
        if let Some(share) = it.hit_share() {
            let share = share * 100.0;
            let _ = writeln!(out, "  looks that found something: {share:.1} %");
        }
        if let (Some(error), Some(ago)) = (&it.error, it.error_s) {
            let error = error.escape_debug();
            let _ = writeln!(out, "  last error, {ago:.0} s ago: {error}");
        }
        for slow in &it.slowest {
            let host = slow.host.escape_debug();
            let _ = writeln!(out, "  slow: {host}, {:.1} ms", slow.us as f64 / 1e3);
        }
    }
    out
}

/// What is known of a host.
pub(crate) fn show(shared: &Shared, host: &str) -> String {
    let rows = &shared.rows;
    let host = host.trim().to_ascii_lowercase();
    let mut out = String::new();
    let generation = shared.generation();
    if let Some(generation) = generation.as_ref().filter(|it| !it.may_be_row(&host)) {
        let destination = generation.destination_of(&host);
        let site = destination.and_then(|it| generation.sites.get(it.site as usize));
        let _ = match site {
            Some(site) => writeln!(out, "a site of the configuration has it: {}", site.name),
            None => writeln!(out, "no site is made of rows"),
        };
    }
    let now_ms = rows.now_ms(Instant::now());
    for (name, entry) in rows.directories.show(&host) {
        let fresh_ms = entry.as_ref().map_or(0, |it| it.fresh_until());
        let fresh_ms = fresh_ms.saturating_sub(now_ms);
        let serves = entry.as_ref().is_some_and(|entry| entry.serves(now_ms));
        let _ = match entry.as_ref().map(|entry| &entry.state) {
            None => writeln!(
                out,
                "{name}: nothing is known of {host:?} here: nobody has asked for it lately"
            ),
            Some(_) if !serves => writeln!(
                out,
                "{name}: nothing of {host:?} serves any more: it was forgotten, or is too old, and is asked for with its next request"
            ),
            Some(EntryState::Missing) => {
                writeln!(out, "{name}: it has no row, for {fresh_ms} ms more")
            }
            Some(EntryState::Wrong(why)) => writeln!(
                out,
                "{name}: its row cannot be used: {}",
                why.escape_debug()
            ),
            Some(EntryState::Row(row)) => {
                let _ = writeln!(
                    out,
                    "{name}: a row from {:?}, fresh for {fresh_ms} ms",
                    row.from
                );
                let mut columns = row.columns.iter();
                let shown = columns.try_for_each(|(column, text)| {
                    writeln!(out, "  {} = {text:?}", column.escape_debug())
                });
                out.extend(generation.iter().map(|it| made(it, (&name, &host), row)));
                shown
            }
        };
    }
    match out.is_empty() {
        true => "error: no directory is configured\n".to_owned(),
        false => out,
    }
}

/// What site a row makes.
fn made(generation: &Generation, (directory, host): (&str, &str), row: &Row) -> String {
    let templates = generation.row_sites.iter();
    let mut templates = templates.filter_map(|it| generation.sites.get(it.site as usize));
    let rows = templates.find_map(|it| it.rows.as_ref().filter(|it| it.name == directory));
    let Some(rows) = rows else {
        return String::new();
    };
    match row::outline(generation, rows, (host, row)) {
        Err(why) => format!("  it cannot be used: {}\n", why.escape_debug()),
        Ok(made) => {
            let plan = made.plan.and_then(|at| generation.plans.get(at));
            let plan = plan.map(|plan| format!(", plan {}", plan.name));
            let root = made.root.map(|(root, owner)| {
                let root = root.path.display().to_string();
                format!(", root {} of uid {owner}", root.escape_debug())
            });
            let (plan, root) = (plan.unwrap_or_default(), root.unwrap_or_default());
            format!("  makes a site of tenant {}{plan}{root}\n", made.tenant)
        }
    }
}

/// A directory that has something of a host, or of any, and whose source does not answer.
fn silent(shared: &Shared, host: Option<&str>) -> Option<String> {
    let rows = &shared.rows;
    let now_ms = rows.now_ms(Instant::now());
    let known = |name: &str| {
        let known = rows.directories.show(host?).into_iter();
        let mut known = known.filter(|(other, _)| other == name);
        Some(known.any(|(_, entry)| entry.is_some_and(|entry| entry.serves(now_ms))))
    };
    let silent = collect(shared).into_iter();
    let mut silent = silent.filter(|it| !it.linked || it.answers == Some(false));
    let found = silent.find(|it| known(&it.directory).unwrap_or(it.hosts > 0));
    found.map(|it| it.directory)
}

/// Forgets a host, or all.
pub(crate) fn forget(shared: &Shared, host: &str) -> String {
    let host = host.trim().to_ascii_lowercase();
    if host.is_empty() || host.len() > HOST_BYTES_MAX {
        return "error: say which host, or --all\n".to_owned();
    }
    let (host, is_anyway) = match host.strip_suffix(" --anyway") {
        Some(host) => (host, true),
        None => (&*host, false),
    };
    let all = host == "--all";
    if let Some(name) = silent(shared, (!all).then_some(host)).filter(|_| !is_anyway) {
        return format!(
            "error: the source of {name} does not answer, so that what is forgotten is answered 503 until it does: say --anyway to forget it\n"
        );
    }
    shared.rows.directories.forget((!all).then_some(host));
    match all {
        true => {
            "nothing is kept of any host: the next request of each waits for its row\n".to_owned()
        }
        false => format!("nothing is kept of {host}: its next request waits for its row\n"),
    }
}
