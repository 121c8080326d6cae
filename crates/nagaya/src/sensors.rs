//! `nagaya sensors`: what the running gateway measures, or, where none runs, what this machine says.
//!
//! The idea: whoever asks wants to know how the machine is, whether or not a gateway answers. So
//! one that cannot be asked is told of and done without, unless its socket was named.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use engine::sensors::sampling::Here;
use engine::sensors::view::Report;

use crate::control::{self, CLEAR, EVERY, Running, Where};
use crate::outcome::{Outcome, complain, print};

/// Between two samples of this machine.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Samples taken before the first answer: what is told by the second needs one.
const SAMPLES: usize = 11;

/// Options of `sensors`.
#[derive(Debug, Args)]
pub(crate) struct SensorsOptions {
    /// Print JSON: one object, with --watch one a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Ask again every second until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) place: Where,
}

/// Who tells.
enum Teller {
    Gateway(Running),
    Machine(Box<Here>),
}

/// Shows all sensors.
pub(crate) fn run(config: &Path, options: &SensorsOptions) -> Outcome {
    let mut teller = match teller(config, options) {
        Ok(teller) => teller,
        Err(outcome) => return outcome,
    };
    let clears = options.watch && !options.json && std::io::stdout().is_terminal();
    loop {
        let answer = match teller.tell(options) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        if clears && std::io::stdout().lock().write_all(CLEAR).is_err() {
            return Outcome::Fine;
        }
        let printed = print(&answer);
        if !options.watch || printed != Outcome::Fine {
            return printed;
        }
        teller.wait();
    }
}

fn teller(config: &Path, options: &SensorsOptions) -> Result<Teller, Outcome> {
    if options.place.socket.is_some() {
        return Running::find(config, &options.place).map(Teller::Gateway);
    }
    match control::answering(config) {
        Ok(running) => Ok(Teller::Gateway(running)),
        Err(why) => {
            complain(&format!(
                "nagaya: {why}; what follows is what this machine says without a gateway\n\n"
            ));
            Ok(Teller::Machine(Box::new(Here::look())))
        }
    }
}

impl Teller {
    fn tell(&mut self, options: &SensorsOptions) -> Result<Vec<u8>, Outcome> {
        match self {
            Self::Gateway(running) => running.answer(match options.json {
                true => "sensors json",
                false => "sensors",
            }),
            Self::Machine(here) => {
                for _ in 1..SAMPLES {
                    here.sample();
                    std::thread::sleep(SAMPLE_EVERY);
                }
                let snapshot = here.sample();
                let report = Report::of_machine(here, &snapshot);
                let page = match options.json {
                    true => report.json(),
                    false => report.table(),
                };
                Ok(page.into_bytes())
            }
        }
    }

    /// Sampling takes a second by itself.
    fn wait(&self) {
        if matches!(self, Self::Gateway(_)) {
            std::thread::sleep(EVERY);
        }
    }
}
