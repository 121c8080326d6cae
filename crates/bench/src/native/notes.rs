//! What must be known to read the figures rightly: one sentence each, the gravest first.

use load::client::{BUSY_MAX, GENERATOR_LATE_MAX_US, Schedule};
use load::server::{FOREIGN_MAX, STEAL_MAX};
use report::Tone;
use report::units;

use super::record::{OwnRecord, PaceWord, Report};
use super::watch::ServerRecord;

/// Share of the due requests that must have come to an end for the rate to count as reached.
const REACHED: f64 = 0.99;
/// Share of late requests that is told.
const LATE_SHARE: f64 = 0.01;
/// How the system's words end where nobody listens.
const REFUSED: &str = "connection refused";
/// How they end where the other side does not speak TLS.
const NO_TLS: &str = "InvalidContentType";
/// And where it does not speak the protocol that was offered.
const NO_ALPN: &str = "NoApplicationProtocol";

/// The rate in one sentence, never more than can be answered for.
pub(crate) fn headline(report: &Report) -> String {
    let rate = units::per_second(report.per_second);
    match (report.asked.pace, report.asked.rate_per_second) {
        _ if is_all_warm_up(report) => "nothing recorded".to_owned(),
        _ if report.completed == 0 => "not one whole reply".to_owned(),
        (PaceWord::Open, Some(asked)) => {
            format!("{rate} of {} asked for", units::per_second(asked))
        }
        _ if report.own.bound => format!("at least {rate}, generator-bound"),
        _ => rate,
    }
}

/// Everything that must be known, the gravest first.
pub(crate) fn notes(report: &Report) -> Vec<(Tone, String)> {
    let mut notes = Vec::new();
    if report.completed == 0 {
        notes.push((Tone::Bad, nothing_came(report)));
    }
    if report.is_all_refused() {
        notes.push((Tone::Bad, nothing_good(report)));
    }
    if report.cut_short {
        notes.push((
            Tone::Warn,
            "Cut short: somebody ended the load before its time.".to_owned(),
        ));
    }
    if report.own.bound {
        notes.push((
            Tone::Bad,
            generator_bound(&report.own, report.schedule.as_ref()),
        ));
    }
    if let Some(schedule) = &report.schedule {
        notes.extend(schedule_notes(report, schedule));
    }
    notes.extend(streams(report));
    notes.extend(report.server.as_ref().and_then(noise));
    if report.warm_up.steady == Some(false) && report.completed > 0 {
        notes.push((
            Tone::Warn,
            "The rate never stood still in the warm-up: run longer, or see what else the machine does."
                .to_owned(),
        ));
    }
    if report.completed > 0 {
        notes.push((Tone::Plain, reading(report)));
    }
    notes
}

/// Whether replies came, but all of them before anything was recorded.
fn is_all_warm_up(report: &Report) -> bool {
    report.attempts() == 0 && report.warm_up.completed > 0
}

fn nothing_came(report: &Report) -> String {
    if is_all_warm_up(report) {
        return format!(
            "Nothing was recorded: the load was over before its warm-up, in which {} replies came. With --warm-up none everything is recorded.",
            units::count(report.warm_up.completed)
        );
    }
    let Some(first) = report.first_failures.first() else {
        return "Not one whole reply: nothing came before the end.".to_owned();
    };
    let is_http2 = report.asked.streams.is_some();
    let hint = match first.kind.as_str() {
        "connect" if first.text.ends_with(REFUSED) => {
            " Does the server run, and is this its port? `ss -ltn` shows who listens."
        }
        "tls" if first.text.ends_with(NO_TLS) => " Is it plain http:// there?",
        "tls" if first.text.ends_with(NO_ALPN) => {
            " It does not offer HTTP/2 there; with --http 1.1 it may answer."
        }
        "closed" | "framing" | "reset" if is_http2 => {
            " Does it speak HTTP/2 there? Over http:// only where it is told to (h2c); with --http 1.1 it may answer."
        }
        "closed" => " Is this the right port, and is it https:// there?",
        _ => "",
    };
    format!("Not one whole reply: {}.{hint}", first.text)
}

/// Replies came, and the status of each counts as a failure.
fn nothing_good(report: &Report) -> String {
    let first = report.first.as_ref().map_or(0, |first| first.status);
    format!(
        "Not one good reply, the first was status {first}: is the URL right? Refusals are often faster than what was asked for. If they are what is to be measured: --accept-any-status."
    )
}

fn generator_bound(own: &OwnRecord, schedule: Option<&Schedule>) -> String {
    let why = match schedule {
        Some(schedule)
            if own.busy <= BUSY_MAX && schedule.generator_p99_us > GENERATOR_LATE_MAX_US =>
        {
            format!(
                "it sent one request of a hundred {} late or more by its own doing",
                units::micros(schedule.generator_p99_us as f64)
            )
        }
        _ => format!(
            "its busiest thread used {} of a core",
            units::share(own.busy)
        ),
    };
    let then = match schedule {
        Some(_) => "latencies are partly its own",
        None => "the rate is the generator's limit, not the server's capacity",
    };
    format!(
        "Generator-bound: {why}, so {then}. Give it cores of its own (--threads, --cores), or run it on another machine."
    )
}

fn schedule_notes(report: &Report, schedule: &Schedule) -> Vec<(Tone, String)> {
    let mut notes = Vec::new();
    let due = schedule.due.max(1) as f64;
    if report.completed > 0 && (report.attempts() as f64) < due * REACHED {
        notes.push((
            Tone::Warn,
            format!(
                "The rate was not reached: of {} requests that were due, {} came to an end.",
                units::count(schedule.due),
                units::count(report.attempts())
            ),
        ));
    }
    let waited = schedule.late.saturating_sub(schedule.late_by_generator);
    if waited as f64 / due > LATE_SHARE {
        notes.push((
            Tone::Warn,
            format!(
                "{} of {} requests waited for a free {}: the wait is in the response times. More --connections would send them in time.",
                units::count(waited),
                units::count(schedule.due),
                match report.asked.streams {
                    None => "connection",
                    Some(_) => "stream",
                }
            ),
        ));
    }
    if schedule.unsent > 0 {
        notes.push((
            Tone::Warn,
            format!(
                "{} requests were due and never sent, for the load was over: they are in no latency.",
                units::count(schedule.unsent)
            ),
        ));
    }
    notes
}

/// Whether fewer requests were under way than were asked for.
fn streams(report: &Report) -> Option<(Tone, String)> {
    let asked = report.asked.streams?;
    let most = report.first.as_ref()?.streams_max?;
    let note = format!(
        "The server takes {most} streams on a connection and --streams says {asked}: the others wait here, and the wait is in the times. More --connections would send them."
    );
    (most < asked).then_some((Tone::Warn, note))
}

/// Whether the machine was busy with something else.
fn noise(server: &ServerRecord) -> Option<(Tone, String)> {
    let who = if server.spent.steal_share > STEAL_MAX {
        format!(
            "the hypervisor took {}",
            units::share(server.spent.steal_share)
        )
    } else if server.spent.tree.is_some() && server.foreign_share > FOREIGN_MAX {
        format!("other work took {}", units::share(server.foreign_share))
    } else {
        return None;
    };
    let note = format!(
        "The machine was not quiet: {who} of its time. CPU per request still says something, rate and latencies little."
    );
    Some((Tone::Warn, note))
}

/// What the latencies mean.
fn reading(report: &Report) -> String {
    match report.asked.pace {
        PaceWord::Closed if report.asked.streams.is_some() => {
            "Closed loop: each stream of each connection asks again when it has its reply, so a slow server is asked less, and these times are what the server took, not what people would have waited. For that, set a --rate."
        }
        PaceWord::Closed => {
            "Closed loop: each connection asks again when it has its reply, so a slow server is asked less, and these times are what the server took, not what people would have waited. For that, set a --rate."
        }
        PaceWord::Open => {
            "Open loop: response runs from the instant a request was due, as somebody waits; service from when it was sent."
        }
    }
    .to_owned()
}
