//! The test bed: a temporary directory with the files to serve, and the back end to forward to.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::http;
use super::peer_config;
use super::process::Process;
use crate::error::Error;

/// The core servers are pinned to.
pub(crate) const SERVER_CORE: &str = "0";
/// The core of the generator and the back end.
pub(crate) const CLIENT_CORE: &str = "1";

/// What `respond` and the small proxy row answer: 13 bytes.
pub(crate) const GREETING: &str = "hello, world!";

/// Files served as they are: name and size.
pub(crate) const FILES: [(&str, usize); 4] = [
    ("14.txt", 14),
    ("10k.txt", 10 * 1024),
    ("100k.txt", 100 * 1024),
    ("1m.txt", 1024 * 1024),
];

/// Access log of all servers, to a file in the combined format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    Off,
    On,
}

/// Everything the servers share. Dropping it stops the back end and removes the directory.
#[derive(Debug)]
pub(crate) struct Bed {
    /// `None` where no nginx is found: rows that forward are then skipped.
    backend: Option<Process>,
    backend_port: u16,
    /// `None` where no php-fpm is found.
    php: Option<(Process, PathBuf)>,
    directory: Directory,
}

impl Bed {
    /// Writes the files and starts the back end.
    pub(crate) fn new() -> Result<Bed, Error> {
        let directory = Directory::new()?;
        let files = directory.make("files/static")?;
        for (name, size) in FILES {
            let line = b"thick walls.\n";
            let body: Vec<u8> = line.iter().copied().cycle().take(size).collect();
            fs::write(files.join(name), body)
                .map_err(|e| Error::new(format!("write {name}"), e))?;
        }
        let backend_port = free_port()?;
        let mut bed = Bed {
            backend: None,
            backend_port,
            php: None,
            directory,
        };
        bed.start_backend()?;
        bed.start_php()?;
        Ok(bed)
    }

    /// Whether there is something to forward to.
    pub(crate) fn has_backend(&self) -> bool {
        self.backend.is_some()
    }

    /// The back end's port.
    pub(crate) fn backend_port(&self) -> u16 {
        self.backend_port
    }

    /// The socket of php-fpm, where there is one.
    pub(crate) fn php(&self) -> Option<&Path> {
        self.php.as_ref().map(|(_, socket)| socket.as_path())
    }

    /// The root of the served files; they lie in `static/` below it.
    pub(crate) fn files(&self) -> PathBuf {
        self.directory.0.join("files")
    }

    /// A directory of this run for `name`, made if need be and open to every user: servers started
    /// by root become somebody else.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf, Error> {
        self.directory.make(name)
    }

    fn start_backend(&mut self) -> Result<(), Error> {
        let Some(nginx) = super::peer::on_path("nginx") else {
            return Ok(());
        };
        let home = self.directory("backend")?;
        let text = peer_config::backend(&home, &self.files(), self.backend_port);
        let file = home.join("nginx.conf");
        fs::write(&file, text).map_err(|e| Error::new("write the back end's configuration", e))?;
        let command = peer_config::nginx_command(&nginx, &home, &file);
        let mut process = Process::start(&command, CLIENT_CORE, &home.join("output"))?;
        http::wait_until_up(
            self.backend_port,
            "/proxy/13",
            &mut process,
            &home.join("output"),
        )?;
        self.backend = Some(process);
        Ok(())
    }

    fn start_php(&mut self) -> Result<(), Error> {
        let Some(php) = find_php() else {
            return Ok(());
        };
        let page = self.directory("files/php")?.join("hello.php");
        fs::write(&page, format!("<?php echo '{GREETING}';"))
            .map_err(|e| Error::new("write the php page", e))?;
        let home = self.directory("php")?;
        let socket = home.join("php.sock");
        let file = home.join("fpm.conf");
        fs::write(&file, peer_config::php(&home, &socket))
            .map_err(|e| Error::new("write php-fpm's configuration", e))?;
        let command = peer_config::php_command(&php, &file);
        let mut process = Process::start(&command, CLIENT_CORE, &home.join("output"))?;
        http::wait_until_listening(&socket, &mut process, &home.join("output"))?;
        self.php = Some((process, socket));
        Ok(())
    }
}

/// Debian names the program by its version: `php-fpm8.2`.
fn find_php() -> Option<PathBuf> {
    let entries = fs::read_dir("/usr/sbin").ok()?.flatten();
    let names = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("php-fpm"));
    names.map(|entry| entry.path()).max()
}

/// A port nobody listens on now.
pub(crate) fn free_port() -> Result<u16, Error> {
    let socket = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    socket
        .map(|address| address.port())
        .map_err(|e| Error::new("find a free port", e))
}

/// A temporary directory, gone with its owner.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Directory, Error> {
        let path = std::env::temp_dir().join(format!("nagaya-bench.{}", std::process::id()));
        open_to_all(&path)?;
        Ok(Directory(path))
    }

    fn make(&self, name: &str) -> Result<PathBuf, Error> {
        let mut path = self.0.clone();
        for part in Path::new(name) {
            path.push(part);
            open_to_all(&path)?;
        }
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open_to_all(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o777)))
        .map_err(|e| Error::new(format!("make directory {}", path.display()), e))
}
