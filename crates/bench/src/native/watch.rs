//! The measured server beside the load: looked at before, during and after it.
//!
//! It is watched over the whole load, warm-up included, so that what it spent can be divided by
//! replies that were counted exactly.

use std::time::Duration;

use serde::Serialize;

use load::Error;
use load::client::{Live, Outcome};
use load::server::{
    Reading, Sample, Sampler, Server, Spent, Which, cool_down, cool_down_facts, facts,
};
use report::units;
use report::{Column, Table};

/// Time between samples.
const PERIOD: Duration = Duration::from_millis(100);

/// What the server spent.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServerRecord {
    /// How it was named: `port 8080`, `process 4711`.
    pub(crate) which: String,
    /// Whole replies while it was watched, warm-up included.
    pub(crate) replies: u64,
    /// CPU time a whole reply cost it; none without replies.
    pub(crate) cpu_us_per_reply: Option<f64>,
    /// Whole replies per second of its CPU time: the figure that survives a noisy machine.
    pub(crate) replies_per_cpu_second: Option<f64>,
    /// Proportional share of its memory before the load.
    pub(crate) before_pss_bytes: Option<u64>,
    /// The most of it in a sample of the load.
    pub(crate) most_pss_bytes: Option<u64>,
    /// The last of it: after the cool-down where there was one.
    pub(crate) after_pss_bytes: Option<u64>,
    /// The most processes in a sample of the load.
    pub(crate) most_processes: u64,
    /// What it and the machine spent over the load.
    pub(crate) spent: Spent,
    /// CPU time of the machine that went neither to it nor to the generator, as a share.
    pub(crate) foreign_share: f64,
    /// All of this in words, name and value.
    pub(crate) facts: Vec<(String, String)>,
    /// The load, sample by sample.
    pub(crate) samples: Vec<Sample>,
    /// The cool-down, sample by sample; its time begins anew.
    pub(crate) cooldown: Vec<Sample>,
}

/// A server under watch.
#[derive(Debug)]
pub(crate) struct Watched {
    which: Which,
    before: Reading,
    own_cpu_ns: u64,
    sampler: Sampler,
}

impl Watched {
    /// Finds the server and begins to watch it.
    pub(crate) fn start(which: &Which) -> Result<Watched, Error> {
        let mut server = Server::find(which)?;
        let before = server.read_memory();
        Ok(Watched {
            which: which.clone(),
            before,
            own_cpu_ns: os::cpu::process_cpu_ns(),
            sampler: Sampler::start(server, PERIOD),
        })
    }

    /// Ends the watch, goes on through the cool-down, and says what was spent on the load.
    pub(crate) fn finish(
        self,
        outcome: &Outcome,
        cooldown: Option<Duration>,
        live: &Live,
    ) -> ServerRecord {
        let (mut server, samples) = self.sampler.stop();
        let after = server.read_memory();
        let own_cpu_ns = os::cpu::process_cpu_ns().saturating_sub(self.own_cpu_ns);
        let cooldown = match cooldown {
            Some(time) => cool_down(&mut server, time, || live.stopped()),
            None => Vec::new(),
        };
        let spent = Spent::between(&self.before, &after);
        let pss = |reading: &Reading| reading.tree.as_ref().and_then(|tree| tree.pss_bytes);
        let replies = outcome.completed + outcome.warm_up.completed;
        let cpu_s = spent.cpu().as_secs_f64();
        let cooled = cooldown.iter().rev().find_map(|sample| sample.pss_bytes);
        let mut record = ServerRecord {
            which: name(&self.which),
            replies,
            cpu_us_per_reply: (replies > 0).then(|| cpu_s * 1e6 / replies as f64),
            replies_per_cpu_second: (cpu_s > 0.0).then(|| replies as f64 / cpu_s),
            before_pss_bytes: pss(&self.before),
            most_pss_bytes: samples
                .iter()
                .filter_map(|s| s.pss_bytes)
                .chain(pss(&after))
                .max(),
            after_pss_bytes: cooled.or(pss(&after)),
            most_processes: samples.iter().map(|s| s.processes).max().unwrap_or(0),
            foreign_share: spent.foreign_share(Duration::from_nanos(own_cpu_ns)),
            spent,
            facts: Vec::new(),
            samples,
            cooldown,
        };
        record.facts = in_words(&record, &self.before, &after);
        record
    }
}

fn name(which: &Which) -> String {
    match which {
        Which::Pid(pid) => format!("process {pid}"),
        Which::Pids(pids) => format!("processes {pids:?}"),
        Which::Listening(port) => format!("port {port}"),
        Which::MachineOnly => "the machine alone".to_owned(),
    }
}

/// What it spent, and what the machine did meanwhile: a table of two columns.
pub(crate) fn table(server: &ServerRecord) -> Table {
    let mut table = Table::new([Column::left("Server"), Column::left(server.which.as_str())]);
    for (name, value) in &server.facts {
        table.row([name.as_str(), value.as_str()]);
    }
    table
}

/// The rows every report has, and what only the samples tell.
fn in_words(server: &ServerRecord, before: &Reading, after: &Reading) -> Vec<(String, String)> {
    let mut rows = facts(&server.spent, after, server.replies);
    let mut add = |name: &str, value: String| rows.push((name.to_owned(), value));
    if let Some(bytes) = server.most_pss_bytes {
        add("Most memory (PSS) in the load", units::bytes(bytes as f64));
    }
    if server.most_processes > 0 {
        add(
            "Most processes in the load",
            units::count(server.most_processes),
        );
    }
    if server.spent.tree.is_some() {
        add(
            "Machine's time taken by others",
            units::share(server.foreign_share),
        );
    }
    rows.extend(cool_down_facts(before, &server.cooldown));
    rows
}
