//! The machines of a fleet, for `nagaya fleet`: how each is, where its configuration differs, and what all have leased.
//!
//! The idea: each has told the store of itself; whoever may write there may lie. So texts are cut and printable, and a digest
//! is compared and nothing else. What most machines have is what the others differ from; of two it is what this one has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use config::model::Fleet;
use control::{FleetLease, FleetMachine, FleetMachines, FleetRate};
use ipc::fleet::{DrainOrder, MachineReport, OrderOutcome};
use limits::{Concurrent, Definition, Keyed};

use super::fleet;
use super::printable::printable;
use super::table::{count, grid};
use crate::fleet::inquiry::{LEASES_MAX, REPORT_PAUSE};
use crate::worker::Shared;

/// Characters of a version, of a digest, of a part's name and of a limit's.
const VERSION_CHARS_MAX: usize = 32;
const DIGEST_CHARS_MAX: usize = 12;
const PART_CHARS_MAX: usize = 32;
const LIMIT_CHARS_MAX: usize = 200;
/// Parts of a configuration, of one machine and of all.
const PARTS_MAX: usize = 64;
/// Requests a second that are believed.
const PER_S_MAX: f64 = 1e9;
/// Limits and machines of one that are shown.
const LIMITS_SHOWN_MAX: usize = 50;
const MACHINES_SHOWN_MAX: usize = 8;

const NO_FLEET: &str = "the configuration in force has no `[fleet]`";

/// Answers `fleet`, with `json` after it or not.
pub(crate) fn machines(shared: &Shared, is_json: bool) -> String {
    match collect(shared) {
        Ok((of, _)) if is_json => control::json(&of),
        Ok((of, store)) => table(&of, &store),
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
    let Some(own) = (shared.generation()).and_then(|it| it.limits.machine.clone()) else {
        return format!("error: {NO_FLEET}\n");
    };
    match shared.fleet.list(Some(order)).map(|(outcome, _)| outcome) {
        Ok(OrderOutcome::Kept) => "done\n".to_owned(),
        Ok(OrderOutcome::Unknown) => {
            format!("error: no machine of the fleet is called `{machine}`\n")
        }
        Ok(OrderOutcome::Several) => format!(
            "error: several machines are called `{machine}`, and all would be drained: give each a `machine` of its own in [fleet]\n"
        ),
        // This machine needs no store to hear of it.
        Err(why) if own == machine => {
            shared.fleet.order(is_drained);
            format!("here: {why}\n")
        }
        Err(why) => format!("undone: {why}\n"),
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

/// The machines, and how the store is, in words.
fn collect(shared: &Shared) -> Result<(FleetMachines, String), String> {
    let lease = shared.generation().and_then(|it| it.limits.fleet);
    let (Some(fleet), Some(rules)) = (fleet::collect(shared), lease) else {
        return Err(NO_FLEET.to_owned());
    };
    let (_, reports) = shared.fleet.list(None)?;
    let mut machines: Vec<_> = reports.into_iter().map(machine).collect();
    compare(&mut machines);
    let words = fleet::store(&fleet);
    let of = FleetMachines {
        store: fleet.store,
        lease_s: rules.lease.as_secs_f64(),
        limits: sizes(shared, &machines),
        machines,
    };
    Ok((of, words))
}

/// What the limits that machines tell of are here.
fn sizes(shared: &Shared, machines: &[FleetMachine]) -> BTreeMap<String, String> {
    let leases = machines.iter().flat_map(|it| &it.leases);
    let rates = machines.iter().flat_map(|it| &it.rates);
    let names = leases.map(|it| it.limit.as_str());
    let names: BTreeSet<&str> = names.chain(rates.map(|it| it.limit.as_str())).collect();
    let generation = shared.generation();
    let definitions = generation.iter().flat_map(|it| it.limits.definitions());
    let told = definitions.filter(|it| names.contains(it.identity.as_str()));
    told.map(|it| (it.identity.clone(), size(&shared.limits.in_force(it).0)))
        .collect()
}

fn size(of: &Definition) -> String {
    let size = match (of.concurrent, of.rate) {
        (Some(Concurrent::Fixed(permits)), _) => count(permits.into()),
        (_, Some(rate)) => rate.to_string(),
        _ => "-".to_owned(),
    };
    match of.keyed {
        Keyed::Fixed => size,
        Keyed::Dynamic => format!("{size} a key"),
    }
}

/// What is made of a report.
fn machine(of: MachineReport) -> FleetMachine {
    let told = FleetMachine::of_json(&of.report).unwrap_or_default();
    let digests = told.digests.into_iter().take(PARTS_MAX);
    let digests = digests.map(|(part, digest)| {
        let part = printable(&part, PART_CHARS_MAX);
        (part, printable(&digest, DIGEST_CHARS_MAX))
    });
    let leases = told.leases.into_iter().take(LEASES_MAX);
    let leases = leases.map(|it| FleetLease {
        limit: printable(&it.limit, LIMIT_CHARS_MAX),
        ..it
    });
    let rates = told.rates.into_iter().take(LEASES_MAX);
    let rates = rates.map(|it| FleetRate {
        limit: printable(&it.limit, LIMIT_CHARS_MAX),
        begun_per_s: it.begun_per_s.clamp(0.0, PER_S_MAX),
        came_per_s: it.came_per_s.clamp(0.0, PER_S_MAX),
        queued: it.queued,
    });
    FleetMachine {
        machine: of.machine,
        here: of.is_here,
        heard_ago_s: of.heard_ms.map(|ms| ms as f64 / 1e3),
        to_drain: of.is_drained,
        namesakes: of.has_namesake,
        version: printable(&told.version, VERSION_CHARS_MAX),
        digests: digests.collect(),
        differs: Vec::new(),
        leases: leases.collect(),
        rates: rates.collect(),
        ..told
    }
}

/// Notes which parts of each machine are not what most of those have that are there.
fn compare(machines: &mut [FleetMachine]) {
    let digests = machines.iter().flat_map(|it| it.digests.keys().cloned());
    let parts: BTreeSet<String> = digests.collect();
    for part in parts.into_iter().take(PARTS_MAX) {
        let mut votes = BTreeMap::<Option<String>, (usize, bool)>::new();
        let tell = |it: &&FleetMachine| !it.is_lost() && !it.digests.is_empty();
        for it in machines.iter().filter(tell) {
            let vote = votes.entry(it.digests.get(&part).cloned()).or_default();
            *vote = (vote.0 + 1, vote.1 || it.here);
        }
        let Some((most, _)) = votes.into_iter().max_by_key(|(_, vote)| *vote) else {
            continue;
        };
        for it in machines.iter_mut().filter(|it| !it.digests.is_empty()) {
            if it.digests.get(&part) != most.as_ref() {
                it.differs.push(part.clone());
            }
        }
    }
}

fn table(of: &FleetMachines, store: &str) -> String {
    let (lease_s, pause_s) = (of.lease_s, REPORT_PAUSE.as_secs());
    let mut out =
        format!("{store} · lease {lease_s} s · machines tell of themselves every {pause_s} s\n");
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
    // Writing to memory does not fail.
    for it in &of.machines {
        let name = &it.machine;
        if it.namesakes {
            let advice = "give each a `machine` of its own in [fleet]";
            let _ = writeln!(out, "\nseveral machines are called {name}: {advice}");
        }
        if !it.differs.is_empty() {
            let digest = |part| it.digests.get(part).map_or("-", String::as_str);
            let parts = it.differs.iter();
            let parts: Vec<_> = parts.map(|it| format!("{it} {}", digest(it))).collect();
            let _ = writeln!(out, "\n{name} differs: {}", parts.join(", "));
        }
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

/// What is leased of each limit, what came to each rate, and where; of machines that are there.
fn limits(of: &FleetMachines, out: &mut String) {
    let (mut leases, mut rates) = (Rows::default(), Rows::default());
    for it in of.machines.iter().filter(|it| !it.is_lost()) {
        for lease in &it.leases {
            let own = [lease.leased, lease.in_flight, lease.queued].map(|it| it as f64);
            leases.add(&lease.limit, &it.machine, own);
        }
        for rate in &it.rates {
            let own = [rate.begun_per_s, rate.came_per_s, rate.queued as f64];
            rates.add(&rate.limit, &it.machine, own);
        }
    }
    let heads = [
        "limit",
        "permits",
        "held",
        "in flight",
        "waiting",
        "by machine",
    ];
    grid(&heads, leases.cells(of, whole), out);
    let heads = [
        "limit",
        "rate",
        "began/s",
        "came/s",
        "waiting",
        "by machine",
    ];
    grid(&heads, rates.cells(of, tenths), out);
}

/// Figures of limits by machine.
#[derive(Default)]
struct Rows<'a>(BTreeMap<&'a str, Vec<(&'a str, [f64; 3])>>);

impl<'a> Rows<'a> {
    fn add(&mut self, limit: &'a str, machine: &'a str, own: [f64; 3]) {
        self.0.entry(limit).or_default().push((machine, own));
    }

    fn cells(&self, of: &FleetMachines, told: fn(f64) -> String) -> Vec<Vec<String>> {
        let row = |(name, own): (&&str, &Vec<(&str, [f64; 3])>)| {
            let mut sums = [0.0; 3];
            for (_, own) in own {
                for (sum, own) in sums.iter_mut().zip(own) {
                    *sum += own;
                }
            }
            let shown = own.iter().take(MACHINES_SHOWN_MAX);
            let shown =
                shown.map(|(machine, own)| format!("{machine} {}", own.map(told).join("/")));
            let more = own.len().saturating_sub(MACHINES_SHOWN_MAX);
            let more = (more > 0).then(|| format!("{more} more"));
            let by_machine: Vec<_> = shown.chain(more).collect();
            let size = of.limits.get(*name).map_or("-", String::as_str);
            let cells = [(*name).to_owned(), size.to_owned()].into_iter();
            let cells = cells.chain(sums.map(told));
            cells.chain([by_machine.join(", ")]).collect()
        };
        self.0.iter().take(LIMITS_SHOWN_MAX).map(row).collect()
    }
}

fn whole(figure: f64) -> String {
    count(figure as u64)
}

fn tenths(figure: f64) -> String {
    match figure < 10.0 && figure.fract() > 0.0 {
        true => format!("{figure:.1}"),
        false => whole(figure.round()),
    }
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
            has_namesake: false,
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
            rates: vec![FleetRate {
                limit: "logins".to_owned(),
                begun_per_s: 1.5,
                came_per_s: 20.25,
                queued: 1,
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
        // What one has alone differs, too.
        two[1].digests.insert("log".to_owned(), "c".to_owned());
        two.iter_mut().for_each(|it| it.differs.clear());
        compare(&mut two);
        two[1].namesakes = true;
        let limits = [("shop", "12"), ("logins", "3/s a key")];
        let limits = limits.map(|(name, size)| (name.to_owned(), size.to_owned()));
        let of = FleetMachines {
            lease_s: 5.0,
            limits: limits.into(),
            machines: two.into(),
            ..FleetMachines::default()
        };
        let shown = table(&of, "store answers");
        for told in [
            "store answers · lease 5 s · machines tell of themselves every 3 s\n",
            "web2 differs: limits b, log c",
            "several machines are called web2",
            "web1 5/4/3, web2 5/4/3",
            "3/s a key",
            "web1 1.5/20/1, web2 1.5/20/1",
        ] {
            assert!(shown.contains(told), "{told}: {shown}");
        }
    }

    #[test]
    fn what_is_made_up_is_printable_and_bounded() {
        let mut lied = told("\u{1b}[2J");
        lied.version = "\u{202e}x\n".repeat(1_000);
        lied.digests.insert("\u{7}".to_owned(), String::new());
        let lease = FleetLease {
            limit: "\u{1b}]0;x\u{7}".repeat(99),
            leased: u64::MAX,
            ..FleetLease::default()
        };
        lied.leases = vec![lease; 100];
        let rate = FleetRate {
            limit: "\u{7}".repeat(999),
            begun_per_s: f64::MAX,
            came_per_s: -1.0,
            queued: u64::MAX,
        };
        lied.rates = vec![rate; 100];
        for number in 0..1_000 {
            lied.digests.insert(format!("{number}\u{7}"), String::new());
        }
        let made_up = ["", "[", "{\"version\":1}", "{\"leases\":[{\"leased\":-1}]}"];
        let made_up = made_up.map(|text| MachineReport {
            report: text.to_owned(),
            ..report("web3", 0, &lied)
        });
        let reports = [report("web1", 0, &lied), report("web2", 0, &lied)];
        let mut machines: Vec<_> = reports.into_iter().chain(made_up).map(machine).collect();
        compare(&mut machines);
        let of = FleetMachines {
            machines,
            ..FleetMachines::default()
        };
        let shown = table(&of, "");
        let is_odd = |it: char| it != '\n' && it.is_control() || it == '\u{202e}';
        assert!(!shown.contains(is_odd) && shown.len() < 20_000, "{shown}");
    }
}
