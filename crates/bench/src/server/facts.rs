//! What a server spent, as words for reports.

use std::collections::BTreeMap;
use std::time::Duration;

use super::reading::Reading;
use super::spent::{Spent, TreeSpent, ratio};

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

    fn processor(&mut self, tree: &TreeSpent, spent: &Spent, requests: u64) {
        self.add(
            "Server CPU",
            format!("{} ({:.2} cores)", time_text(tree.cpu), spent.cores_used()),
        );
        if requests > 0 {
            self.add(
                "Server CPU per request",
                time_text(each(tree.cpu, requests)),
            );
            if !tree.cpu.is_zero() {
                let rate = requests as f64 / tree.cpu.as_secs_f64();
                self.add("Requests per server CPU second", count_text(rate));
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

    fn memory(&mut self, tree: &TreeSpent, after: &Reading) {
        let text = format!(
            "{}, {}",
            counted(tree.processes, "process", "processes"),
            counted(tree.threads, "thread", "threads")
        );
        self.add("Processes", text);
        let read_later = after.tree.as_ref().and_then(|tree| tree.pss_bytes);
        if let Some(bytes) = tree.pss_bytes.or(read_later) {
            self.add("Memory (PSS)", bytes_text(bytes));
        }
        if tree.peak_bytes > 0 {
            self.add("Peaks of resident memory", bytes_text(tree.peak_bytes));
        }
    }

    fn quota(&mut self, tree: &TreeSpent, spent: &Spent) {
        if let Some(quota) = tree.throttling {
            let text = format!(
                "{} of {}, {:.2} threads stood still on average",
                quota.throttled,
                counted(quota.periods, "period", "periods"),
                ratio(quota.time, spent.time)
            );
            self.add("Throttled by its CPU quota", text);
        }
    }

    fn sockets(&mut self, tree: &TreeSpent) {
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
            Some(format!("{of} {:.1} %", share * 100.0))
        });
        let known: Vec<String> = known.collect();
        if !known.is_empty() {
            self.add("Pressure on the machine", known.join(", "));
        }
        if spent.steal_share >= 0.001 {
            let text = format!("{:.1} %", spent.steal_share * 100.0);
            self.add("Taken by the hypervisor", text);
        }
        if let Some((entries, room)) = spent.conntrack.filter(|(entries, _)| *entries > 0) {
            let fill = entries as f64 / room.max(1) as f64 * 100.0;
            let text = format!("{entries} of {room} ({fill:.1} %)");
            self.add("Connection tracker", text);
        }
        if spent.time_wait > 0 {
            self.add("TIME_WAIT on the machine", spent.time_wait.to_string());
        }
        if spent.retransmits > 0 {
            self.add("TCP segments sent again", spent.retransmits.to_string());
        }
        if spent.started > 0 {
            let text = format!("{} (processes and threads)", spent.started);
            self.add("Started on the machine", text);
        }
        self.add("Load average", format!("{:.2}", spent.load1));
    }
}

/// The share of one request.
fn each(time: Duration, requests: u64) -> Duration {
    let nanoseconds = time.as_nanos() / u128::from(requests.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

fn states(sockets: &BTreeMap<String, u64>) -> String {
    let all = sockets
        .iter()
        .map(|(state, count)| format!("{count} {state}"));
    all.collect::<Vec<_>>().join(", ")
}

fn counted(count: u64, one: &str, many: &str) -> String {
    let word = if count == 1 { one } else { many };
    format!("{count} {word}")
}

/// A time with three or four digits and its unit.
fn time_text(time: Duration) -> String {
    let nanoseconds = time.as_nanos() as f64;
    match time {
        _ if nanoseconds < 1e6 => format!("{:.1} µs", nanoseconds / 1e3),
        _ if nanoseconds < 1e9 => format!("{:.2} ms", nanoseconds / 1e6),
        _ => format!("{:.2} s", nanoseconds / 1e9),
    }
}

/// An amount of memory with its unit.
pub(super) fn bytes_text(bytes: u64) -> String {
    let kib = bytes as f64 / 1024.0;
    match kib {
        _ if kib < 1024.0 => format!("{kib:.0} KiB"),
        _ if kib < 1024.0 * 1024.0 => format!("{:.1} MiB", kib / 1024.0),
        _ => format!("{:.2} GiB", kib / 1024.0 / 1024.0),
    }
}

/// A count with commas.
fn count_text(count: f64) -> String {
    let digits = format!("{count:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
            tree: Some(TreeSpent {
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
                "Server CPU per request: 125.0 µs",
                "Requests per server CPU second: 8,000",
                "Context switches per request: 1.00 asked for, 0.03 forced",
                "Waiting for a core: 0.25 threads on average",
                "Processes: 101 processes, 1 thread",
                "Memory (PSS): 20.0 MiB",
                "Peaks of resident memory: 3.00 GiB",
                "Throttled by its CPU quota: 5 of 20 periods, 0.50 threads stood still on average",
                "Sockets: 10 ESTABLISHED, 1 LISTEN",
                "Pressure on the machine: CPU 50.0 %, disk 0.0 %",
                "Connection tracker: 1000 of 65536 (1.5 %)",
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

    #[test]
    fn counts_and_times_have_units_to_read() {
        for (count, expected) in [
            (0.0, "0"),
            (999.4, "999"),
            (1_000.0, "1,000"),
            (1e6, "1,000,000"),
        ] {
            assert_eq!(count_text(count), expected);
        }
        for (nanoseconds, expected) in [
            (1_500, "1.5 µs"),
            (1_500_000, "1.50 ms"),
            (2_000_000_000, "2.00 s"),
        ] {
            assert_eq!(time_text(Duration::from_nanos(nanoseconds)), expected);
        }
    }
}
