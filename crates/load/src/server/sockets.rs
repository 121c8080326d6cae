//! The TCP sockets on a server's listening ports, by state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::diagnosis;
use super::files::{self, numbers_in};
use super::find::Which;
use super::texts::{self, LISTEN, Socket, state_name};

/// Bytes read of a table of sockets: about 100,000 of them.
const TABLE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Its tables, by version of IP.
const TABLES: [&str; 2] = ["tcp", "tcp6"];
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
    source: SocketSource,
    ports: BTreeSet<u16>,
    /// When the ports were looked for; `None` where they were given.
    looked: Looked,
}

/// Where sockets are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketSource {
    /// The kernel is asked, which answers for this process's network namespace.
    Kernel,
    /// The tables are read.
    Tables,
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
        let is_ours = network("self").is_some_and(|own| {
            let other = directory
                .trim_start_matches("/proc/")
                .trim_end_matches("net");
            other.is_empty() || network(other.trim_end_matches('/')) == Some(own)
        });
        Sockets {
            directory,
            source: if is_ours {
                SocketSource::Kernel
            } else {
                SocketSource::Tables
            },
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
    pub(super) fn by_state(&mut self) -> (BTreeMap<String, u64>, bool) {
        if self.ports.is_empty() {
            return (BTreeMap::new(), false);
        }
        let asked = match self.source {
            SocketSource::Kernel => self.ask_kernel(),
            SocketSource::Tables => None,
        };
        asked.unwrap_or_else(|| {
            // It will not answer the next time either.
            self.source = SocketSource::Tables;
            self.read_tables()
        })
    }

    fn ask_kernel(&self) -> Option<(BTreeMap<String, u64>, bool)> {
        let mut counts = Counts::default();
        let only = self
            .ports
            .first()
            .copied()
            .filter(|_| self.ports.len() == 1);
        let is_cut = diagnosis::each_socket(only, |port, state| {
            if self.ports.contains(&port) {
                counts.add(state);
            }
        })?;
        Some((counts.named(), is_cut))
    }

    fn read_tables(&self) -> (BTreeMap<String, u64>, bool) {
        let mut counts = Counts::default();
        let mut is_cut = false;
        for table in TABLES {
            is_cut |= each_socket(&format!("{}/{table}", self.directory), |socket| {
                if self.ports.contains(&socket.port) {
                    counts.add(socket.state);
                }
            });
        }
        (counts.named(), is_cut)
    }
}

/// What tells a network namespace from others.
fn network(process: &str) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

/// Sockets by the number of their state.
#[derive(Debug, Default)]
struct Counts([u64; 16]);

impl Counts {
    fn add(&mut self, state: u8) {
        if let Some(count) = self.0.get_mut(usize::from(state)) {
            *count += 1;
        }
    }

    fn named(&self) -> BTreeMap<String, u64> {
        let mut by_state = BTreeMap::new();
        for (state, count) in (0..).zip(self.0) {
            if count > 0 {
                *by_state.entry(state_name(state).to_owned()).or_insert(0) += count;
            }
        }
        by_state
    }
}

/// The listening sockets of a network namespace.
pub(super) fn listeners(directory: &str) -> Vec<Socket> {
    let mut found = Vec::new();
    for table in TABLES {
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_kernel_and_the_tables_say_the_same() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let _client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let mut sockets = Sockets::new(&Which::Listening(port), None);
        let expected = [("ESTABLISHED", 1), ("LISTEN", 1)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(
            sockets.read_tables(),
            (BTreeMap::from(expected.clone()), false)
        );
        assert_eq!(sockets.by_state(), (BTreeMap::from(expected), false));
    }

    #[test]
    fn the_ports_of_a_process_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let own = std::process::id();
        let mut sockets = Sockets::new(&Which::Pid(own), Some(own));
        assert_eq!(sockets.source, SocketSource::Kernel);
        sockets.find_ports(&[own]);
        assert!(sockets.ports.contains(&port), "{sockets:?}");
    }

    #[test]
    fn links_that_lead_to_no_socket_have_no_number() {
        assert_eq!(inode_of("/proc/self/exe"), None);
        assert_eq!(inode_of("/proc/self/fd/none"), None);
    }
}
