//! Connections that have made a request and stay open: what each costs the server in memory, and
//! how evenly its workers share them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::answer;
use super::bed::Started;
use super::interrupt;
use super::model::{Ask, ServiceAddress};
use load::Error;
use load::server::{Server, Which};

/// Connections between two looks at whether an interrupt came.
const CHECK_EVERY: usize = 200;
/// Descriptors this program needs besides.
const SPARE_DESCRIPTORS: u64 = 200;
/// Descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 200_000;

/// Holds `connections` open and reads the memory they cost.
pub(crate) fn measure(
    started: &Started,
    ask: &Ask,
    connections: usize,
    settle: Duration,
) -> Result<BTreeMap<String, f64>, Error> {
    let doing = || format!("hold connections to {}", started.name);
    check_descriptors(connections).map_err(|e| Error::new(doing(), e))?;
    let pid = started.running.pid();
    let mut server = Server::find(&Which::Pid(pid))?;
    // A first request makes what is made once.
    answer::ask(started.address, ask).map_err(|e| Error::new(doing(), e))?;
    wait(settle)?;
    let memory = |server: &mut Server| {
        let tree = server.read_memory().tree;
        tree.and_then(|tree| tree.pss_bytes).unwrap_or(0) as f64
    };
    let alone = memory(&mut server);
    let watched_before = watched(&server.processes());
    let request = answer::request(started.address.port, ask, "");
    let mut held = Vec::with_capacity(connections);
    for count in 0..connections {
        if count % CHECK_EVERY == 0 {
            interrupt::check()?;
        }
        let opened = open(started.address, &request, &ask.method);
        held.push(opened.map_err(|e| Error::new(format!("{}: number {}", doing(), count + 1), e))?);
    }
    let watched_after = watched(&server.processes());
    wait(settle)?;
    let each = (memory(&mut server) - alone) / connections as f64;
    let mut found = BTreeMap::new();
    found.insert("bytes_each".to_owned(), each.max(0.0));
    found.insert("bytes_alone".to_owned(), alone);
    let share = largest_share(&watched_before, &watched_after);
    found.extend(share.map(|share| ("largest_share".to_owned(), share)));
    Ok(found)
}

fn check_descriptors(connections: usize) -> Result<(), String> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if (connections as u64).saturating_add(SPARE_DESCRIPTORS) > limit => {
            Err(format!(
                "{connections} of them need more descriptors than the {limit} there may be; raise `ulimit -n`"
            ))
        }
        _ => Ok(()),
    }
}

/// Connects, asks, and reads the whole reply.
fn open(address: ServiceAddress, request: &[u8], method: &str) -> std::io::Result<OwnedFd> {
    let (stream, reply) = answer::exchange(address, request, method)?;
    match answer::is_framed(&reply, method) {
        true => Ok(stream),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

fn wait(time: Duration) -> Result<(), Error> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        interrupt::check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What every epoll instance of these processes watches. Each worker waits for its connections
/// with one of its own, whatever a server says about itself.
fn watched(processes: &[u32]) -> BTreeSet<(u32, BTreeSet<u32>)> {
    let mut found = BTreeSet::new();
    for pid in processes {
        let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"))
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries.take(DESCRIPTORS_MAX) {
            let info = fs::read_to_string(entry.path()).unwrap_or_default();
            let targets = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
            let targets = targets.filter_map(|line| line.split_whitespace().next()?.parse().ok());
            found.insert((*pid, targets.collect()));
        }
    }
    found
}

/// The share of the connections that the busiest instance has got.
fn largest_share(
    before: &BTreeSet<(u32, BTreeSet<u32>)>,
    after: &BTreeSet<(u32, BTreeSet<u32>)>,
) -> Option<f64> {
    let known: BTreeSet<(u32, u32)> = before
        .iter()
        .flat_map(|(pid, targets)| targets.iter().map(|target| (*pid, *target)))
        .collect();
    let gained = |(pid, targets): &(u32, BTreeSet<u32>)| {
        targets
            .iter()
            .filter(|target| !known.contains(&(*pid, **target)))
            .count()
    };
    let gained: Vec<usize> = after.iter().map(gained).collect();
    let total: usize = gained.iter().sum();
    let most = *gained.iter().max()?;
    (total > 0).then(|| most as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_worker_is_found_by_what_it_gained() {
        let set = |pid: u32, targets: &[u32]| (pid, targets.iter().copied().collect());
        let before = [set(1, &[3]), set(2, &[3])].into();
        let after = [set(1, &[3, 10, 11, 12]), set(2, &[3, 10])].into();
        assert_eq!(largest_share(&before, &after), Some(0.75));
        assert_eq!(largest_share(&before, &before), None);
    }
}
