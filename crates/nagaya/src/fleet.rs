//! `nagaya fleet`: the machines that share limits, as the store knows them; draining one of them; asking the store from here.
//!
//! The idea: what is shown and ordered goes through the running gateway, which has the password; `check` asks the store
//! itself, as `directory check` asks sources. Who drains a machine sees how far that is, until it is idle or time is up.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use control::{FleetMachine, FleetMachines};
use supervisor::load::load;

use crate::control::{EVERY, Running, Where, show};
use crate::outcome::{Outcome, complain, print, wrong_config};

/// So many times the longest answer of the store is the least that a lease should be.
const LEASE_TRIPS_MIN: u32 = 10;

/// How long a drained machine is asked by others still: agents look each second, and balancers each two of them.
const HEARING: Duration = Duration::from_secs(5);

/// Options of `fleet`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct FleetOptions {
    #[command(subcommand)]
    command: Option<FleetCommand>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// What is done with the machines of a fleet.
#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Have a machine asked for nothing new, from any machine of the fleet, and wait until it is idle
    ///
    /// Its agent says `drain`, its connections end with their reply, its permits go back as requests end; what still comes is
    /// served. It stays so over restarts, until `nagaya fleet undrain`. The exit status is 1 where it is not idle in time, and
    /// where the store does not answer: then only the machine itself can be drained, by typing it there.
    Drain(DrainOptions),
    /// Have a machine that is drained serve again, and wait until it does
    Undrain(DrainOptions),
    /// Ask the store from here: whether it lets do all that is needed, and whether `lease` is long enough for the way there
    ///
    /// It asks as whoever types this, and needs no running gateway. `nagaya check` and a reload never connect. The exit status
    /// is 1 where something is wrong.
    Check,
}

/// Which machine, and for how long it is waited for.
#[derive(Debug, Args)]
struct DrainOptions {
    /// The machine, as `nagaya fleet` lists it
    #[arg(value_name = "MACHINE")]
    machine: String,
    /// How long to wait; the order stands when that is over
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    timeout: u32,
    #[command(flatten)]
    place: Where,
}

/// Runs `nagaya fleet …`.
pub(crate) fn run(config: &Path, options: &FleetOptions) -> Outcome {
    match &options.command {
        Some(FleetCommand::Drain(options)) => order(config, options, false).unwrap_or_else(|it| it),
        Some(FleetCommand::Undrain(options)) => {
            order(config, options, true).unwrap_or_else(|it| it)
        }
        Some(FleetCommand::Check) => check(config),
        None => {
            let question = if options.json { "fleet json" } else { "fleet" };
            show(config, &options.place, question)
        }
    }
}

fn order(config: &Path, options: &DrainOptions, undo: bool) -> Result<Outcome, Outcome> {
    let name = &options.machine;
    if name.is_empty() || name.contains(|it: char| it.is_whitespace() || it.is_control()) {
        let name = name.escape_debug();
        complain(&format!("nagaya: `{name}` is no name of a machine\n"));
        return Err(Outcome::Wrong);
    }
    let word = if undo { "fleet-undrain" } else { "fleet-drain" };
    let running = Running::find(config, &options.place)?;
    let answer = running.done(&format!("{word} {name}"))?;
    let answer = String::from_utf8_lossy(&answer);
    if let Some(told) = unheard(name, undo, answer.trim_end()) {
        complain(&format!("nagaya: {told}\n"));
        return Err(Outcome::Failed);
    }
    follow(&running, options, undo)
}

/// What was done and what not, where the store has not said that it has the order.
fn unheard(name: &str, undo: bool, answer: &str) -> Option<String> {
    let (done, why) = answer.split_once(": ")?;
    let (word, done_here) = match undo {
        true => ("undrain", "serves"),
        false => ("drain", "is drained"),
    };
    Some(match done {
        "here" => {
            format!("{why}: {name} {done_here}, and the store hears of it when it answers")
        }
        _ => format!(
            "{why}: whether the store has the order is not known, `nagaya fleet` tells it when it answers; `nagaya fleet {word} {name}` typed on {name} needs no store"
        ),
    })
}

/// Tells how far a machine is, until it is so or time is up.
fn follow(running: &Running, options: &DrainOptions, undo: bool) -> Result<Outcome, Outcome> {
    let name = &options.machine;
    let until = Instant::now() + Duration::from_secs(options.timeout.into());
    let mut told = String::new();
    let (mut drained, mut lost) = (None::<Instant>, None::<Instant>);
    loop {
        // What does not answer for a moment is asked again, as long as there is time.
        let answer = running.try_ask("fleet json").unwrap_or_default();
        let answer = FleetMachines::of_json(&String::from_utf8_lossy(&answer));
        let mut machines = answer.unwrap_or_default().machines.into_iter();
        let machine = machines.find(|it| it.machine == *name);
        let is_drained = machine.as_ref().is_some_and(|it| it.drained);
        drained = drained.or_else(|| is_drained.then(Instant::now));
        let is_heard = drained.is_some_and(|since| since.elapsed() >= HEARING);
        let (line, is_done) = progress(machine.as_ref(), undo, is_heard);
        if line != told {
            match print(format!("{name}: {line}\n").as_bytes()) {
                Outcome::Fine => told = line,
                outcome => return Err(outcome),
            }
        }
        if is_done {
            return Ok(Outcome::Fine);
        }
        let is_lost = machine.as_ref().is_some_and(FleetMachine::is_lost);
        lost = lost
            .filter(|_| is_lost)
            .or_else(|| is_lost.then(Instant::now));
        if lost.is_some_and(|since| since.elapsed() >= HEARING) {
            let order = if undo { "to serve" } else { "to be drained" };
            complain(&format!(
                "nagaya: {name} is lost: the order {order} stands for when it is back\n"
            ));
            return Ok(Outcome::Failed);
        }
        if Instant::now() >= until {
            let seconds = options.timeout;
            let how = if undo {
                ""
            } else {
                ", and `nagaya fleet undrain` ends it"
            };
            complain(&format!(
                "nagaya: not done after {seconds} s: the order stands{how}\n"
            ));
            return Ok(Outcome::Failed);
        }
        std::thread::sleep(EVERY);
    }
}

/// How far it is, and whether that is all.
fn progress(machine: Option<&FleetMachine>, undo: bool, is_heard: bool) -> (String, bool) {
    let Some(it) = machine else {
        return ("nobody says how it is".to_owned(), false);
    };
    if it.is_lost() {
        return ("not heard of lately".to_owned(), false);
    }
    let held = it.leases.iter().map(|lease| lease.leased);
    let held = held.fold(0, u64::saturating_add);
    let in_flight = it.in_flight;
    match (undo, it.drained) {
        (true, false) => ("serves".to_owned(), true),
        (true, true) | (false, false) => ("has not heard of it yet".to_owned(), false),
        (false, true) if in_flight == 0 && held == 0 && is_heard => {
            ("drained, and idle".to_owned(), true)
        }
        (false, true) if in_flight == 0 && held == 0 => {
            ("idle; balancers are still to hear of it".to_owned(), false)
        }
        (false, true) => {
            let line = format!("drains: {in_flight} requests under way, {held} permits held");
            (line, false)
        }
    }
}

fn check(config: &Path) -> Outcome {
    let model = match load(config) {
        Ok(loaded) => loaded.model,
        Err(problems) => return wrong_config(&problems),
    };
    let Some(fleet) = &model.fleet else {
        complain("nagaya: the configuration has no `[fleet]`\n");
        return Outcome::Wrong;
    };
    let settings = supervisor::fleet_settings(fleet);
    let checked = settings.and_then(|it| {
        let name = it.machine.clone();
        Ok((name, ::directory::check_fleet(it)?))
    });
    let (name, checked) = match checked {
        Ok(checked) => checked,
        Err(why) => {
            complain(&format!("nagaya: {why}\n"));
            return Outcome::Failed;
        }
    };
    let lease = Duration::from_millis(fleet.lease_ms);
    let (mut line, mut is_fine) = judged(checked.longest, lease);
    if checked.has_namesake {
        is_fine = false;
        line.push_str(&format!(
            "several machines are called {name}: give each a `machine` of its own in [fleet]\n"
        ));
    }
    match checked.evicts {
        Some(true) => {
            is_fine = false;
            line.push_str("it evicts keys when it is full, and leases with them: set `maxmemory-policy noeviction` there\n");
        }
        Some(false) => {}
        None => line.push_str(
            "it does not say whether it evicts keys: `maxmemory-policy` has to be `noeviction`\n",
        ),
    }
    match (print(line.as_bytes()), is_fine) {
        (Outcome::Fine, false) => Outcome::Failed,
        (outcome, _) => outcome,
    }
}

/// What is said of the longest answer, and whether the lease is long enough for it.
fn judged(longest: Duration, lease: Duration) -> (String, bool) {
    let ms = longest.as_secs_f64() * 1e3;
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    let said = config::duration(lease_ms);
    let mut line = format!(
        "the store answers, and lets do all that is needed: {ms:.1} ms at the longest, lease {said}\n"
    );
    let is_fine = longest.saturating_mul(LEASE_TRIPS_MIN) <= lease;
    if !is_fine {
        line.push_str("the lease is short: it should be ten times that, or more\n");
    }
    (line, is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::FleetLease;

    #[test]
    fn a_machine_is_drained_when_it_is_idle_and_holds_nothing() {
        let mut machine = FleetMachine {
            heard_ago_s: Some(1.0),
            in_flight: 2,
            leases: vec![FleetLease {
                leased: 1,
                ..FleetLease::default()
            }],
            ..FleetMachine::default()
        };
        let progress =
            |machine: &FleetMachine, undo, is_heard| progress(Some(machine), undo, is_heard);
        assert!(!super::progress(None, false, true).1 && !progress(&machine, false, true).1);
        machine.drained = true;
        let (line, is_done) = progress(&machine, false, true);
        assert_eq!(line, "drains: 2 requests under way, 1 permits held");
        assert!(!is_done && !progress(&machine, true, true).1);
        machine.in_flight = 0;
        assert!(!progress(&machine, false, true).1);
        machine.leases.clear();
        assert!(!progress(&machine, false, false).1);
        assert!(progress(&machine, false, true).1);
        machine.heard_ago_s = Some(99.0);
        assert!(!progress(&machine, false, true).1);
        (machine.heard_ago_s, machine.drained) = (Some(1.0), false);
        assert!(progress(&machine, true, true).1);
    }

    #[test]
    fn a_lease_is_ten_answers_of_the_store_at_the_least() {
        let lease = Duration::from_secs(2);
        assert!(judged(Duration::from_millis(200), lease).1);
        let (line, is_fine) = judged(Duration::from_millis(201), lease);
        let said = "201.0 ms at the longest, lease 2s";
        assert!(!is_fine && line.contains(said), "{line}");
    }
}
