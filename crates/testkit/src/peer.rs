//! Real servers of other projects, when the machine has them.
//!
//! The idea: a test against a real peer proves more than one against our own idea of it, but must
//! not fail on a developer's machine where that peer is not installed. A missing program is said on
//! stderr and the test returns early; in continuous integration it fails ([`crate::skip`]).

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::temp::TempDir;
use crate::wait::{eventually, free_port};

/// A running peer; killed when dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    address: SocketAddr,
    directory: TempDir,
}

impl Peer {
    /// Starts nginx in the foreground with `http` as the content of its http block, in which
    /// `{port}` and `{dir}` are filled in. `None`, and a line on stderr, when there is no nginx.
    #[must_use]
    pub fn nginx(http: &str) -> Option<Self> {
        let program = find_program("nginx")?;
        let directory = TempDir::new();
        let port = free_port();
        let dir = directory.path().display().to_string();
        let http = format!(
            "http {{\naccess_log off;\n\
             client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
             fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi;\n\
             scgi_temp_path {dir}/scgi;\n{http}\n}}\n"
        );
        Some(Self::run_nginx(&program, port, directory, &http))
    }

    /// As [`Peer::nginx`], with `stream` as the content of its stream block: it passes connections
    /// on. `None`, and a line on stderr, when there is no nginx or it lacks that module.
    #[must_use]
    pub fn nginx_stream(stream: &str) -> Option<Self> {
        const MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
        let program = find_program("nginx")?;
        if !Path::new(MODULE).exists() {
            crate::lacks_program("ngx_stream_module.so");
            return None;
        }
        let stream = format!("load_module {MODULE};\nstream {{\n{stream}\n}}\n");
        Some(Self::run_nginx(
            &program,
            free_port(),
            TempDir::new(),
            &stream,
        ))
    }

    fn run_nginx(program: &Path, port: u16, directory: TempDir, blocks: &str) -> Self {
        let dir = directory.path().display().to_string();
        let blocks = blocks
            .replace("{port}", &port.to_string())
            .replace("{dir}", &dir);
        let config = format!(
            "daemon off;\nmaster_process off;\npid {dir}/pid;\nerror_log {dir}/error.log;\n\
             {blocks}events {{ worker_connections 1024; }}\n"
        );
        let file = directory.write("nginx.conf", config);
        let mut command = Command::new(program);
        command.arg("-p").arg(directory.path()).arg("-c").arg(file);
        Self::run(command, port, directory)
    }

    /// Starts a Node script; it finds its port in `PORT` and must listen on 127.0.0.1. `None`,
    /// and a line on stderr, when there is no node.
    #[must_use]
    pub fn node(script: &str) -> Option<Self> {
        let program = find_program("node")?;
        let directory = TempDir::new();
        let port = free_port();
        let file = directory.write("peer.js", script);
        let mut command = Command::new(program);
        command.arg(file).env("PORT", port.to_string());
        Some(Self::run(command, port, directory))
    }

    /// Starts HAProxy with `sections` as the frontends and backends, in which `{port}` is filled
    /// in. `None`, and a line on stderr, when there is no HAProxy.
    #[must_use]
    pub fn haproxy(sections: &str) -> Option<Self> {
        let program = find_program("haproxy")?;
        let directory = TempDir::new();
        let port = free_port();
        let sections = sections.replace("{port}", &port.to_string());
        let config = format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n\
             timeout server 60s\n{sections}\n"
        );
        let file = directory.write("haproxy.cfg", config);
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(file);
        Some(Self::run(command, port, directory))
    }

    /// Starts a Python 3 script, as [`Peer::node`] does a Node one.
    #[must_use]
    pub fn python(script: &str) -> Option<Self> {
        let program = find_program("python3")?;
        let directory = TempDir::new();
        let port = free_port();
        let file = directory.write("peer.py", script);
        let mut command = Command::new(program);
        command.arg(file).env("PORT", port.to_string());
        Some(Self::run(command, port, directory))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its own directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn run(mut command: Command, port: u16, directory: TempDir) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let log = std::fs::File::create(directory.path().join("stderr")).expect("create log");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        eventually(Duration::from_secs(60), "a peer to listen", || {
            if let Ok(Some(status)) = child.try_wait() {
                let text = std::fs::read_to_string(directory.path().join("stderr"));
                panic!(
                    "{command:?} ended with {status}: {}",
                    text.unwrap_or_default()
                );
            }
            TcpStream::connect(address).ok()
        });
        Self {
            child,
            address,
            directory,
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds a program on the path or where Debian puts servers; says so when it is missing.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        crate::lacks_program(name);
    }
    found
}
