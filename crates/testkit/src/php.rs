//! php-fpm as a process of the test's own: its pool, its socket, its directory.
//!
//! Runs as the test does; started by root its children are `nobody`. Needs no service and touches
//! none that runs here.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::temp::TempDir;
use crate::wait::{PATIENCE, eventually, free_port};

/// Where php-fpm listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// On a Unix socket.
    Unix,
    /// On a TCP port.
    Tcp,
}

/// A running php-fpm; ended with its children when dropped.
#[derive(Debug)]
pub struct PhpFpm {
    child: Child,
    address: String,
    directory: TempDir,
}

impl PhpFpm {
    /// Starts one with so many processes; `settings` are further lines of its pool. `None`, and a
    /// line on stderr, when there is no php-fpm.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(listen: Listen, processes: usize, settings: &str) -> Option<Self> {
        let program = find_php_fpm()?;
        let directory = TempDir::new();
        let port = free_port();
        let (listens, address) = match listen {
            Listen::Unix => {
                let socket = directory.path().join("php.sock").display().to_string();
                (socket.clone(), format!("unix:{socket}"))
            }
            Listen::Tcp => (format!("127.0.0.1:{port}"), format!("127.0.0.1:{port}")),
        };
        let log = directory.path().join("fpm.log").display().to_string();
        let mut config = format!(
            "[global]\nerror_log = {log}\nlog_level = notice\ndaemonize = no\n[test]\n\
             listen = {listens}\nlisten.mode = 0666\npm = static\npm.max_children = {processes}\n\
             pm.status_path = /fpm-status\n"
        );
        if geteuid().is_root() {
            config.push_str("user = nobody\ngroup = nogroup\n");
        }
        // Writing to memory does not fail.
        let _ = writeln!(config, "{settings}");
        let file = directory.write("php-fpm.conf", config);
        let child = Command::new(program)
            .arg("--nodaemonize")
            .arg("--fpm-config")
            .arg(file)
            .arg("-p")
            .arg(directory.path())
            // No configuration of the machine's but the extensions it loads.
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start php-fpm");
        let mut php = Self {
            child,
            address,
            directory,
        };
        php.wait_until_it_listens(SocketAddr::from(([127, 0, 0, 1], port)), listen);
        Some(php)
    }

    /// Its address as the gateway's configuration has it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        let log = std::fs::read(self.directory.path().join("fpm.log"));
        String::from_utf8_lossy(&log.unwrap_or_default()).into_owned()
    }

    /// Its own directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn wait_until_it_listens(&mut self, address: SocketAddr, listen: Listen) {
        let socket = self.directory.path().join("php.sock");
        eventually(PATIENCE, "php-fpm to listen", || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("php-fpm ended with {status}: {}", self.log());
            }
            match listen {
                Listen::Unix => UnixStream::connect(&socket).map(drop).ok(),
                Listen::Tcp => TcpStream::connect(address).map(drop).ok(),
            }
        });
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // It ends its children only when it is asked to end.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        for _ in 0..200 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds php-fpm where Debian puts it, of whatever version; says so when it is missing.
#[must_use]
pub fn find_php_fpm() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"]
        .iter()
        .filter_map(|directory| std::fs::read_dir(directory).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let version = name.strip_prefix("php-fpm");
            let digits = |text: &str| {
                text.bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'.')
            };
            version.is_some_and(digits) && path.is_file()
        })
        .collect();
    found.sort();
    if found.is_empty() {
        crate::lacks_program("php-fpm");
    }
    found.pop()
}
