//! `nagaya status`: one question to the control socket, its answer printed.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::cli::StatusOptions;
use crate::outcome::{Outcome, complain, load, print, wrong_config};

/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Asks the running gateway how it is.
pub(crate) fn run(config: &Path, options: &StatusOptions) -> Outcome {
    if let Some(socket) = &options.socket {
        return show(socket, options);
    }
    match load(config) {
        Err(problems) => wrong_config(&problems),
        Ok(loaded) => match loaded.model.control {
            Some(control) => show(&control.socket, options),
            None => without_control(config),
        },
    }
}

fn show(socket: &Path, options: &StatusOptions) -> Outcome {
    let question = if options.json {
        "status json\n"
    } else {
        "status\n"
    };
    match ask(socket, question) {
        Ok(answer) => print(&answer),
        Err(error) => {
            let (path, why) = (socket.display(), config::reason(&error));
            let advice = advice(&error);
            complain(&format!(
                "nagaya: ask the gateway at {path}: {why}\n{advice}"
            ));
            Outcome::Failed
        }
    }
}

fn ask(socket: &Path, question: &str) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(question.as_bytes())?;
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
            "  it does not run, or runs with another configuration: nagaya status -c FILE\n"
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
