//! The machines of a fleet, for `nagaya fleet`: how each is, where its configuration differs, and what all have leased.
//!
//! The idea: each has told the store of itself; whoever may write there may lie. So texts are cut and printable, and a digest
//! is compared and nothing else. What most machines have is what the others differ from; of two it is what this one has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use config::DIGEST_PARTS;
use config::model::Fleet;
use control::{FleetLease, FleetMachine, FleetMachines};
use ipc::fleet::{DrainOrder, MachineReport};

use super::fleet;
use super::table::{count, grid};
use crate::fleet::inquiry::LEASES_MAX;
use crate::worker::Shared;

/// Characters of a version, of a digest and of a limit's name.
const VERSION_CHARS_MAX: usize = 32;
const DIGEST_CHARS_MAX: usize = 12;
const LIMIT_CHARS_MAX: usize = 200;
/// Limits and machines of one that are shown.
const LIMITS_SHOWN_MAX: usize = 50;
const MACHINES_SHOWN_MAX: usize = 8;

/// Answers `fleet`, with `json` after it or not.
pub(crate) fn machines(shared: &Shared, is_json: bool) -> String {
    match collect(shared, None) {
        Ok(of) if is_json => control::json(&of),
        Ok(of) => table(&of),
        Err(why) => format!("error: {why}\n"),
    }
}

/// Has a machine drained, or serve again.
pub(crate) fn drain(shared: &Shared, machine: &str, is_drained: bool) -> String {
    let machine = machine.trim();
    if !Fleet::is_machine_name(machine) {
        return "error: a machine's name has letters, digits, `-`, `_` and `.`\n".to_owned();
    }
    let order = DrainOrder {
        machine: machine.to_owned(),
        is_drained,
    };
    match collect(shared, Some(order)) {
        Ok(_) => "done\n".to_owned(),
        Err(why) => format!("error: {why}\n"),
    }
}

/// Whether this machine is drained, in the words of agents.
pub(crate) fn drained(shared: &Shared) -> String {
    let word = match shared.fleet.is_drained() {
        true => "drain\n",
        false => "up\n",
    };
    word.to_owned()
}

fn collect(shared: &Shared, order: Option<DrainOrder>) -> Result<FleetMachines, String> {
    let lease = shared.generation().and_then(|it| it.limits.fleet);
    let (Some(fleet), Some(rules)) = (fleet::collect(shared), lease) else {
        return Err("the configuration in force has no `[fleet]`".to_owned());
    };
    let reports = shared.fleet.list(order)?;
    let mut machines: Vec<_> = reports.into_iter().map(machine).collect();
    compare(&mut machines);
    Ok(FleetMachines {
        store: fleet.store,
        lease_s: rules.lease.as_secs_f64(),
        machines,
    })
}

/// What is made of a report.
fn machine(of: MachineReport) -> FleetMachine {
    let told = FleetMachine::of_json(&of.report).unwrap_or_default();
    let mut digests = told.digests;
    digests.retain(|part, _| DIGEST_PARTS.contains(&part.as_str()));
    for digest in digests.values_mut() {
        *digest = printable(digest, DIGEST_CHARS_MAX);
    }
    let leases = told.leases.into_iter().take(LEASES_MAX);
    let leases = leases.map(|it| FleetLease {
        limit: printable(&it.limit, LIMIT_CHARS_MAX),
        ..it
    });
    FleetMachine {
        machine: of.machine,
        here: of.is_here,
        heard_ago_s: of.heard_ms.map(|ms| ms as f64 / 1e3),
        to_drain: of.is_drained,
        version: printable(&told.version, VERSION_CHARS_MAX),
        digests,
        differs: Vec::new(),
        leases: leases.collect(),
        ..told
    }
}

/// So much of a text, without what a terminal would take for something else.
fn printable(text: &str, chars_max: usize) -> String {
    let is_plain = |it: char| it.escape_debug().len() == 1 || "\"'\\".contains(it);
    let chars = text.chars().take(chars_max);
    chars
        .map(|it| if is_plain(it) { it } else { '?' })
        .collect()
}

/// Notes which parts of each machine are not what most of those have that are there.
fn compare(machines: &mut [FleetMachine]) {
    for part in DIGEST_PARTS {
        let mut votes = BTreeMap::<String, (usize, bool)>::new();
        for it in machines.iter().filter(|it| !it.is_lost()) {
            if let Some(digest) = it.digests.get(part) {
                let vote = votes.entry(digest.clone()).or_default();
                *vote = (vote.0 + 1, vote.1 || it.here);
            }
        }
        let Some((most, _)) = votes.into_iter().max_by_key(|(_, vote)| *vote) else {
            continue;
        };
        for it in machines.iter_mut() {
            let digest = it.digests.get(part);
            if digest.is_some_and(|digest| *digest != most) {
                it.differs.push(part.to_owned());
            }
        }
    }
}

fn table(of: &FleetMachines) -> String {
    let mut out = format!("store {} · lease {} s\n", of.store, of.lease_s);
    let rows = of.machines.iter().map(|it| {
        let here = if it.here { " (here)" } else { "" };
        let heard = it.heard_ago_s;
        let heard = heard.map_or_else(|| "-".to_owned(), |ago| format!("{ago:.0} s ago"));
        let differs = match (it.digests.is_empty(), it.differs.is_empty()) {
            (true, _) => "?".to_owned(),
            (false, true) => "-".to_owned(),
            (false, false) => it.differs.join(", "),
        };
        let slowest = it.slowest_answer_s;
        vec![
            format!("{}{here}", it.machine),
            state(it).to_owned(),
            heard,
            it.version.clone(),
            differs,
            count(it.in_flight),
            slowest.map_or_else(|| "-".to_owned(), |s| format!("{:.1} ms", s * 1e3)),
        ]
    });
    let heads = [
        "machine",
        "state",
        "heard",
        "version",
        "differs",
        "requests",
        "slowest answer",
    ];
    grid(&heads, rows.collect(), &mut out);
    limits(of, &mut out);
    for it in of.machines.iter().filter(|it| !it.differs.is_empty()) {
        let parts = it.differs.iter().filter_map(|part| {
            let digest = it.digests.get(part)?;
            Some(format!("{part} {digest}"))
        });
        let parts: Vec<_> = parts.collect();
        // Writing to memory does not fail.
        let _ = writeln!(out, "\n{} differs: {}", it.machine, parts.join(", "));
    }
    out
}

fn state(of: &FleetMachine) -> &'static str {
    match (of.is_lost(), of.to_drain, of.drained) {
        (true, true, _) => "lost, to be drained",
        (true, false, _) => "lost",
        (false, true, false) => "to be drained",
        (false, _, true) if of.in_flight > 0 => "drains",
        (false, _, true) => "drained",
        (false, false, false) => "serves",
    }
}

/// What is leased of each limit, and by whom; of machines that are there.
fn limits(of: &FleetMachines, out: &mut String) {
    let there = || of.machines.iter().filter(|it| !it.is_lost());
    let names: BTreeSet<&str> = there()
        .flat_map(|it| &it.leases)
        .map(|it| it.limit.as_str())
        .collect();
    let rows = names.into_iter().map(|name| {
        let mut sums = [0_u64; 3];
        let mut by_machine = Vec::new();
        for it in there() {
            for lease in it.leases.iter().filter(|lease| lease.limit == name) {
                let own = [lease.leased, lease.in_flight, lease.queued];
                for (sum, own) in sums.iter_mut().zip(own) {
                    *sum = sum.saturating_add(own);
                }
                let own = own.map(count).join("/");
                by_machine.push(format!("{} {own}", it.machine));
            }
        }
        let more = by_machine.len().saturating_sub(MACHINES_SHOWN_MAX);
        by_machine.truncate(MACHINES_SHOWN_MAX);
        if more > 0 {
            by_machine.push(format!("{more} more"));
        }
        let cells = std::iter::once(name.to_owned()).chain(sums.map(count));
        let cells = cells.chain([by_machine.join(", ")]);
        cells.collect::<Vec<String>>()
    });
    let rows = rows.take(LIMITS_SHOWN_MAX).collect();
    let heads = ["limit", "held", "in flight", "waiting", "by machine"];
    grid(&heads, rows, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(machine: &str, heard_ms: u64, told: &FleetMachine) -> MachineReport {
        MachineReport {
            machine: machine.to_owned(),
            is_here: machine == "web1",
            heard_ms: Some(heard_ms),
            is_drained: false,
            report: control::json(told),
        }
    }

    fn told(limits: &str) -> FleetMachine {
        FleetMachine {
            version: "1".to_owned(),
            digests: [("limits", limits), ("sites", "5")]
                .map(|(part, digest)| (part.to_owned(), digest.to_owned()))
                .into(),
            leases: vec![FleetLease {
                limit: "shop".to_owned(),
                keys: 1,
                leased: 5,
                in_flight: 4,
                queued: 3,
            }],
            ..FleetMachine::default()
        }
    }

    #[test]
    fn a_machine_is_told_by_the_part_in_which_it_differs_from_most() {
        let all = [("web1", "a"), ("web2", "b"), ("web3", "b")];
        let of = all.map(|(name, limits)| machine(report(name, 7, &told(limits))));
        let mut three = of.clone();
        compare(&mut three);
        assert_eq!(three.map(|it| it.differs.len()), [1, 0, 0]);
        let [one, other, _] = of;
        let mut two = [one, other];
        compare(&mut two);
        assert_eq!(two[0].differs.len(), 0);
        assert_eq!(two[1].differs, ["limits"]);
        let shown = table(&FleetMachines {
            store: "answers".into(),
            lease_s: 5.0,
            machines: two.into(),
        });
        assert!(shown.contains("web2 differs: limits b"), "{shown}");
        assert!(shown.contains("web1 5/4/3, web2 5/4/3"), "{shown}");
    }

    #[test]
    fn what_is_made_up_is_printable_and_bounded() {
        let mut lied = told("\u{1b}[2J");
        lied.version = "\u{202e}x\n".repeat(1_000);
        lied.digests.insert("\u{7}".to_owned(), String::new());
        let lease = FleetLease {
            limit: "\u{1b}]0;x\u{7}".repeat(9_999),
            leased: u64::MAX,
            ..FleetLease::default()
        };
        lied.leases = vec![lease; 1_000];
        let made_up = ["", "[", "{\"version\":1}", "{\"leases\":[{\"leased\":-1}]}"];
        let made_up = made_up.map(|text| MachineReport {
            report: text.to_owned(),
            ..report("web3", 0, &lied)
        });
        let reports = [report("web1", 0, &lied), report("web2", 0, &lied)];
        let mut machines: Vec<_> = reports.into_iter().chain(made_up).map(machine).collect();
        compare(&mut machines);
        let shown = table(&FleetMachines {
            machines,
            ..FleetMachines::default()
        });
        let is_odd = |it: char| it != '\n' && it.is_control() || it == '\u{202e}';
        assert!(!shown.contains(is_odd) && shown.len() < 20_000, "{shown}");
    }
}
