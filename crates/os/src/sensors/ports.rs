//! Local ports in use towards one peer: `/proc/net/tcp`, `/proc/net/tcp6`.
//!
//! A connection that this machine opens takes a local port out of a range, and two to the same
//! peer cannot share one; one that has ended keeps its port for a minute. So what counts is the
//! peer that takes most. Connections from clients have a port of ours that is listened on, and a
//! peer port each of their own: they do not add up.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bytes read in a step: some 1,700 connections, a millisecond or two.
const CHUNK_BYTES: usize = 256 * 1024;
/// Peers that are counted; those that come first.
const PEERS_MAX: usize = 8_192;
/// Bytes of all tables together that are looked at: some 400,000 connections.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// States in which a socket is not connected: closed, listening.
const UNCONNECTED: [&str; 2] = ["07", "0A"];

/// From which ports the kernel chooses for connections that are opened here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl PortRange {
    /// How many they are.
    pub fn count(&self) -> u64 {
        u64::from(self.last.saturating_sub(self.first)) + 1
    }
}

/// The range in the text of `ip_local_port_range`.
pub fn port_range(text: &str) -> Option<PortRange> {
    let mut words = text.split_ascii_whitespace();
    let mut next = || words.next()?.parse::<u16>().ok();
    let range = PortRange {
        first: next()?,
        last: next()?,
    };
    (range.first <= range.last).then_some(range)
}

/// Finds the peer that takes most local ports, a step at a time: tables may be long.
#[derive(Debug)]
pub struct PortWalk {
    range: PortRange,
    by_peer: HashMap<Box<str>, u64>,
    /// The table that is read, and those that follow.
    table: File,
    further: Vec<PathBuf>,
    /// What was read of it; so much is filled with a line whose end has not come.
    chunk: Vec<u8>,
    kept: usize,
    left_bytes: u64,
}

impl PortWalk {
    /// Begins with the first of these tables; those that follow need not be there.
    pub fn begin(range: PortRange, tables: &[&Path]) -> io::Result<Self> {
        let mut further: Vec<_> = tables.iter().rev().map(|path| path.to_path_buf()).collect();
        let first = further.pop().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            range,
            by_peer: HashMap::new(),
            table: File::open(first)?,
            further,
            chunk: vec![0; CHUNK_BYTES],
            kept: 0,
            left_bytes: BYTES_MAX,
        })
    }

    /// Reads on; at the end tells the local ports the busiest peer takes.
    pub fn step(&mut self) -> io::Result<Option<u64>> {
        let mut filled = self.kept;
        let at_end = loop {
            let Some(free) = self.chunk.get_mut(filled..).filter(|free| !free.is_empty()) else {
                break false;
            };
            // It comes a page at a time.
            match self.table.read(free)? {
                0 => break true,
                read => filled += read,
            }
        };
        let read = (filled - self.kept) as u64;
        self.left_bytes = self.left_bytes.saturating_sub(read);
        let whole = self.count_lines(filled);
        if whole == 0 && !at_end {
            // A line that long is none.
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.chunk.copy_within(whole..filled, 0);
        self.kept = filled - whole;
        if !at_end && self.left_bytes > 0 {
            return Ok(None);
        }
        self.kept = 0;
        let next = self.further.pop().and_then(|path| File::open(path).ok());
        let Some(next) = next.filter(|_| self.left_bytes > 0) else {
            return Ok(Some(self.ports()));
        };
        self.table = next;
        Ok(None)
    }

    /// Counts the whole lines there are; tells how many bytes they have.
    fn count_lines(&mut self, filled: usize) -> usize {
        let chunk = std::mem::take(&mut self.chunk);
        let lines = chunk.get(..filled).unwrap_or_default();
        let whole = lines.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |at| at + 1);
        let text = lines.get(..whole).unwrap_or_default();
        for line in text.split(|byte| *byte == b'\n') {
            self.count_line(std::str::from_utf8(line).unwrap_or_default());
        }
        self.chunk = chunk;
        whole
    }

    fn count_line(&mut self, line: &str) {
        let Some((port, peer)) = connection(line) else {
            return;
        };
        if port < self.range.first || port > self.range.last {
            return;
        }
        if let Some(count) = self.by_peer.get_mut(peer) {
            *count += 1;
        } else if self.by_peer.len() < PEERS_MAX {
            self.by_peer.insert(peer.into(), 1);
        }
    }

    fn ports(&self) -> u64 {
        self.by_peer.values().copied().max().unwrap_or(0)
    }
}

/// The local port and the peer of a line that stands for a connection.
fn connection(line: &str) -> Option<(u16, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (_, local, peer, state) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (_, port) = local.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (!UNCONNECTED.contains(&state) && peer.contains(':')).then_some((port, peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: PortRange = PortRange {
        first: 0x8000,
        last: 0x8fff,
    };

    #[test]
    fn a_range_is_two_ports_in_order() {
        for (text, expected) in [
            ("32768\t60999\n", Some((32_768, 60_999))),
            ("1 1", Some((1, 1))),
            ("60999 32768", None),
            ("32768", None),
            ("0 65536", None),
            ("-1 5", None),
            ("", None),
        ] {
            let found = port_range(text).map(|range| (range.first, range.last));
            assert_eq!(found, expected, "{text:?}");
        }
        assert_eq!(RANGE.count(), 4_096);
    }

    /// The busiest peer's ports in tables with these texts.
    fn walked(name: &str, tables: &[&str]) -> io::Result<u64> {
        let directory = std::env::temp_dir().join(format!("nagaya-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let paths = ["tcp", "tcp6"].map(|name| directory.join(name));
        for (path, text) in paths.iter().zip(tables) {
            std::fs::write(path, text)?;
        }
        let paths: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
        let mut walk = PortWalk::begin(RANGE, &paths)?;
        let ports = loop {
            match walk.step() {
                Ok(None) => {}
                Ok(Some(ports)) => break Ok(ports),
                Err(error) => break Err(error),
            }
        };
        std::fs::remove_dir_all(&directory)?;
        ports
    }

    #[test]
    fn connections_to_one_peer_add_up() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt
   0: 0100007F:8001 0100007F:2328 01 00000000:00000000 00:00000000 00000000
   1: 0100007F:8002 0100007F:2328 06 00000000:00000000 03:00000F00 00000000
   2: 0100007F:8003 0100007F:2329 01 0:0
   3: 0100007F:0050 0100007F:2328 01 0:0
   4: 0100007F:9000 0100007F:2328 01 0:0
   5: 00000000:8005 0100007F:2328 0A 0:0
   6: 0100007F:8006 0100007F:2328 07 0:0
   7: 0100007F:8007 0000000000000000FFFF00000100007F:2328 01 0:0
";
        assert_eq!(walked("add-up", &[table]).ok(), Some(2));
        // Of a line without its end nothing is known.
        let table = table.trim_end();
        let six = "0: 0:8001 A:1 01\n0: 0:8002 A:1 01\n0: 0:8003 A:1 01\n0: 0:8004 A:1 0";
        assert_eq!(walked("both", &[table, six]).ok(), Some(3));
    }

    #[test]
    fn what_is_no_connection_counts_for_nothing() {
        for (at, text) in [
            "",
            "\n\n\n",
            "0:\n",
            "0: 0100007F:8001\n",
            "0: 0100007F:8001 0100007F:2328\n",
            "0: 0100007F 0100007F:2328 01\n",
            "0: 0100007F:18001 0100007F:2328 01\n",
            "0: 0100007F:zz 0100007F:2328 01\n",
            "0: 0100007F:8001 peer 01\n",
            "\0\n",
        ]
        .iter()
        .enumerate()
        {
            let found = walked(&format!("nothing-{at}"), &[text]);
            assert_eq!(found.ok(), Some(0), "{text:?}");
        }
        assert!(walked("endless", &[&"x".repeat(3 * CHUNK_BYTES)]).is_err());
        assert!(walked("absent", &[]).is_err());
    }

    #[test]
    fn a_long_table_is_read_in_steps_and_so_many_peers_are_remembered() {
        let line = "   1: 0100007F:8002 0100007F:2328 06 00000000:00000000 03:00000F00 00000000\n";
        assert_eq!(walked("long", &[&line.repeat(9_000)]).ok(), Some(9_000));
        let peers = (0..2 * PEERS_MAX).map(|peer| format!("0: 0:8001 {peer:08X}:0050 01\n"));
        let table: String = peers.collect();
        assert_eq!(walked("peers", &[&table]).ok(), Some(1));
    }
}
