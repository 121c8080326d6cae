//! Pebble, an authority for tests, and beside it a name server that has every name here.
//!
//! The idea: it is as an authority is, but refuses good nonces where it is told to, forgets all when
//! it ends, and asks on ports that are free. Debian's knows neither profiles nor windows of renewal:
//! `scripts/pebble.sh` makes one that does, and `NAGAYA_PEBBLE` names it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::skip::lacks_program;
use crate::temp::TempDir;
use crate::wait::{PATIENCE, eventually, free_port};

/// The key that accounts may be bound with: what it is called, and it in base64url.
const BINDING: (&str, &str) = (
    "kid-1",
    "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W",
);

/// A running Pebble; ended when dropped.
#[derive(Debug)]
pub struct Pebble {
    pebble: Child,
    names: Child,
    directory: TempDir,
    listen: u16,
    reports: u16,
    management: u16,
    http: u16,
    tls: u16,
}

/// Whether accounts must be bound to [`Pebble::binding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accounts {
    /// Anybody gets one.
    Free,
    /// Those with a binding.
    Bound,
}

impl Pebble {
    /// Starts both; `settings` are variables of Pebble's. `None`, and a line on stderr, where they
    /// are not installed.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    pub fn start(accounts: Accounts, settings: &[(&str, &str)]) -> Option<Self> {
        let program = std::env::var_os("NAGAYA_PEBBLE").unwrap_or_else(|| "/usr/bin/pebble".into());
        let names = Path::new("/usr/bin/pebble-challtestsrv");
        if !Path::new(&program).exists() || !names.exists() {
            lacks_program("pebble");
            return None;
        }
        let directory = TempDir::new();
        let [listen, reports, http, tls, dns, management] = [(); 6].map(|()| free_port());
        let certificate = keys().join("localhost.pem");
        let certificate = certificate.display();
        let (id, key) = BINDING;
        let bound = accounts == Accounts::Bound;
        let config = directory.write(
            "pebble.json",
            format!(
                r#"{{"pebble": {{"listenAddress": "127.0.0.1:{listen}",
                "managementListenAddress": "127.0.0.1:{reports}",
                "certificate": "{certificate}", "privateKey": "{certificate}",
                "httpPort": {http}, "tlsPort": {tls}, "ocspResponderURL": "",
                "profiles": {{"default": {{"validityPeriod": 7776000}},
                              "shortlived": {{"validityPeriod": 518400}}}},
                "externalAccountBindingRequired": {bound},
                "externalAccountMACKeys": {{"{id}": "{key}"}}}}}}"#
            ),
        );
        let log = |name| std::fs::File::create(directory.path().join(name)).expect("a log file");
        let names = Command::new(names)
            .args(["-defaultIPv6", "", "-http01", ""])
            .args(["-https01", "", "-tlsalpn01", ""])
            .args(["-dns01", &format!("127.0.0.1:{dns}")])
            .args(["-management", &format!("127.0.0.1:{management}")])
            .stdin(Stdio::null())
            .stdout(log("names.log"))
            .stderr(Stdio::null())
            .spawn()
            .expect("start pebble-challtestsrv");
        let pebble = Command::new(program)
            .arg("-config")
            .arg(config)
            .args(["-dnsserver", &format!("127.0.0.1:{dns}")])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(log("pebble.log"))
            .stderr(log("pebble.err"))
            .spawn()
            .expect("start pebble");
        // Ended, too, where one of them does not come up.
        let started = Self {
            pebble,
            names,
            directory,
            listen,
            reports,
            management,
            http,
            tls,
        };
        for (what, port) in [("pebble", listen), ("its names", management)] {
            eventually(PATIENCE, what, || {
                TcpStream::connect(("127.0.0.1", port)).ok()
            });
        }
        Some(started)
    }

    /// The URL of its directory.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://localhost:{}/dir", self.listen)
    }

    /// The file with the authority that its own certificate comes from.
    #[must_use]
    pub fn authorities(&self) -> PathBuf {
        keys().join("authority.pem")
    }

    /// The name of the key that accounts may be bound with, and the key in base64url.
    #[must_use]
    pub fn binding(&self) -> (&'static str, &'static str) {
        BINDING
    }

    /// The port it asks for HTTP-01.
    #[must_use]
    pub fn http_port(&self) -> u16 {
        self.http
    }

    /// The port it asks for TLS-ALPN-01.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls
    }

    /// What it has written down of what it was asked.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("pebble.log")).unwrap_or_default()
    }

    /// The port of its own management, which speaks https: `POST /set-renewal-info/`.
    #[must_use]
    pub fn reports_port(&self) -> u16 {
        self.reports
    }

    /// The port of the name server's management: `POST /set-txt`, `/clear-txt`.
    #[must_use]
    pub fn names_port(&self) -> u16 {
        self.management
    }

    /// Has a name answered with a text (`TXT`), which ends with a dot: `_acme-challenge.a.example.`.
    ///
    /// # Panics
    /// When the name server does not take it.
    pub fn set_text(&self, name: &str, text: &str) {
        let body = format!(r#"{{"host": "{name}", "value": "{text}"}}"#);
        let request = format!(
            "POST /set-txt HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.management)).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("ask");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains(" 200 "), "{answer}");
    }
}

/// Where the certificate of `localhost` lies, and who has signed it.
fn keys() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../stores/tests/keys")
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for child in [&mut self.pebble, &mut self.names] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
