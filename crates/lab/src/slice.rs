//! One slice: a load on one variant, what the server spent on it, and whether anything disturbed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bed::Started;
use super::generator;
use super::interrupt;
use super::model::{Ask, Load, Rate, Read, Row, ServiceAddress};
use super::tenants;
use load::Error;
use load::client::{Outcome, Plan, Running};
use load::server::{Noise, Sample, Sampler, Server, Spent, Which};

/// Between two looks at a server during a slice.
const SAMPLE: Duration = Duration::from_millis(100);
/// Between two looks at whether the load is done or an interrupt came.
const LOOK: Duration = Duration::from_millis(20);

/// What a slice came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) figures: BTreeMap<String, f64>,
    pub(crate) times: Vec<(u64, u64)>,
    /// What disturbed it.
    pub(crate) noise: Option<String>,
}

/// Loads a variant and reads what it spent.
pub(crate) fn load(
    row: &Row,
    asks: &[Ask],
    started: &Started,
    rate: Rate,
    seed: u64,
    address_of: impl Fn(&str) -> Option<ServiceAddress>,
) -> Result<Measured, Error> {
    let plan = generator::plan(&row.load, asks, started.address, rate, seed)?;
    let mut background = Vec::new();
    for (index, beside) in row.background.iter().enumerate() {
        let address = match &beside.backend {
            None => started.address,
            Some(name) => address_of(name)
                .ok_or_else(|| Error::new("load a back end", format!("{name} does not run")))?,
        };
        let plan = generator::beside(beside, &row.load, address, seed ^ (index as u64 + 1))?;
        background.push(Running::start(plan));
    }
    let watched = watch(&row.read, started.running.pid(), || run(plan))?;
    let outcome = watched.done?;
    background.iter().for_each(|load| load.live().stop());
    let beside: Result<Vec<Outcome>, Error> = background.iter_mut().map(Running::outcome).collect();
    let beside = beside?;
    let mut figures = generator::figures(&outcome);
    figures.extend(generator::window_figures(&row.load.windows, &outcome));
    let replies = (outcome.completed + outcome.warm_up.completed) as f64;
    figures.extend(spent_figures(&watched.spent, replies, &row.read));
    figures.extend(sampled_figures(&watched.samples, &row.read));
    let mut loads: Vec<(&[Ask], &Outcome)> = vec![(asks, &outcome)];
    for (background, outcome) in row.background.iter().zip(&beside) {
        loads.push((std::slice::from_ref(&background.ask), outcome));
    }
    figures.extend(tenants::figures(&loads));
    Ok(Measured {
        figures,
        times: generator::times(&outcome),
        noise: watched.noise,
    })
}

/// Replies per second of a short load flat out.
pub(crate) fn flat_out(
    base: &Load,
    asks: &[Ask],
    address: ServiceAddress,
    seconds: f64,
) -> Result<f64, Error> {
    let short = Load {
        requests: None,
        seconds,
        ..base.clone()
    };
    let outcome = run(generator::plan(&short, asks, address, Rate::Full, 0)?)?;
    Ok(outcome.per_second())
}

/// Runs a load in a thread, so that an interrupt can end it.
pub(crate) fn run(plan: Plan) -> Result<Outcome, Error> {
    let mut load = Running::start(plan);
    while !load.is_over() {
        interrupt::check()?;
        std::thread::sleep(LOOK);
    }
    load.outcome()
}

/// What was done, and what was spent meanwhile.
pub(crate) struct Watched<T> {
    pub(crate) done: T,
    pub(crate) spent: Spent,
    pub(crate) samples: Vec<Sample>,
    pub(crate) noise: Option<String>,
}

/// Does something while a server is looked at. What neither we nor anything we started spent is
/// foreign.
pub(crate) fn watch<T>(
    read: &[Read],
    pid: u32,
    work: impl FnOnce() -> T,
) -> Result<Watched<T>, Error> {
    let mut server = Server::find(&Which::Pid(pid))?;
    let mut ours = Server::find(&Which::Pid(std::process::id()))?;
    let ours_before = ours.read();
    let before = server.read();
    let wanted = [Read::Memory, Read::Processes];
    let sampled = read.iter().any(|read| wanted.contains(read));
    let (done, mut server, mut samples) = if sampled {
        let sampler = Sampler::start(server, SAMPLE);
        let done = work();
        let (server, samples) = sampler.stop();
        (done, server, samples)
    } else {
        (work(), server, Vec::new())
    };
    let after = if read.contains(&Read::Memory) {
        server.read_memory()
    } else {
        server.read()
    };
    let all = Spent::between(&ours_before, &ours.read());
    let noise = Noise::of(&all, Duration::ZERO, 0).map(|noise| noise.to_string());
    let spent = Spent::between(&before, &after);
    if let Some(tree) = &spent.tree {
        // The end counts as a sample: a short slice may have no other.
        samples.push(Sample {
            pss_bytes: tree.pss_bytes,
            processes: tree.processes,
            threads: tree.threads,
            ..Sample::default()
        });
    }
    Ok(Watched {
        done,
        spent,
        samples,
        noise,
    })
}

fn spent_figures(spent: &Spent, replies: f64, read: &[Read]) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let mut set = |name: &str, value: f64| {
        if value.is_finite() {
            found.insert(name.to_owned(), value);
        }
    };
    let cpu = spent.cpu().as_secs_f64();
    if replies > 0.0 {
        set("per_cpu_second", replies / cpu);
        set("cpu_us", cpu * 1e6 / replies);
    }
    set("server_busy", spent.cores_used());
    let Some(tree) = &spent.tree else {
        return found;
    };
    let seconds = spent.time.as_secs_f64();
    for read in read {
        match read {
            Read::Memory => set("peak_bytes", tree.peak_bytes as f64),
            Read::Processes => {}
            Read::Switches => {
                let switches = tree.voluntary_switches + tree.involuntary_switches;
                set("switches", switches as f64 / replies);
            }
            Read::RunQueue => set("run_queue_share", tree.run_queue.as_secs_f64() / seconds),
            Read::Throttling => {
                let still = tree
                    .throttling
                    .map(|throttling| throttling.time.as_secs_f64());
                set("throttled_share", still.unwrap_or(0.0) / seconds);
            }
            Read::Sockets => {
                set("time_wait", spent.time_wait as f64);
                let established = tree.sockets.get("ESTABLISHED").copied().unwrap_or(0);
                set("established", established as f64);
            }
            Read::Load => set("load1", spent.load1),
        }
    }
    found
}

/// The most of each during the slice.
fn sampled_figures(samples: &[Sample], read: &[Read]) -> BTreeMap<String, f64> {
    let most = |value: fn(&Sample) -> Option<u64>| samples.iter().filter_map(value).max();
    let mut found = BTreeMap::new();
    if read.contains(&Read::Memory) {
        found.extend(most(|s| s.pss_bytes).map(|value| ("pss_bytes".to_owned(), value as f64)));
    }
    if read.contains(&Read::Processes) {
        let processes = most(|s| Some(s.processes)).map(|value| ("processes", value));
        let threads = most(|s| Some(s.threads)).map(|value| ("threads", value));
        let both = processes.into_iter().chain(threads);
        found.extend(both.map(|(name, value)| (name.to_owned(), value as f64)));
    }
    found
}
