//! Asking the running gateway over its control socket: one question, one answer.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use engine::control::QUESTION_BYTES_MAX;

use crate::outcome::{Outcome, complain, load_without_overrides, print, wrong_config};

/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How an answer begins that says why there is none.
const FAILURE: &[u8] = b"error: ";

/// Where to ask.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// Control socket to ask, instead of the one the configuration names
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// Asks, and prints what is answered.
pub(crate) fn show(config: &Path, place: &Where, question: &str) -> Outcome {
    match answer(config, place, question) {
        Ok(answer) => print(&answer),
        Err(outcome) => outcome,
    }
}

/// Asks; when there is no answer, the reason has been told.
pub(crate) fn answer(config: &Path, place: &Where, question: &str) -> Result<Vec<u8>, Outcome> {
    let socket = socket(config, place)?;
    if question.len() > QUESTION_BYTES_MAX {
        let (bytes, most) = (question.len(), QUESTION_BYTES_MAX);
        complain(&format!(
            "nagaya: this has {bytes} bytes, and the gateway reads {most} at most: shorten it, or change the configuration and reload\n"
        ));
        return Err(Outcome::Wrong);
    }
    let answer = ask(&socket, question).map_err(|error| {
        let (path, why) = (socket.display(), config::reason(&error));
        let advice = advice(&error);
        complain(&format!(
            "nagaya: ask the gateway at {path}: {why}\n{advice}"
        ));
        Outcome::Failed
    })?;
    match answer.strip_prefix(FAILURE) {
        None => Ok(answer),
        Some(why) => {
            complain(&format!(
                "nagaya: {}\n",
                String::from_utf8_lossy(why.trim_ascii())
            ));
            Err(Outcome::Failed)
        }
    }
}

fn socket(config: &Path, place: &Where) -> Result<PathBuf, Outcome> {
    if let Some(socket) = &place.socket {
        return Ok(socket.clone());
    }
    let loaded = load_without_overrides(config).map_err(|problems| wrong_config(&problems))?;
    match loaded.model.control {
        Some(control) => Ok(control.socket),
        None => Err(without_control(config)),
    }
}

fn ask(socket: &Path, question: &str) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(question.as_bytes())?;
    stream.write_all(b"\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it closed without an answer",
        ));
    }
    Ok(answer)
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "  it does not run, or runs with another configuration: name that with -c FILE\n"
        }
        io::ErrorKind::PermissionDenied => {
            "  only root and the gateway's own user may ask: try sudo\n"
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            "  it runs but did not answer within 5 s: see its error log\n"
        }
        _ => "",
    }
}

fn without_control(config: &Path) -> Outcome {
    let file = config.display();
    complain(&format!(
        "nagaya: {file} has no control socket, so there is nobody to ask; add\n\n    \
         [control]\n    socket = \"/run/nagaya.sock\"\n\n\
         and reload (systemctl reload nagaya, or kill -HUP of `nagaya serve`)\n"
    ));
    Outcome::Wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_would_be_cut_is_not_sent() {
        let nobody = Where {
            socket: Some(PathBuf::from("/nonexistent/socket")),
        };
        for (bytes, outcome) in [
            (QUESTION_BYTES_MAX, Outcome::Failed),
            (QUESTION_BYTES_MAX + 1, Outcome::Wrong),
        ] {
            let asked = answer(Path::new("nagaya.toml"), &nobody, &"x".repeat(bytes));
            assert_eq!(asked, Err(outcome), "{bytes}");
        }
    }
}
