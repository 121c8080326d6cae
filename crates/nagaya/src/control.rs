//! Asking the running gateway over its control socket: one question, one answer.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use config::Sources;
use engine::control::QUESTION_BYTES_MAX;

use crate::cli;
use crate::outcome::{Outcome, complain, print, wrong_config};
use supervisor::load::load_without_overrides;

/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often is asked again where somebody watches.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Clears a terminal and begins at its first line.
pub(crate) const CLEAR: &[u8] = b"\x1b[H\x1b[2J";
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How an answer begins that says why there is none.
const FAILURE: &[u8] = b"error: ";

/// Where to ask.
#[derive(Debug, Default, Args)]
pub(crate) struct Where {
    /// Control socket to ask, instead of the one the configuration names
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// The running gateway.
pub(crate) struct Running {
    socket: PathBuf,
}

/// Asks, and prints what is answered.
pub(crate) fn show(config: &Path, place: &Where, question: &str) -> Outcome {
    let answer = Running::find(config, place).and_then(|running| running.answer(question));
    printed(answer)
}

/// Asks again every second, and shows each answer at the beginning of a terminal.
pub(crate) fn watch(config: &Path, place: &Where, question: &str) -> Outcome {
    let running = match Running::find(config, place) {
        Ok(running) => running,
        Err(outcome) => return outcome,
    };
    loop {
        let answer = match running.answer(question) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        match print(&[CLEAR, &answer].concat()) {
            Outcome::Fine => std::thread::sleep(EVERY),
            outcome => return outcome,
        }
    }
}

/// Tells what to do, and prints what came of it.
pub(crate) fn carry_out(config: &Path, place: &Where, order: &str) -> Outcome {
    let answer = Running::find(config, place).and_then(|running| running.done(order));
    printed(answer)
}

/// The gateway a configuration names, if it runs; else why it cannot be asked.
pub(crate) fn answering(config: &Path) -> Result<Running, String> {
    let file = config.display();
    let loaded = load_without_overrides(config).map_err(|_| unreadable(config, config.exists()))?;
    let control = loaded.model.control;
    let socket = control.map(|control| control.socket);
    let socket = socket.ok_or_else(|| format!("{file} has no [control] with a socket to ask"))?;
    match UnixStream::connect(&socket) {
        Ok(_) => Ok(Running { socket }),
        Err(error) => {
            let (path, why) = (socket.display(), config::reason(&error));
            Err(format!("ask the gateway at {path}: {why}"))
        }
    }
}

/// Why a configuration names no gateway.
pub(crate) fn unreadable(config: &Path, is_there: bool) -> String {
    let file = config.display();
    if is_there {
        return format!("{file} is wrong (nagaya check -c {file})");
    }
    // Where none is named the installed one is looked for as well.
    let both = match config == Path::new(cli::CONFIG) {
        true => format!("neither {file} nor {} is there", cli::CONFIG_INSTALLED),
        false => format!("{file} is not there"),
    };
    format!("{both}: name the configuration with -c FILE")
}

/// Prints an answer, if there is one.
pub(crate) fn printed(answer: Result<Vec<u8>, Outcome>) -> Outcome {
    match answer {
        Ok(answer) => print(&answer),
        Err(outcome) => outcome,
    }
}

impl Running {
    /// Finds where to ask. What goes wrong has been told, here and below.
    pub(crate) fn find(config: &Path, place: &Where) -> Result<Running, Outcome> {
        let socket = match &place.socket {
            Some(socket) => socket.clone(),
            None => socket(config)?,
        };
        Ok(Running { socket })
    }

    /// The gateway that answers at this socket.
    pub(crate) fn at(socket: PathBuf) -> Running {
        Running { socket }
    }

    /// The gateway whose socket is named, whatever is wrong with the configuration.
    pub(crate) fn named(config: &Path, place: &Where) -> Option<Running> {
        let socket = match &place.socket {
            Some(socket) => Some(socket.clone()),
            None => Sources::read(config).ok()?.control_socket(),
        };
        socket.map(|socket| Running { socket })
    }

    /// The process that made the socket, as the kernel knows it: the supervisor.
    pub(crate) fn process(&self) -> io::Result<u32> {
        let stream = UnixStream::connect(&self.socket)?;
        let (process, _, _) = os::net::peer_credentials(stream.as_fd())?;
        Ok(process)
    }

    /// Asks, and hands out why not.
    pub(crate) fn try_ask(&self, question: &str) -> io::Result<Vec<u8>> {
        ask(&self.socket, question)
    }

    /// Says why the gateway cannot be asked.
    pub(crate) fn failed(&self, error: &io::Error) -> Outcome {
        let (path, why) = (self.socket.display(), config::reason(error));
        let advice = advice(error);
        complain(&format!(
            "nagaya: ask the gateway at {path}: {why}\n{advice}"
        ));
        Outcome::Failed
    }

    /// Asks.
    pub(crate) fn answer(&self, question: &str) -> Result<Vec<u8>, Outcome> {
        self.ask(question, Outcome::Failed)
    }

    /// Tells what to do: an order that is refused is wrong use.
    pub(crate) fn done(&self, order: &str) -> Result<Vec<u8>, Outcome> {
        self.ask(order, Outcome::Wrong)
    }

    /// Asks; `refused` is what a refusal comes to.
    fn ask(&self, question: &str, refused: Outcome) -> Result<Vec<u8>, Outcome> {
        if question.len() > QUESTION_BYTES_MAX {
            let (bytes, most) = (question.len(), QUESTION_BYTES_MAX);
            complain(&format!(
                "nagaya: this has {bytes} bytes, and the gateway reads {most} at most: shorten it, or change the configuration and reload\n"
            ));
            return Err(Outcome::Wrong);
        }
        let answer = self
            .try_ask(question)
            .map_err(|error| self.failed(&error))?;
        match answer.strip_prefix(FAILURE) {
            None => Ok(answer),
            Some(why) => {
                complain(&format!(
                    "nagaya: {}\n",
                    String::from_utf8_lossy(why.trim_ascii())
                ));
                Err(refused)
            }
        }
    }
}

/// The control socket a configuration names. What is wrong with the configuration on disk shall
/// keep nobody from asking the gateway that runs with an earlier one.
fn socket(config: &Path) -> Result<PathBuf, Outcome> {
    let problems = match load_without_overrides(config) {
        Ok(loaded) => {
            let control = loaded.model.control;
            return control.map_or_else(|| Err(without_control(config)), |it| Ok(it.socket));
        }
        Err(problems) => problems,
    };
    if !config.exists() {
        let why = unreadable(config, false);
        complain(&format!(
            "nagaya: {why}, or the gateway's socket with --socket PATH\n"
        ));
        return Err(Outcome::Wrong);
    }
    let named = Sources::read(config).ok();
    let Some(socket) = named.and_then(|sources| sources.control_socket()) else {
        let outcome = wrong_config(&problems);
        complain("to ask the running gateway all the same: --socket PATH\n");
        return Err(outcome);
    };
    let (file, at) = (config.display(), socket.display());
    complain(&format!(
        "nagaya: {file} is wrong (nagaya check -c {file}); asking the gateway at {at}, which it names\n"
    ));
    Ok(socket)
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

/// What to try.
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

/// Says that nobody can be asked.
pub(crate) fn without_control(config: &Path) -> Outcome {
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
    fn what_is_not_there_is_told_from_what_is_wrong() {
        let said = |config: &str, is_there| unreadable(Path::new(config), is_there);
        let both = "neither nagaya.toml nor /etc/nagaya/nagaya.toml is there: name the configuration with -c FILE";
        assert_eq!(said("nagaya.toml", false), both);
        assert!(said("a.toml", false).starts_with("a.toml is not there: name"));
        assert!(said("a.toml", true).contains("is wrong (nagaya check -c a.toml)"));
    }

    #[test]
    fn a_question_that_would_be_cut_is_not_sent() {
        let nobody = Where {
            socket: Some(PathBuf::from("/nonexistent/socket")),
        };
        for (bytes, outcome) in [
            (QUESTION_BYTES_MAX, Outcome::Failed),
            (QUESTION_BYTES_MAX + 1, Outcome::Wrong),
        ] {
            let running = Running::find(Path::new("nagaya.toml"), &nobody);
            let asked = running.and_then(|it| it.answer(&"x".repeat(bytes)));
            assert_eq!(asked, Err(outcome), "{bytes}");
        }
    }
}
