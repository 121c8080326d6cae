//! The servers that are compared: how each is found, started and asked for its version.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::bed::{Bed, Log, free_port};
use super::http;
use super::options::Options;
use super::peer_config::{self, Plan};
use super::process::Process;
use super::work::Kind;
use crate::error::Error;

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Nagaya,
    Nginx,
    Haproxy,
    H2o,
}

const ALL: [Server; 4] = [Server::Nagaya, Server::Nginx, Server::Haproxy, Server::H2o];

impl Server {
    /// The name of its binary and of its column.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Server::Nagaya => "nagaya",
            Server::Nginx => "nginx",
            Server::Haproxy => "haproxy",
            Server::H2o => "h2o",
        }
    }

    /// Whether it does this work at all. h2o answers fixed replies from Ruby only, which is
    /// another work; HAProxy serves no files, and who would
    /// set up php-fpm behind either asks nginx first.
    pub(crate) fn can(self, kind: Kind) -> bool {
        match self {
            Server::Nagaya | Server::Nginx => true,
            Server::Haproxy => !matches!(kind, Kind::Static | Kind::Php),
            Server::H2o => !matches!(kind, Kind::Respond | Kind::Php),
        }
    }

    fn version_flag(self) -> &'static str {
        match self {
            Server::Nagaya | Server::H2o => "--version",
            Server::Nginx | Server::Haproxy => "-v",
        }
    }
}

/// A server found on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) server: Server,
    pub(crate) binary: PathBuf,
    pub(crate) version: String,
}

impl Peer {
    /// Every server there is, and what was looked for in vain.
    pub(crate) fn find_all(options: &Options) -> (Vec<Peer>, Vec<String>) {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for server in ALL {
            if options.without.iter().any(|name| name == server.name()) {
                continue;
            }
            match Peer::find(server, options) {
                Some(peer) => found.push(peer),
                None => missing.push(server.name().to_owned()),
            }
        }
        (found, missing)
    }

    /// Starts it for `plan`, and waits until it answers.
    pub(crate) fn start(&self, bed: &Bed, plan: &Plan<'_>) -> Result<Running, Error> {
        let name = self.server.name();
        let home = bed.directory(&format!("{name}-{}", plan.label))?;
        let port = free_port()?;
        let command = peer_config::write(self, bed, plan, &home, port)?;
        let output = home.join("output");
        let mut process = Process::start(&command, plan.cores, &output)?;
        let probe = if self.server.can(Kind::Respond) {
            "/respond"
        } else {
            "/static/14.txt"
        };
        http::wait_until_up(port, probe, &mut process, &output)?;
        Ok(Running {
            name,
            process,
            port,
            home,
        })
    }

    fn find(server: Server, options: &Options) -> Option<Peer> {
        let given = options.peers.iter().find(|(name, _)| name == server.name());
        let binary = match (given, server) {
            (Some((_, path)), _) => path.clone(),
            (None, Server::Nagaya) => options.nagaya.clone(),
            (None, _) => on_path(server.name())?,
        };
        // Servers are started from their own directories.
        let binary = std::path::absolute(binary).ok()?;
        let version = version(&binary, server.version_flag())?;
        Some(Peer {
            server,
            binary,
            version,
        })
    }
}

/// A started server.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) name: &'static str,
    pub(crate) process: Process,
    pub(crate) port: u16,
    pub(crate) home: PathBuf,
}

/// Starts every peer that can do `kind`, or any kind where it is `None`.
pub(crate) fn start_all(
    peers: &[Peer],
    bed: &Bed,
    log: Log,
) -> Result<Vec<(Server, Running)>, Error> {
    let plan = Plan {
        label: if log == Log::On { "logging" } else { "quiet" },
        log,
        ..Plan::default()
    };
    peers
        .iter()
        .map(|peer| Ok((peer.server, peer.start(bed, &plan)?)))
        .collect()
}

/// A program in PATH or in the directories an ordinary user's PATH may lack.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The first line a program says about itself, on whichever stream.
pub(crate) fn version(binary: &Path, flag: &str) -> Option<String> {
    let output = Command::new(binary).arg(flag).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(
        line.split(" - http")
            .next()
            .unwrap_or(line)
            .trim()
            .to_owned(),
    )
}
