//! The server process: what happens between its start and the engine's.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use config::reason;
use ipc::server::{Configure, ToServer};

use crate::outcome::Outcome;

/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);

/// Serves what the supervisor says. Privileges go before anything is read.
pub(crate) fn run(user: &str) -> Outcome {
    let dropped = os::confine::bar_capabilities().and_then(|()| os::process::drop_privileges(user));
    error_log::start("server");
    let outcome = match dropped.map_err(|error| format!("become user {user}: {}", reason(&error))) {
        Ok(()) => serve(),
        Err(problem) => Err(problem),
    };
    if let Err(problem) = &outcome {
        tracing::error!("{problem}");
    }
    error_log::flush(FLUSH);
    if outcome.is_ok() {
        Outcome::Fine
    } else {
        Outcome::Failed
    }
}

fn serve() -> Result<(), String> {
    let (link, first) =
        begin().map_err(|error| format!("hear from the supervisor: {}", reason(&error)))?;
    engine::serve(link, first).map_err(|error| error.to_string())
}

fn begin() -> io::Result<(OwnedFd, Configure)> {
    os::process::set_name("nagaya-server");
    let link = os::process::take_stdin()?;
    os::process::die_with_parent(&link)?;
    os::process::raise_nofile()?;
    match ToServer::recv(link.as_fd())? {
        Ok(ToServer::Configure(first)) => Ok((link, first)),
        Err(_) => Err(io::Error::other(
            "its sockets and logs are more descriptors than may be open: raise the limit (LimitNOFILE, ulimit -Hn)",
        )),
        _ => Err(io::Error::other(
            "it said something else before the configuration",
        )),
    }
}
