//! `nagaya certs`: every certificate of the running gateway; and ordering one now.
//!
//! The idea: what is asked is answered by the server over its control socket. An order takes its time, so it is
//! asked for, and then looked at until it has ended: it is known by the count of tries. Of thousands a few are under
//! way at a time.

use std::cmp::Ordering;
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
/// How many are rehearsed at once where all are: as many as the gateway does.
const AT_ONCE: usize = 4;
/// How often in a row a gateway that does not answer is asked before all is given up.
const ASKED_MAX: usize = 5;
/// Names in the last line of a rehearsal of all.
const TOLD_MAX: usize = 20;
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
    /// Have the authority look whether the names of the certificate for a name, or of all certificates that this
    /// machine orders, validate; nothing is ordered
    ///
    /// Without a name each certificate has a line when it has been looked at, and the exit status is 1 if one of them
    /// would not be issued. No more than ten leave in ten seconds, so thousands take their time.
    ///
    /// Of Let's Encrypt its staging directory is asked, where nothing counts against its limits; of others the one
    /// that is configured, and what it remembers of names counts. Nothing is signed, and what is served stays.
    Rehearse(RehearsalOptions),
}

/// Options of `certs renew`.
#[derive(Debug, Args)]
struct OrderOptions {
    /// A name that the certificate is for
    name: String,
    #[command(flatten)]
    place: Where,
}

/// Options of `certs rehearse`.
#[derive(Debug, Args)]
struct RehearsalOptions {
    /// A name that the certificate is for; without one, all
    name: Option<String>,
    #[command(flatten)]
    place: Where,
}

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Renewal,
    Rehearsal,
}

/// An order that was asked for.
struct Errand<'a> {
    asked: Asked,
    name: &'a str,
    /// How many had ended before.
    before: u64,
    /// When nobody waits any longer.
    until: Instant,
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
        Some(CertsOrder::Renew(options)) => {
            carry_out(Asked::Renewal, config, &options.place, &options.name)
        }
        Some(CertsOrder::Rehearse(options)) => match &options.name {
            Some(name) => carry_out(Asked::Rehearsal, config, &options.place, name),
            None => rehearse_all(config, &options.place),
        },
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

fn carry_out(asked: Asked, config: &Path, place: &Where, name: &str) -> Outcome {
    if !is_name(name) {
        return no_name(name);
    }
    let begun = Running::find(config, place).and_then(|running| {
        let errand = Errand::begin(asked, &running, name)?;
        Ok((running, errand))
    });
    let (running, errand) = match begun {
        Ok(begun) => begun,
        Err(outcome) => return outcome,
    };
    loop {
        match errand.look(&running) {
            Some(Ok(ended)) => return told(asked, name, &ended),
            Some(Err(why)) => {
                complain(&format!("nagaya: {name}: {why}\n"));
                return Outcome::Failed;
            }
            None => std::thread::sleep(LOOK),
        }
    }
}

impl Errand<'_> {
    /// Asks for it. What goes wrong has been told.
    fn begin<'a>(asked: Asked, running: &Running, name: &'a str) -> Result<Errand<'a>, Outcome> {
        let before = progress(asked, running, name).map_or(0, |it| it.count);
        running.done(&format!("{} {name}", asked.question()))?;
        Ok(Errand {
            asked,
            name,
            before,
            until: Instant::now() + PATIENCE,
        })
    }

    /// How it ended, or why nobody knows; `None` while it is under way.
    fn look(&self, running: &Running) -> Option<Result<Progress, String>> {
        // A server that is being started again is asked again.
        let progress = progress(self.asked, running, self.name);
        match progress.map(|it| (it.count.cmp(&self.before), it)) {
            Some((Ordering::Greater, ended)) => Some(Ok(ended)),
            Some((Ordering::Less, _)) => {
                let why = "the acme process was started again meanwhile: ask once more";
                Some(Err(why.to_owned()))
            }
            _ if Instant::now() < self.until => None,
            _ => {
                let (name, patience_s) = (self.name, PATIENCE.as_secs());
                Some(Err(format!(
                    "nothing has come of it after {patience_s} s; nagaya certs {name} shows how it goes, and the error log says more"
                )))
            }
        }
    }
}

/// Has all certificates rehearsed that this machine orders, and tells each when it has ended.
fn rehearse_all(config: &Path, place: &Where) -> Outcome {
    let asked = Running::find(config, place).and_then(|running| {
        let answer = running.answer("certs json")?;
        Ok((running, answer))
    });
    let (running, answer) = match asked {
        Ok(asked) => asked,
        Err(outcome) => return outcome,
    };
    let (names, elsewhere) = ordered(&answer);
    if elsewhere > 0 {
        complain(&format!(
            "nagaya: another machine orders {elsewhere} certificates: ask there for these\n"
        ));
    }
    if names.is_empty() {
        complain("nagaya: no certificate is ordered of an authority here\n");
        return Outcome::Wrong;
    }
    let mut rehearsals = Rehearsals {
        total: names.len(),
        ended: 0,
        failed: Vec::new(),
    };
    match rehearsals.hold(&running, &names) {
        Ok(()) => rehearsals.summed_up(),
        Err(outcome) => {
            rehearsals.summed_up();
            outcome
        }
    }
}

/// How rehearsals went so far.
struct Rehearsals<'a> {
    total: usize,
    ended: usize,
    failed: Vec<&'a str>,
}

impl<'a> Rehearsals<'a> {
    /// Holds them, a few at once.
    ///
    /// # Errors
    /// When the gateway does not answer any more, or nobody reads what is told; that has been told.
    fn hold(&mut self, running: &Running, names: &'a [String]) -> Result<(), Outcome> {
        let mut waiting = names.iter().map(String::as_str).peekable();
        let mut under_way: Vec<Errand<'a>> = Vec::with_capacity(AT_ONCE);
        let mut unanswered = 0;
        while waiting.peek().is_some() || !under_way.is_empty() {
            while under_way.len() < AT_ONCE
                && let Some(name) = waiting.peek().copied()
            {
                match Errand::begin(Asked::Rehearsal, running, name) {
                    Ok(errand) => under_way.push(errand),
                    Err(Outcome::Wrong) => self.tell(name, Err("it was refused".into()))?,
                    Err(outcome) => {
                        unanswered += 1;
                        if unanswered == ASKED_MAX {
                            return Err(outcome);
                        }
                        break;
                    }
                }
                unanswered = 0;
                waiting.next();
            }
            std::thread::sleep(LOOK);
            let mut still = Vec::with_capacity(AT_ONCE);
            for errand in under_way {
                match errand.look(running) {
                    Some(ended) => self.tell(errand.name, ended)?,
                    None => still.push(errand),
                }
            }
            under_way = still;
        }
        Ok(())
    }

    /// Tells how one ended.
    fn tell(&mut self, name: &'a str, ended: Result<Progress, String>) -> Result<(), Outcome> {
        self.ended += 1;
        let problem = match ended {
            Ok(Progress {
                problem: None,
                names,
                ..
            }) => Ok(format!("the authority takes all {names} names for yours")),
            Ok(Progress {
                problem: Some(problem),
                ..
            }) => Err(format!("would not be issued: {problem}")),
            Err(why) => Err(why),
        };
        let said = match problem {
            Ok(said) => said,
            Err(why) => {
                self.failed.push(name);
                why.escape_debug().to_string()
            }
        };
        let line = format!("{}/{} {name}: {said}\n", self.ended, self.total);
        match print(line.as_bytes()) {
            Outcome::Fine => Ok(()),
            outcome => Err(outcome),
        }
    }

    /// Says what all came to.
    fn summed_up(&self) -> Outcome {
        let (total, failed) = (self.total, self.failed.len());
        if failed == 0 && self.ended == total {
            return print(format!("all {total} certificates would be issued\n").as_bytes());
        }
        let fine = self.ended - failed;
        let told = self.failed.iter().take(TOLD_MAX).copied();
        let mut told = told.collect::<Vec<_>>().join(", ");
        if failed > TOLD_MAX {
            told.push_str(&format!(" and {} more", failed - TOLD_MAX));
        }
        let unknown = total - self.ended;
        let unknown = match unknown {
            0 => String::new(),
            unknown => format!(", {unknown} were not looked at"),
        };
        complain(&format!(
            "nagaya: of {total} certificates {fine} would be issued, {failed} would not: {told}{unknown}\n"
        ));
        Outcome::Failed
    }
}

/// The first name of each certificate that this machine orders, and how many others do.
fn ordered(answer: &[u8]) -> (Vec<String>, usize) {
    let rows: Vec<Value> = serde_json::from_slice(answer).unwrap_or_default();
    let ordered = rows.iter().filter(|row| row.get("order").is_some());
    let (here, elsewhere): (Vec<_>, Vec<_>) = ordered.partition(|row| {
        let here = row.get("order").and_then(|order| order.get("here"));
        here.and_then(Value::as_bool) == Some(true)
    });
    let name = |row: &&Value| ordered_names(row).next().map(str::to_owned);
    let mut names: Vec<String> = here.iter().filter_map(name).collect();
    names.sort();
    (names, elsewhere.len())
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
    understood(asked, name, &answer)
}

fn understood(asked: Asked, name: &str, answer: &[u8]) -> Option<Progress> {
    let rows: Vec<Value> = serde_json::from_slice(answer).ok()?;
    // What covers the name by a wildcard is another one.
    let names_it = |row: &&Value| {
        let mut names = ordered_names(row);
        names.any(|known| known.eq_ignore_ascii_case(name.trim_end_matches('.')))
    };
    let row = rows.iter().find(names_it)?;
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
        names: ordered_names(row).count(),
    })
}

/// The names that the certificate of a row is ordered for; none where it is not.
fn ordered_names(row: &Value) -> impl Iterator<Item = &str> {
    let names = row.get("order").and_then(|order| order.get("names"));
    let names = names.and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
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
        let acme = r#"{"name":"a","names":["a","b"],"source":"acme","problem":"away","order":{"names":["a","b"],"here":true,"tries":4,"rehearsals":2}}"#;
        let wildcard = acme.replace(r#"["a","b"]"#, r#"["*.a"]"#);
        let expected = Progress {
            count: 4,
            problem: Some("away".to_owned()),
            valid_until: None,
            names: 2,
        };
        assert_eq!(
            understood(
                Asked::Renewal,
                "a",
                format!("[{file},{wildcard},{acme}]").as_bytes()
            ),
            Some(expected)
        );
        assert_eq!(
            understood(Asked::Renewal, "a", format!("[{file}]").as_bytes()),
            None
        );
        assert_eq!(understood(Asked::Renewal, "a", b"error: none"), None);
        let elsewhere = acme.replace("true", "false");
        assert_eq!(
            ordered(format!("[{file},{acme},{elsewhere}]").as_bytes()),
            (vec!["a".to_owned()], 1)
        );
    }

    #[test]
    fn what_cannot_be_a_name_is_not_sent() {
        for name in ["", "a b", "a\nb", "\u{1b}", &"a".repeat(254)] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(is_name("*.example.jp") && is_name("::1"));
    }
}
