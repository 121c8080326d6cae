//! `nagaya reload` and `nagaya upgrade`: have the running gateway read its configuration again, or
//! give way to the program that is installed now, and wait for what comes of it.
//!
//! The idea: the order is a signal, as always; whose it is to send is the kernel's to say, and
//! so is whom to: the process that holds the control socket. What came of it the supervisor tells
//! the server, and that whoever asks there. What began after the signal was sent is
//! what was meant, whoever else wants the same at the same time.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use config::reason;
use os::signal::Signal;
use supervisor::load::load;

use crate::control::{Running, Where, without_control};
use crate::outcome::{Outcome, complain, print, wrong_config};

/// How long a reload may take before nobody waits for it any longer; a service manager's patience
/// is 90 s by default.
const PATIENCE: Duration = Duration::from_secs(80);
/// How often it is asked for meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `reload` and `upgrade`.
#[derive(Debug, Args)]
pub(crate) struct ReloadOptions {
    /// Process of `nagaya serve`, where no control socket leads to it: without `[control]` nobody can be
    /// asked what came of the reload
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    place: Where,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Read the configuration again.
    Reload,
    /// Run the program that is installed.
    Upgrade,
}

impl Order {
    /// Its word, as it is typed, and asked for.
    fn word(self) -> &'static str {
        match self {
            Order::Reload => "reload",
            Order::Upgrade => "upgrade",
        }
    }

    fn signal(self) -> Signal {
        match self {
            Order::Reload => Signal::Hangup,
            Order::Upgrade => Signal::User2,
        }
    }

    /// What goes on where it is refused.
    fn old(self) -> &'static str {
        match self {
            Order::Reload => "the old configuration serves on",
            Order::Upgrade => "the old program serves on",
        }
    }
}

/// What the gateway says of its last reload or upgrade.
struct Said {
    begun_us: u64,
    outcome: Outcome,
    told: String,
}

/// Has it done, and says what came of it.
pub(crate) fn run(order: Order, config: &Path, options: &ReloadOptions) -> Outcome {
    match (Running::named(config, &options.place), options.pid) {
        (Some(running), _) => carry_out(order, config, options, running),
        (None, Some(pid)) => signal_alone(order, config, pid),
        (None, None) => match load(config) {
            Ok(_) => without_control(config),
            Err(problems) => wrong_config(&problems),
        },
    }
}

/// Without a control socket the configuration is judged here; what the machine or a script says to
/// it is in the gateway's log.
fn signal_alone(order: Order, config: &Path, pid: u32) -> Outcome {
    let word = order.word();
    if let Err(problems) = load(config) {
        let outcome = wrong_config(&problems);
        complain(&format!(
            "nagaya: nothing was changed, and no {word} asked for\n"
        ));
        return outcome;
    }
    if let Err(outcome) = send(order, pid) {
        return outcome;
    }
    let file = config.display();
    print(
        format!(
            "the {word} was asked for; {file} names no control socket to ask what came of it: see the gateway's error log\n"
        )
        .as_bytes(),
    )
}

fn carry_out(
    order: Order,
    config: &Path,
    options: &ReloadOptions,
    mut running: Running,
) -> Outcome {
    let word = order.word();
    // Before the signal: what begins from now on has been asked for.
    let asked_us = os::cpu::monotonic_us();
    let pid = match (running.process(), options.pid) {
        (Ok(pid), _) => pid,
        // The socket may be one that the new configuration brings.
        (Err(_), Some(pid)) => pid,
        (Err(error), None) => return running.failed(&error),
    };
    if let Err(outcome) = send(order, pid) {
        return outcome;
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match running.try_ask(word) {
            Ok(answer) => match understood(order, &answer) {
                Ok(said) if said.begun_us >= asked_us => return told(order, &said),
                Ok(_) => {}
                Err(outcome) => return outcome,
            },
            Err(_) if !os::process::is_there(pid) => {
                complain(&format!(
                    "nagaya: the gateway (pid {pid}) has ended meanwhile\n"
                ));
                return Outcome::Failed;
            }
            // The server is being started again, or the reload moves the socket.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match Running::named(config, &Where::default()) {
                    Some(moved) => running = moved,
                    None => {
                        let done = format!(
                            "{word} done: the configuration in force has no control socket any more\n"
                        );
                        return print(done.as_bytes());
                    }
                }
            }
            Err(_) => {}
        }
        std::thread::sleep(LOOK);
    }
    let patience_s = PATIENCE.as_secs();
    complain(&format!(
        "nagaya: pid {pid} was told to {word} and has not said after {patience_s} s what came of it: scripts that start may take their time, or its server is being started again; see its error log\n"
    ));
    Outcome::Failed
}

fn send(order: Order, pid: u32) -> Result<(), Outcome> {
    os::process::send_signal(pid, order.signal()).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => ": only root and the gateway's own user may",
            _ => "",
        };
        let why = reason(&error);
        complain(&format!(
            "nagaya: tell process {pid} to {}: {why}{advice}\n",
            order.word()
        ));
        Outcome::Failed
    })
}

/// An answer, which begins with a line `BEGUN OUTCOME`.
fn understood(order: Order, answer: &[u8]) -> Result<Said, Outcome> {
    let text = String::from_utf8_lossy(answer);
    let read = || -> Option<Said> {
        let (line, told) = text.split_once('\n')?;
        let (begun_us, outcome) = line.split_once(' ')?;
        Some(Said {
            begun_us: begun_us.parse().ok()?,
            outcome: match outcome {
                "taken" => Outcome::Fine,
                "wrong" => Outcome::Wrong,
                _ => Outcome::Failed,
            },
            told: told.to_owned(),
        })
    };
    read().ok_or_else(|| {
        let said = text.trim_end();
        complain(&format!(
            "nagaya: it was told to {}, but does not say what came of it ({said}): see its error log\n",
            order.word()
        ));
        Outcome::Failed
    })
}

fn told(order: Order, said: &Said) -> Outcome {
    match said.outcome {
        Outcome::Fine => {
            let (summary, aside) = said.told.split_once('\n').unwrap_or((&said.told, ""));
            complain(aside);
            print(format!("{summary}\n").as_bytes())
        }
        refused => {
            complain(&said.told);
            let (word, old) = (order.word(), order.old());
            complain(&format!("nagaya: {word} refused, {old}\n"));
            refused
        }
    }
}
