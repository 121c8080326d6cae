//! The control socket: answers `nagaya status` and what is asked of limits, on a thread of its own.
//!
//! One question a connection, one connection at a time, each with little time: whoever asks may
//! wait, the workers never do. Asked is in one line (`status`, `sensors`, `pools`, each with `json` after it or not,
//! `reload`, `upgrade`, `top`, or what [`questions`] knows), and only a whole one is carried out: the rest of `concurrent=40` may be
//! `0`. Only root and the server's own user are answered.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ipc::pools::PoolQuestion;
use ipc::server::LastReload;

use crate::error::{Error, Kind, Result};
use crate::figures;
use crate::figures::tenant::{self, TenantOrder};
use crate::figures::top::Looks;
use crate::figures::{certs, hosts, machines, standing};
use crate::permits::questions;
use crate::sensors::view::Report;
use crate::worker::Shared;

/// How often the thread looks whether another socket has taken its place.
const LOOK: Duration = Duration::from_millis(200);
/// How long a question may take, and each part of its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is said to a question nobody knows.
const UNKNOWN: &str = "error: unknown question; known are: status, reload, upgrade, sensors, pools, pools-restart, pools-stop, pools-clear, tenant-suspend, tenant-resume, tenant-kill, limits list, limits top, limits set, why, why-tls, certs, certs-renew, certs-rehearse, top, fleet, fleet-drain, fleet-undrain\n";
/// Bytes of a question without its line feed.
pub const QUESTION_BYTES_MAX: usize = 8 * 1_024;

/// The control socket in use.
#[derive(Debug, Default)]
pub struct Control {
    /// Told when another socket takes its place.
    replaced: Arc<AtomicBool>,
}

impl Control {
    /// Answers on `socket` from now on, and no longer on the one before.
    ///
    /// # Errors
    /// When no thread can be had; the one before goes on.
    pub fn replace(&mut self, socket: Option<OwnedFd>, shared: &Shared) -> Result<()> {
        let next = Arc::<AtomicBool>::default();
        if let Some(socket) = socket {
            let (replaced, shared) = (Arc::clone(&next), shared.clone());
            std::thread::Builder::new()
                .name("control".to_owned())
                .spawn(move || run(&socket, &replaced, &shared))
                .map_err(|error| Error::io(Kind::Internal, "control", &error))?;
        }
        self.replaced.store(true, Relaxed);
        self.replaced = next;
        Ok(())
    }
}

fn run(socket: &OwnedFd, replaced: &AtomicBool, shared: &Shared) {
    let mut looks = Looks::default();
    while !replaced.load(Relaxed) {
        let ready = os::net::wait_readable(&[socket.as_fd()], Some(LOOK));
        match ready.as_deref() {
            Ok([true]) => {}
            Ok(_) => continue,
            Err(_) => return,
        }
        if replaced.load(Relaxed) {
            return;
        }
        let accepted = os::process::with_reserve(|| os::net::accept(socket.as_fd()));
        let Ok((stream, _)) = accepted else {
            // A client that hung up, or one another thread took; or there is no room for it, which
            // the next look may find.
            std::thread::sleep(LOOK);
            continue;
        };
        if let Err(error) = answer(stream, shared, &mut looks) {
            let error = config::reason(&error);
            tracing::debug!(error, "control connection failed");
        }
    }
}

fn answer(stream: OwnedFd, shared: &Shared, looks: &mut Looks) -> io::Result<()> {
    let (_, user, _) = os::net::peer_credentials(stream.as_fd())?;
    let mut stream = UnixStream::from(stream);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if user != 0 && user != os::process::user_id() {
        return stream.write_all(b"error: only root and the gateway's own user may ask\n");
    }
    let Some(question) = question(&mut stream)? else {
        let most = QUESTION_BYTES_MAX;
        let why = format!("error: a question is a line that ends, of {most} bytes at most\n");
        return stream.write_all(why.as_bytes());
    };
    let question = String::from_utf8_lossy(question.trim_ascii()).into_owned();
    let answer = match question.as_str() {
        "status" => figures::table(&figures::collect(shared)),
        "status json" => control::json(&figures::collect(shared)),
        "reload" => told(&shared.process.tally().last_reload),
        "upgrade" => told(&shared.process.tally().last_upgrade),
        "pools" => standing::pools(shared, false),
        "pools json" => standing::pools(shared, true),
        "sensors" => Report::of_server(shared).table(),
        "sensors json" => Report::of_server(shared).json(),
        "directory" => hosts::answer(shared),
        "fleet" => machines::machines(shared, false),
        "fleet json" => machines::machines(shared, true),
        "fleet-drained" => machines::drained(shared),
        "top" => looks.answer(shared, ""),
        other if other.starts_with("top ") => {
            looks.answer(shared, other.strip_prefix("top ").unwrap_or_default())
        }
        other => answer_of_names(shared, other)
            .or_else(|| questions::answer(shared, other))
            .unwrap_or_else(|| UNKNOWN.to_owned()),
    };
    stream.write_all(answer.as_bytes())
}

/// Answers what is asked with a name of a host or tenant.
fn answer_of_names(shared: &Shared, question: &str) -> Option<String> {
    let (what, rest) = question.split_once(' ').unwrap_or((question, ""));
    match what {
        "why-tls" => Some(figures::why_tls(shared, rest)),
        "certs" => Some(certs::certs(shared, rest)),
        "certs-rehearse" => Some(certs::rehearse(shared, rest)),
        "certs-renew" => Some(certs::renew(shared, rest)),
        "pools-restart" => Some(standing::act(shared, rest, PoolQuestion::Restart)),
        "pools-stop" => Some(standing::act(shared, rest, PoolQuestion::Stop)),
        "tenant-suspend" => Some(tenant::act(shared, rest, TenantOrder::Suspend)),
        "tenant-resume" => Some(tenant::act(shared, rest, TenantOrder::Resume)),
        "tenant-kill" => Some(tenant::act(shared, rest, TenantOrder::Kill)),
        "directory-show" => Some(hosts::show(shared, rest)),
        "directory-forget" => Some(hosts::forget(shared, rest)),
        "fleet-drain" => Some(machines::drain(shared, rest, true)),
        "fleet-undrain" => Some(machines::drain(shared, rest, false)),
        "pools-clear" => Some(standing::act(shared, rest, PoolQuestion::Clear)),
        _ => None,
    }
}

/// When the last reload or upgrade began and how it ended, in a line, and below it what is said of it.
fn told(last: &LastReload) -> String {
    let (begun_us, outcome) = (last.begun_us, last.outcome.word());
    format!("{begun_us} {outcome}\n{}", last.told)
}

/// Reads a line; `None` where the stream ends before, or the line is longer than a question.
fn question(stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() <= QUESTION_BYTES_MAX && stream.read(&mut byte)? == 1 {
        if byte == *b"\n" {
            return Ok(Some(line));
        }
        line.extend_from_slice(&byte);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::time::Instant;

    use super::*;
    use crate::fixture::Fixture;

    const SITES: &str = r#"
[[sites]]
hosts = ["a"]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("nagaya-{name}-{}", std::process::id()))
    }

    fn ask(path: &std::path::Path, question: &str) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(question.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn questions_are_answered_until_the_socket_is_replaced() {
        let fixture = Fixture::new(SITES);
        let path = path("control");
        let bind = || {
            let _ = std::fs::remove_file(&path);
            os::net::bind_unix(&path, 9, 0o600).unwrap()
        };
        let mut control = Control::default();
        let first = bind();
        let watched = first.try_clone().unwrap();
        control.replace(Some(first), &fixture.shared).unwrap();
        assert!(ask(&path, "status\n").starts_with("nagaya "));
        assert!(ask(&path, "status json\n").starts_with("{\"version\":"));
        assert!(ask(&path, "shutdown\n").starts_with("error: unknown question"));
        let longest = "x".repeat(QUESTION_BYTES_MAX) + "\n";
        assert!(ask(&path, &longest).starts_with("error: unknown question"));
        control.replace(Some(bind()), &fixture.shared).unwrap();
        assert!(ask(&path, "status\n").starts_with("nagaya "));
        drop(watched);
        control.replace(None, &fixture.shared).unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_question_without_its_end_is_refused() {
        let fixture = Fixture::new(SITES);
        for question in ["status".to_owned(), "x".repeat(QUESTION_BYTES_MAX + 1)] {
            let (mut client, server) = UnixStream::pair().unwrap();
            client.write_all(question.as_bytes()).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            answer(server.into(), &fixture.shared, &mut Looks::default()).unwrap();
            let mut said = String::new();
            client.read_to_string(&mut said).unwrap();
            assert!(said.starts_with("error: a question is a line"), "{said}");
        }
    }

    #[test]
    fn a_silent_client_is_sent_away() {
        let fixture = Fixture::new(SITES);
        let (client, server) = UnixStream::pair().unwrap();
        let started = Instant::now();
        let answered = answer(server.into(), &fixture.shared, &mut Looks::default());
        assert_eq!(answered.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(started.elapsed() >= PATIENCE);
        drop(client);
    }
}
