//! Files of clients that are kept out, which count without a reload.
//!
//! The idea: a file is taken whole or not at all, since a line that nobody understands may be one
//! that somebody is still writing; what it said before holds meanwhile. Only where nothing was said
//! before, the lines that are understood count, and where there is no file when the server or a worker
//! process starts nobody is let in until there is. However many lines there are, a client is looked
//! for among networks that lie apart and in order.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use config::model::Model;
use config::{client_of_line, reason};
use ipnet::IpNet;

use crate::error::{Error, Kind, Result};
use crate::watched_file::{Look, WatchedFile};
use crate::worker::resources::Resources;

/// Lines of a file that name somebody.
const NETWORKS_MAX: usize = 100_000;

/// A file of clients.
#[derive(Debug)]
pub(crate) struct DenyFile {
    /// `None`: it was not there when the server started, and nobody knows whom it denies.
    file: WatchedFile<Option<Networks>>,
}

/// Networks that lie apart, in order.
type Networks = Box<[IpNet]>;

/// Lines that are not understood: the number of the first and why, and how many follow.
type Misread = (usize, &'static str, usize);

/// Makes the files of a generation; those that were there `before` are the same ones.
///
/// # Errors
/// When files cannot be read: all of them. When the server starts there is nothing that could hold
/// instead, and those deny everybody until they are there.
pub(crate) fn compile(
    model: &Model,
    before: Option<&[Arc<DenyFile>]>,
) -> Result<Box<[Arc<DenyFile>]>> {
    let known = before.into_iter().flatten();
    let of_path = |path: &Path| known.clone().find(|known| known.file.path() == path);
    let (mut made, mut problems) = (Vec::new(), Vec::new());
    for (number, path) in model.denied.iter().enumerate() {
        match of_path(path).map(Arc::clone) {
            Some(known) => made.push(known),
            None => match (DenyFile::open(path, number), before) {
                (Ok(file), _) => made.push(Arc::new(file)),
                (Err(problem), Some(_)) => problems.push(problem),
                (Err(problem), None) => {
                    tracing::error!(
                        "{problem}; nobody is let in where it counts until it can be read"
                    );
                    let file = WatchedFile::lost(path, number, None);
                    made.push(Arc::new(DenyFile { file }));
                }
            },
        }
    }
    match problems.as_slice() {
        [] => Ok(made.into()),
        _ => Err(Error::new(Kind::Internal, "deny_file", problems.join("; "))),
    }
}

/// Has the files looked at of which this worker is to do so.
pub(crate) fn start(files: &[Arc<DenyFile>], resources: &Resources) {
    for file in files {
        file.file.start(file, DenyFile::refresh, resources);
    }
}

impl DenyFile {
    fn open(path: &Path, number: usize) -> std::result::Result<Self, String> {
        let mut misread = None;
        let file = WatchedFile::open(path, number, |text| {
            let (networks, found) = parse(text);
            misread = found;
            Some(networks)
        });
        let file = file.map_err(|why| format!("clients to be denied: {why}"))?;
        if let Some(misread) = misread {
            tell_left_out(path, misread);
        }
        Ok(Self { file })
    }

    /// Why it denies a client, where it does.
    pub(crate) fn denies(&self, client: IpAddr) -> Option<(u16, &'static str)> {
        match &*self.file.said() {
            None => Some((503, "deny_file")),
            Some(networks) => holds(networks, client).then_some((403, "client_denied")),
        }
    }

    /// Reads the file again if it has changed. Waits for its disk.
    fn refresh(&self) {
        let (mut misread, said_nothing) = (None, self.file.said().is_none());
        let look = self.file.refresh(|text| {
            let (networks, found) = parse(text);
            misread = found;
            (found.is_none() || said_nothing).then_some(Some(networks))
        });
        let file = self.file.path().display();
        match (look, misread) {
            (Look::Same, _) => {}
            (Look::Lost(error), _) => {
                let error = reason(&error);
                tracing::error!(%file, error, "a file of denied clients cannot be read again: what it said last holds");
            }
            (_, None) => {
                let networks = self
                    .file
                    .said()
                    .as_ref()
                    .as_ref()
                    .map_or(0, |said| said.len());
                tracing::info!(%file, networks, "a file of denied clients was read again");
            }
            (Look::Read, Some(misread)) => tell_left_out(self.file.path(), misread),
            (_, Some((line, why, more))) => {
                tracing::error!(%file, line, more, "a file of denied clients is wrong: {why}; what it said last holds");
            }
        }
    }
}

fn holds(networks: &[IpNet], client: IpAddr) -> bool {
    let after = networks.partition_point(|network| network.network() <= client);
    let nearest = after.checked_sub(1).and_then(|at| networks.get(at));
    nearest.is_some_and(|network| network.contains(&client))
}

fn tell_left_out(path: &Path, (line, why, more): Misread) {
    let file = path.display();
    tracing::warn!(%file, line, more, "lines of a file of denied clients are left out: {why}");
}

fn parse(text: &[u8]) -> (Networks, Option<Misread>) {
    let (mut networks, mut misread) = (Vec::new(), None);
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let why = match client_of_line(line) {
            Ok(None) => continue,
            Ok(Some(network)) if networks.len() < NETWORKS_MAX => {
                networks.push(network);
                continue;
            }
            Ok(Some(_)) => "more than 100,000 lines name somebody",
            Err(why) => why,
        };
        match &mut misread {
            None => misread = Some((number, why, 0)),
            Some((_, _, more)) => *more += 1,
        }
    }
    let mut apart = IpNet::aggregate(&networks);
    apart.sort_unstable();
    (apart.into(), misread)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Addresses and networks that often lie in each other.
    fn network() -> impl Strategy<Value = IpNet> {
        let near = prop_oneof![
            (0_u32..1_024, 20_u8..=32).prop_map(|(low, bits)| {
                (IpAddr::from((0x0a00_0000 | low).to_be_bytes()), bits)
            }),
            (any::<u32>(), 0_u8..=32)
                .prop_map(|(all, bits)| (IpAddr::from(all.to_be_bytes()), bits)),
            (any::<u8>(), 118_u8..=128).prop_map(|(low, bits)| {
                (
                    IpAddr::from(((0x2001_0db8_u128 << 96) | u128::from(low)).to_be_bytes()),
                    bits,
                )
            }),
        ];
        near.prop_map(|(address, bits)| IpNet::new(address, bits).expect("bits that fit").trunc())
    }

    proptest! {
        #[test]
        fn a_file_holds_whom_one_of_its_lines_holds(
            lines in proptest::collection::vec(network(), 0..40),
            clients in proptest::collection::vec(network(), 1..40),
        ) {
            let text: Vec<String> = lines.iter().map(|line| format!("{line} # why\n")).collect();
            let (networks, misread) = parse(text.concat().as_bytes());
            prop_assert_eq!(misread, None);
            for client in clients {
                for client in [client.network(), client.broadcast()] {
                    let expected = lines.iter().any(|line| line.contains(&client));
                    prop_assert_eq!(holds(&networks, client), expected, "{}", client);
                }
            }
        }

        #[test]
        fn any_bytes_are_networks_or_told(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (networks, misread) = parse(&text);
            prop_assert!(misread.is_some() || networks.len() <= text.len());
        }
    }

    #[test]
    fn the_first_wrong_line_is_told_and_the_others_are_counted() {
        let (networks, misread) = parse(b"192.0.2.1\nnobody\n# a comment\n10.0.0.1/8\n192.0.2.0\n");
        assert_eq!(
            &*networks,
            ["192.0.2.0/31".parse::<IpNet>().expect("a network")]
        );
        assert_eq!(misread, Some((2, "neither an address nor a network", 1)));
        let many = "192.0.2.1\n".repeat(NETWORKS_MAX + 2);
        let (networks, misread) = parse(many.as_bytes());
        let (line, _, more) = misread.expect("too many");
        assert_eq!((networks.len(), line, more), (1, NETWORKS_MAX + 1, 1));
    }

    #[test]
    fn a_wrong_line_of_a_file_that_was_lost_at_the_start_keeps_nobody_out() {
        let directory = testkit::TempDir::new();
        let path = directory.path().join("denied");
        let file = DenyFile {
            file: WatchedFile::lost(&path, 0, None),
        };
        let denies = |client: [u8; 4]| {
            file.refresh();
            file.denies(client.into()).map(|(status, _)| status)
        };
        assert_eq!(denies([192, 0, 2, 1]), Some(503));
        directory.write("denied", "192.0.2.1\nnobody\n");
        assert_eq!(denies([192, 0, 2, 1]), Some(403));
        assert_eq!(denies([192, 0, 2, 2]), None);
        // From then on a file with a wrong line is not taken.
        directory.write("denied", "192.0.2.2\nno one at all\n");
        assert_eq!(denies([192, 0, 2, 1]), Some(403));
        assert_eq!(denies([192, 0, 2, 2]), None);
    }
}
