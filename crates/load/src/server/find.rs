//! Which processes are the server: by number, or by the port they listen on.

use std::collections::BTreeSet;

use super::files::{self, numbers_in};
use super::sockets::{inode_of, listeners};
use super::texts;
use crate::error::Error;

/// Which server is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The process of this number and all that descend from it.
    Pid(u32),
    /// Several processes and all that descend from them, such as a web server and its PHP.
    Pids(Vec<u32>),
    /// Whoever listens on this TCP port.
    Listening(u16),
    /// No server: the machine alone.
    MachineOnly,
}

/// Ancestors looked at; there is no loop in them, but a process may end and its number come again.
const ANCESTORS_MAX: usize = 256;

/// The processes a server's tree grows from.
pub(super) fn roots(which: &Which) -> Result<Vec<u32>, Error> {
    match which {
        Which::Pid(pid) => Ok(vec![process(*pid)?]),
        Which::Pids(pids) => pids.iter().map(|pid| process(*pid)).collect(),
        Which::Listening(port) => listening(*port),
        Which::MachineOnly => Ok(Vec::new()),
    }
}

/// The number of a process from that of any of its threads.
fn process(pid: u32) -> Result<u32, Error> {
    let status = files::text(&format!("/proc/{pid}/status"));
    let status = status.ok_or_else(|| {
        let cause = "there is no such process; it may have ended, or run in another container \
                     (look with `ps -e`, or name its port with --listen)";
        Error::new(format!("find the server with process number {pid}"), cause)
    })?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    Ok(line
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(pid))
}

/// The topmost of those that hold the listening socket.
fn listening(port: u16) -> Result<Vec<u32>, Error> {
    let doing = || format!("find the server that listens on port {port}");
    let sockets = listeners("/proc/net");
    let inodes: BTreeSet<u64> = sockets
        .iter()
        .filter(|socket| socket.port == port)
        .map(|socket| socket.inode)
        .collect();
    if inodes.is_empty() {
        let cause = "nobody listens there on TCP in this network namespace (look with `ss -ltn`; \
                     for a server in a container name its process with --pid)";
        return Err(Error::new(doing(), cause));
    }
    let mut holders = holders(&inodes);
    if holders.len() > 1 && is_service_manager(1) {
        // It opened the socket for the server and does not serve itself.
        holders.remove(&1);
    }
    if holders.is_empty() {
        let cause = "somebody does, but this user may not see who; run as root or as the \
                     server's user, or name the process with --pid";
        return Err(Error::new(doing(), cause));
    }
    let is_topmost = |pid: &u32| !ancestors(*pid).iter().any(|above| holders.contains(above));
    Ok(holders.iter().copied().filter(is_topmost).collect())
}

/// The processes that hold one of these sockets open.
fn holders(inodes: &BTreeSet<u64>) -> BTreeSet<u32> {
    let holds = |pid: &u32| {
        let directory = format!("/proc/{pid}/fd");
        let mut descriptors = numbers_in(&directory).into_iter();
        descriptors.any(|fd| {
            let inode = inode_of(&format!("{directory}/{fd}"));
            inode.is_some_and(|inode| inodes.contains(&inode))
        })
    };
    numbers_in("/proc").into_iter().filter(holds).collect()
}

/// Whether a process opens sockets for others.
fn is_service_manager(pid: u32) -> bool {
    let name = files::text(&format!("/proc/{pid}/comm")).unwrap_or_default();
    ["systemd", "init", "launchd", "xinetd", "inetd"].contains(&name.trim_end())
}

fn ancestors(pid: u32) -> Vec<u32> {
    let mut above = Vec::new();
    let mut at = pid;
    while let Some(stat) = files::bytes(&format!("/proc/{at}/stat"), files::BYTES_MAX)
        .as_deref()
        .and_then(texts::stat)
        .filter(|stat| stat.parent != 0 && above.len() < ANCESTORS_MAX)
    {
        at = stat.parent;
        above.push(at);
    }
    above
}
