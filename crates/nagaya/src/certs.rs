//! `nagaya certs`: every certificate of the running gateway; and ordering one now.
//!
//! The idea: what is asked is answered by the server over its control socket. An order takes its time, so it is
//! asked for, and then looked at until it has ended: it is known by the count of tries.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::control::{Running, Where, show};
use crate::outcome::{Outcome, complain, print};

/// How long an order may take before nobody waits for it any longer: an authority may take its time to look.
const PATIENCE: Duration = Duration::from_secs(360);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of a name of a host.
const NAME_BYTES_MAX: usize = 253;

/// Options of `certs`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CertsOptions {
    #[command(subcommand)]
    order: Option<CertsOrder>,
    /// Only the certificates for this name
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// What to have done.
#[derive(Debug, Subcommand)]
enum CertsOrder {
    /// Have the certificate for a name ordered of its authority now, and wait for what comes of it
    ///
    /// It is ordered whenever it is due, and whatever it rests for after failures. The limits of orders in a
    /// short time hold: it may wait for seconds for others.
    Renew(OrderOptions),
    /// Have the authority look whether the names of the certificate for a name validate; nothing is ordered
    ///
    /// Of Let's Encrypt its staging directory is asked, where nothing counts against its limits; of others the one
    /// that is configured, and what it remembers of names counts. Nothing is signed, and what is served stays.
    Rehearse(OrderOptions),
}

/// Options of `certs renew` and `certs rehearse`.
#[derive(Debug, Args)]
struct OrderOptions {
    /// A name that the certificate is for
    name: String,
    #[command(flatten)]
    place: Where,
}

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Renewal,
    Rehearsal,
}

/// How it went so far.
#[derive(Debug, PartialEq, Eq)]
struct Progress {
    count: u64,
    problem: Option<String>,
    valid_until: Option<String>,
    names: usize,
}

/// Shows certificates, or has one ordered.
pub(crate) fn run(config: &Path, options: &CertsOptions) -> Outcome {
    match &options.order {
        Some(CertsOrder::Renew(options)) => carry_out(Asked::Renewal, config, options),
        Some(CertsOrder::Rehearse(options)) => carry_out(Asked::Rehearsal, config, options),
        None => {
            let name = options.name.as_deref().unwrap_or_default();
            if !name.is_empty() && !is_name(name) {
                return no_name(name);
            }
            let form = if options.json { " json" } else { "" };
            let question = format!("certs{form} {name}");
            show(config, &options.place, question.trim_end())
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_odd = |it: char| it.is_whitespace() || it.is_control();
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(is_odd)
}

fn no_name(name: &str) -> Outcome {
    complain(&format!(
        "nagaya: `{}` is no name of a host\n",
        name.escape_debug()
    ));
    Outcome::Wrong
}

fn carry_out(asked: Asked, config: &Path, options: &OrderOptions) -> Outcome {
    let name = &options.name;
    if !is_name(name) {
        return no_name(name);
    }
    let running = match Running::find(config, &options.place) {
        Ok(running) => running,
        Err(outcome) => return outcome,
    };
    let before = progress(asked, &running, name).map_or(0, |it| it.count);
    if let Err(outcome) = running.done(&format!("{} {name}", asked.question())) {
        return outcome;
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        // A server that is being started again is asked again.
        match progress(asked, &running, name).filter(|it| it.count != before) {
            Some(ended) => return told(asked, name, &ended),
            None => std::thread::sleep(LOOK),
        }
    }
    let patience_s = PATIENCE.as_secs();
    complain(&format!(
        "nagaya: nothing has come of it for {name} after {patience_s} s; nagaya certs {name} shows how it goes, and the error log says more\n"
    ));
    Outcome::Failed
}

impl Asked {
    fn question(self) -> &'static str {
        match self {
            Asked::Renewal => "certs-renew",
            Asked::Rehearsal => "certs-rehearse",
        }
    }
}

/// How it goes with the certificate that is ordered for a name; none while nobody answers.
fn progress(asked: Asked, running: &Running, name: &str) -> Option<Progress> {
    let answer = running.try_ask(&format!("certs json {name}")).ok()?;
    understood(asked, &answer)
}

fn understood(asked: Asked, answer: &[u8]) -> Option<Progress> {
    let rows: Vec<Value> = serde_json::from_slice(answer).ok()?;
    let row = rows.iter().find(|row| row.get("order").is_some())?;
    let order = row.get("order")?;
    let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let (count, problem) = match asked {
        Asked::Renewal => ("tries", text(row, "problem")),
        Asked::Rehearsal => ("rehearsals", text(order, "rehearsal_problem")),
    };
    Some(Progress {
        count: order.get(count)?.as_u64()?,
        problem,
        valid_until: text(row, "valid_until"),
        names: row
            .get("names")
            .and_then(Value::as_array)
            .map_or(0, Vec::len),
    })
}

fn told(asked: Asked, name: &str, ended: &Progress) -> Outcome {
    let said = match (asked, &ended.problem) {
        (Asked::Renewal, Some(problem)) => Err(format!("no certificate for {name}: {problem}")),
        (Asked::Rehearsal, Some(problem)) => Err(format!(
            "the certificate for {name} would not be issued: {problem}"
        )),
        (Asked::Renewal, None) => {
            let until = ended.valid_until.as_deref().unwrap_or("an unknown time");
            Ok(format!(
                "the certificate for {name} was issued, valid until {until}"
            ))
        }
        (Asked::Rehearsal, None) => {
            let names = ended.names;
            Ok(format!(
                "the authority takes {name} for yours, with all {names} names of its certificate"
            ))
        }
    };
    match said {
        Ok(said) => print(format!("{said}\n").as_bytes()),
        Err(why) => {
            complain(&format!("nagaya: {}\n", why.escape_debug()));
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_an_order_went_is_read_from_the_row_that_has_one() {
        let file = r#"{"name":"a","source":"file","valid_until":"2027-01-01T00:00:00Z"}"#;
        let acme = r#"{"name":"a","names":["a","b"],"source":"acme","problem":"away","order":{"here":true,"tries":4,"rehearsals":2}}"#;
        let expected = Progress {
            count: 4,
            problem: Some("away".to_owned()),
            valid_until: None,
            names: 2,
        };
        assert_eq!(
            understood(Asked::Renewal, format!("[{file},{acme}]").as_bytes()),
            Some(expected)
        );
        assert_eq!(
            understood(Asked::Renewal, format!("[{file}]").as_bytes()),
            None
        );
        assert_eq!(understood(Asked::Renewal, b"error: none"), None);
    }

    #[test]
    fn what_cannot_be_a_name_is_not_sent() {
        for name in ["", "a b", "a\nb", "\u{1b}", &"a".repeat(254)] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(is_name("*.example.jp") && is_name("::1"));
    }
}
