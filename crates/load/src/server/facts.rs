//! What a server spent, as words for reports.

use std::collections::BTreeMap;
use std::time::Duration;

use super::reading::{Reading, TreeFigures};
use super::spent::{Spent, ratio};
use report::units;

/// Rows for a report: what was spent, and what there is at the end, for so many requests. What was
/// not read has no row, and what did not happen has none either.
pub fn facts(spent: &Spent, after: &Reading, requests: u64) -> Vec<(String, String)> {
    let mut rows = Rows(Vec::new());
    if let Some(tree) = &spent.tree {
        rows.processor(tree, spent, requests);
        rows.memory(tree, after);
        rows.quota(tree, spent);
        rows.sockets(tree);
    }
    rows.machine(spent);
    rows.0
}

struct Rows(Vec<(String, String)>);

impl Rows {
    fn add(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    fn processor(&mut self, tree: &TreeFigures, spent: &Spent, requests: u64) {
        self.add(
            "Server CPU",
            format!("{} ({:.2} cores)", time(tree.cpu), spent.cores_used()),
        );
        if requests > 0 {
            let each_us = tree.cpu.as_secs_f64() * 1e6 / requests as f64;
            self.add("Server CPU per request", units::micros(each_us));
            if !tree.cpu.is_zero() {
                let rate = requests as f64 / tree.cpu.as_secs_f64();
                self.add("Requests per server CPU second", units::figure(rate));
            }
            let switches = |count: u64| format!("{:.2}", count as f64 / requests as f64);
            let text = format!(
                "{} asked for, {} forced",
                switches(tree.voluntary_switches),
                switches(tree.involuntary_switches)
            );
            self.add("Context switches per request", text);
        }
        let waiting = ratio(tree.run_queue, spent.time);
        let text = format!("{waiting:.2} threads on average");
        self.add("Waiting for a core", text);
    }

    fn memory(&mut self, tree: &TreeFigures, after: &Reading) {
        let text = format!(
            "{}, {}",
            counted(tree.processes, "process", "processes"),
            counted(tree.threads, "thread", "threads")
        );
        self.add("Processes", text);
        let read_later = after.tree.as_ref().and_then(|tree| tree.pss_bytes);
        if let Some(bytes) = tree.pss_bytes.or(read_later) {
            self.add("Memory (PSS)", units::bytes(bytes as f64));
        }
        if tree.peak_bytes > 0 {
            self.add(
                "Peaks of resident memory",
                units::bytes(tree.peak_bytes as f64),
            );
        }
    }

    fn quota(&mut self, tree: &TreeFigures, spent: &Spent) {
        if let Some(quota) = tree.throttling {
            let text = format!(
                "{} of {}, {:.2} threads stood still on average",
                units::count(quota.throttled),
                counted(quota.periods, "period", "periods"),
                ratio(quota.time, spent.time)
            );
            self.add("Throttled by its CPU quota", text);
        }
    }

    fn sockets(&mut self, tree: &TreeFigures) {
        if !tree.sockets.is_empty() {
            let cut = if tree.sockets_are_cut {
                ", and more"
            } else {
                ""
            };
            self.add("Sockets", format!("{}{cut}", states(&tree.sockets)));
        }
    }

    fn machine(&mut self, spent: &Spent) {
        let pressures = [
            ("CPU", spent.cpu_pressure),
            ("memory", spent.memory_pressure),
            ("disk", spent.io_pressure),
        ];
        let known = pressures.into_iter().filter_map(|(of, share)| {
            let share = share?;
            Some(format!("{of} {}", units::share(share)))
        });
        let known: Vec<String> = known.collect();
        if !known.is_empty() {
            self.add("Pressure on the machine", known.join(", "));
        }
        if spent.steal_share >= 0.001 {
            self.add("Taken by the hypervisor", units::share(spent.steal_share));
        }
        if let Some((entries, room)) = spent.conntrack.filter(|(entries, _)| *entries > 0) {
            let fill = units::share(entries as f64 / room.max(1) as f64);
            let (entries, room) = (units::count(entries), units::count(room));
            self.add(
                "Connection tracker",
                format!("{entries} of {room} ({fill})"),
            );
        }
        if spent.time_wait > 0 {
            self.add("TIME_WAIT on the machine", units::count(spent.time_wait));
        }
        if spent.retransmits > 0 {
            self.add("TCP segments sent again", units::count(spent.retransmits));
        }
        if spent.started > 0 {
            let text = format!("{} (processes and threads)", units::count(spent.started));
            self.add("Started on the machine", text);
        }
        self.add("Load average", format!("{:.2}", spent.load1));
    }
}

fn states(sockets: &BTreeMap<String, u64>) -> String {
    let all = sockets
        .iter()
        .map(|(state, count)| format!("{} {state}", units::count(*count)));
    all.collect::<Vec<_>>().join(", ")
}

fn counted(count: u64, one: &str, many: &str) -> String {
    let word = if count == 1 { one } else { many };
    format!("{} {word}", units::count(count))
}

fn time(time: Duration) -> String {
    units::micros(time.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::reading::{MachineReading, Throttling};
    use super::*;

    fn spent() -> Spent {
        Spent {
            time: Duration::from_secs(2),
            cores: 2,
            tree: Some(TreeFigures {
                cpu: Duration::from_millis(1_500),
                run_queue: Duration::from_millis(500),
                processes: 101,
                threads: 1,
                pss_bytes: Some(20 * 1024 * 1024),
                peak_bytes: 3 << 30,
                voluntary_switches: 12_000,
                involuntary_switches: 300,
                throttling: Some(Throttling {
                    periods: 20,
                    throttled: 5,
                    time: Duration::from_secs(1),
                }),
                sockets: BTreeMap::from([("ESTABLISHED".into(), 10), ("LISTEN".into(), 1)]),
                sockets_are_cut: false,
            }),
            cpu_pressure: Some(0.5),
            io_pressure: Some(0.0),
            conntrack: Some((1_000, 65_536)),
            load1: 1.25,
            ..Spent::default()
        }
    }

    fn after() -> Reading {
        Reading {
            at: Instant::now(),
            tree: None,
            machine: MachineReading::default(),
        }
    }

    #[test]
    fn what_was_spent_is_put_into_words() {
        let rows = facts(&spent(), &after(), 12_000);
        let lines: Vec<String> = rows
            .iter()
            .map(|(name, it)| format!("{name}: {it}"))
            .collect();
        assert_eq!(
            lines,
            [
                "Server CPU: 1.50 s (0.75 cores)",
                "Server CPU per request: 125 µs",
                "Requests per server CPU second: 8,000",
                "Context switches per request: 1.00 asked for, 0.03 forced",
                "Waiting for a core: 0.25 threads on average",
                "Processes: 101 processes, 1 thread",
                "Memory (PSS): 20 MiB",
                "Peaks of resident memory: 3 GiB",
                "Throttled by its CPU quota: 5 of 20 periods, 0.50 threads stood still on average",
                "Sockets: 10 ESTABLISHED, 1 LISTEN",
                "Pressure on the machine: CPU 50 %, disk 0 %",
                "Connection tracker: 1,000 of 65,536 (1.53 %)",
                "Load average: 1.25",
            ]
        );
    }

    #[test]
    fn no_requests_and_no_server_are_said_without_nonsense() {
        let mut spent = spent();
        let rows = facts(&spent, &after(), 0);
        assert!(
            rows.iter().all(|(name, _)| !name.contains("per request")),
            "{rows:?}"
        );
        spent.tree = None;
        spent.time = Duration::ZERO;
        let rows = facts(&spent, &after(), 5);
        let text = format!("{rows:?}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
