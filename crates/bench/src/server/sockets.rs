//! The TCP sockets on a server's listening ports, by state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::files::{self, numbers_in};
use super::find::Which;
use super::texts::{self, LISTEN, Socket, state_name};

/// Bytes read of a table of sockets: about 100,000 of them.
const TABLE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Ports of a server.
const PORTS_MAX: usize = 64;
/// Processes whose descriptors are looked through for listening sockets: those on top hold them.
const HOLDERS_MAX: usize = 64;
/// Time between two looks for ports; they seldom change.
const BETWEEN_PORTS: Duration = Duration::from_secs(5);

/// Where the sockets of a server are to be seen.
#[derive(Debug)]
pub(super) struct Sockets {
    /// The tables of the server's network namespace.
    directory: String,
    ports: BTreeSet<u16>,
    /// When the ports were looked for; `None` where they were given.
    looked: Looked,
}

#[derive(Debug)]
enum Looked {
    NeedNot,
    Never,
    At(Instant),
}

impl Sockets {
    pub(super) fn new(which: &Which, root: Option<u32>) -> Sockets {
        let directory = match (which, root) {
            (Which::Pid(_) | Which::Pids(_), Some(pid)) => format!("/proc/{pid}/net"),
            _ => "/proc/net".to_owned(),
        };
        let (ports, looked) = match which {
            Which::Listening(port) => (BTreeSet::from([*port]), Looked::NeedNot),
            _ => (BTreeSet::new(), Looked::Never),
        };
        Sockets {
            directory,
            ports,
            looked,
        }
    }

    /// Finds the ports these processes listen on, unless that was done lately.
    pub(super) fn find_ports(&mut self, processes: &[u32]) {
        match self.looked {
            Looked::NeedNot => return,
            Looked::At(at) if at.elapsed() < BETWEEN_PORTS => return,
            _ => {}
        }
        self.looked = Looked::At(Instant::now());
        let listeners = listeners(&self.directory);
        let ports: BTreeMap<u64, u16> = listeners.iter().map(|it| (it.inode, it.port)).collect();
        for pid in processes.iter().take(HOLDERS_MAX) {
            let directory = format!("/proc/{pid}/fd");
            let inodes = numbers_in(&directory).into_iter();
            let inodes = inodes.filter_map(|fd| inode_of(&format!("{directory}/{fd}")));
            let found = inodes.filter_map(|inode| ports.get(&inode));
            self.ports.extend(found.copied().take(PORTS_MAX));
        }
    }

    /// Counts them; also tells whether there were more than are looked at.
    pub(super) fn by_state(&self) -> (BTreeMap<String, u64>, bool) {
        let mut counts = [0_u64; 16];
        let mut is_cut = false;
        if self.ports.is_empty() {
            return (BTreeMap::new(), false);
        }
        for table in ["tcp", "tcp6"] {
            is_cut |= each_socket(&format!("{}/{table}", self.directory), |socket| {
                if self.ports.contains(&socket.port)
                    && let Some(count) = counts.get_mut(usize::from(socket.state))
                {
                    *count += 1;
                }
            });
        }
        (named(&counts), is_cut)
    }
}

fn named(counts: &[u64]) -> BTreeMap<String, u64> {
    let mut by_state = BTreeMap::new();
    for (state, count) in (0..).zip(counts) {
        if *count > 0 {
            *by_state.entry(state_name(state).to_owned()).or_insert(0) += count;
        }
    }
    by_state
}

/// The listening sockets of a network namespace.
pub(super) fn listeners(directory: &str) -> Vec<Socket> {
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        each_socket(&format!("{directory}/{table}"), |socket| {
            if socket.state == LISTEN {
                found.push(socket);
            }
        });
    }
    found
}

/// Goes through a table of sockets; tells whether it was cut.
fn each_socket(path: &str, mut each: impl FnMut(Socket)) -> bool {
    let bytes = files::bytes(path, TABLE_BYTES_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().filter_map(texts::socket).for_each(&mut each);
    bytes.len() >= TABLE_BYTES_MAX
}

/// The inode of the socket behind a descriptor's link.
pub(super) fn inode_of(link: &str) -> Option<u64> {
    let target = std::fs::read_link(link).ok()?;
    let target = target.to_str()?;
    target
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}
