//! What handshakes came to, in each of the forms that figures have, nothing where nobody speaks TLS; and those
//! that failed, for `nagaya why --tls`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use config::model::ServerFigure;
use control::{HandshakeFailure, Handshakes, Named, Status, TenantHandshakes};

use super::exposition::{Text, seconds};
use super::table::{count, grid};
use super::workers;
use crate::permits::questions::moment;
use crate::tls::failures::{FAILURES_MAX, FailedHandshake, Whose, alert_name, version_name};
use crate::worker::Shared;

/// Failed handshakes that a table shows.
const SHOWN_MAX: usize = 50;

/// Collects it; `None` before a listener spoke TLS.
pub(super) fn collect(shared: &Shared) -> Option<Handshakes> {
    if !shared.handshakes.is_started() {
        return None;
    }
    let totals = shared.handshakes.totals();
    let [short, full] = totals.made.each_ref().map(|made| made.load(Relaxed));
    let (failed, client_alerts) = shared.failures.counted();
    Some(Handshakes {
        full,
        short,
        cpu_us: totals.cpu_us.load(Relaxed),
        waiting: shared.handshakes.waiting(),
        failed,
        client_alerts,
        by_tenant: by_tenant(shared),
    })
}

/// How many there were of what is followed over time; `None` before a listener spoke TLS.
pub(super) fn counts(shared: &Shared) -> Option<[(ServerFigure, u64); 3]> {
    if !shared.handshakes.is_started() {
        return None;
    }
    let made = &shared.handshakes.totals().made;
    let [short, full] = made.each_ref().map(|made| made.load(Relaxed));
    let (failed, _) = shared.failures.counted();
    Some([
        (ServerFigure::FullHandshakes, full),
        (ServerFigure::ShortHandshakes, short),
        (ServerFigure::FailedHandshakes, sum(&failed)),
    ])
}

/// What tenants are charged with: handshakes after which a request came.
fn by_tenant(shared: &Shared) -> Vec<TenantHandshakes> {
    let Some(generation) = shared.generation() else {
        return Vec::new();
    };
    let mut tenants: BTreeMap<&str, TenantHandshakes> = BTreeMap::new();
    for site in &generation.sites {
        let replies = workers::replies(site.stats.of_workers());
        if replies.handshakes > 0 {
            let tenant = tenants.entry(&site.tenant_name).or_default();
            tenant.handshakes += replies.handshakes;
            tenant.cpu_us += replies.handshake_us;
        }
    }
    let named = |(name, sum): (&str, TenantHandshakes)| TenantHandshakes {
        tenant: name.to_owned(),
        ..sum
    };
    tenants.into_iter().map(named).collect()
}

/// Puts it into samples.
pub(super) fn prometheus(figures: &Status, text: &mut Text) {
    let Some(figures) = &figures.handshakes else {
        return;
    };
    let made = [("full", figures.full), ("short", figures.short)];
    let help =
        "Costly steps of TLS handshakes that were made; short: of resumptions, and second steps.";
    let made = made.map(|(kind, count)| ([("kind", kind)], count));
    text.each("handshake_steps_total", help, made);
    let help = "Processor time they took, the keeper's included.";
    let cpu = seconds(figures.cpu_us);
    text.one("handshake_cpu_seconds_total", help, cpu);
    let help = "Costly steps of TLS handshakes that wait.";
    text.one("handshakes_waiting", help, figures.waiting);
    let failed = figures.failed.iter();
    let failed = failed.map(|(reason, count)| ([("reason", reason)], count));
    let help = "TLS handshakes that came to nothing, by reason.";
    text.each("handshakes_failed_total", help, failed);
    let alerts = figures.client_alerts.iter();
    let alerts = alerts.map(|(alert, count)| ([("alert", alert)], count));
    let help = "TLS handshakes that clients ended, by what they said of it.";
    text.each("tls_client_alerts_total", help, alerts);
    let tenants = || figures.by_tenant.iter();
    let made = tenants().map(|it| ([("tenant", &it.tenant)], it.handshakes));
    let help = "TLS handshakes after which a request came, by tenant.";
    text.each("tenant_handshakes_total", help, made);
    let took = tenants().map(|it| ([("tenant", &it.tenant)], seconds(it.cpu_us)));
    let help = "Processor time these took.";
    text.each("tenant_handshake_cpu_seconds_total", help, took);
}

fn sum(counts: &Named<u64>) -> u64 {
    counts.iter().map(|(_, count)| count).sum()
}

/// Puts it into a line.
pub(super) fn line(figures: &Handshakes) -> String {
    let failed = sum(&figures.failed);
    let (full, short) = (count(figures.full), count(figures.short));
    let (waiting, failed) = (figures.waiting, count(failed));
    format!("{full} full and {short} short steps · {waiting} waiting · {failed} failed")
}

/// Answers `why-tls NAME|ADDRESS [json]`.
pub(crate) fn why(shared: &Shared, rest: &str) -> String {
    let mut words = rest.split_ascii_whitespace();
    let (asked, form) = (words.next(), words.next());
    let Some(asked) = asked else {
        return "error: say whose handshakes: a name or an address\n".to_owned();
    };
    let found = shared.failures.find(&Whose::of(asked));
    match form {
        Some("json") => control::json(&found.iter().map(shown).collect::<Vec<_>>()),
        Some(word) => format!("error: `{word}` means nothing after a name or address\n"),
        None if found.is_empty() => format!(
            "error: no failed handshake of {asked} is remembered: the last {FAILURES_MAX} of all are, until the server \
             restarts\n"
        ),
        None => table(&found),
    }
}

fn shown(failure: &FailedHandshake) -> HandshakeFailure {
    HandshakeFailure {
        at: moment(failure.at),
        client: failure.client.to_string(),
        name: failure.name.as_deref().map(plain),
        reason: failure.reason,
        client_alert: failure.client_alert.map(alert_name),
        offered: failure
            .offered
            .iter()
            .filter_map(|version| version_name(*version))
            .collect(),
        detail: plain(&failure.detail),
    }
}

/// What a terminal may be shown of a text from outside.
fn plain(text: &str) -> String {
    text.escape_debug().to_string()
}

fn table(found: &[FailedHandshake]) -> String {
    let heads = [
        "at",
        "client",
        "name",
        "reason",
        "client's alert",
        "offered",
    ];
    let all: Vec<_> = found.iter().take(SHOWN_MAX).map(shown).collect();
    let rows = all.iter().map(|failure| {
        vec![
            failure.at.clone(),
            failure.client.clone(),
            failure.name.clone().unwrap_or_else(|| "-".to_owned()),
            failure.reason.to_owned(),
            failure.client_alert.unwrap_or("-").to_owned(),
            match failure.offered.as_slice() {
                [] => "-".to_owned(),
                versions => versions.join(", "),
            },
        ]
    });
    let mut out = String::new();
    grid(&heads, rows.collect(), &mut out);
    if found.len() > SHOWN_MAX {
        // Writing to memory does not fail, here and below.
        let _ = writeln!(
            out,
            "and {} before these; --json has them all",
            found.len() - SHOWN_MAX
        );
    }
    if let Some(detail) = all
        .first()
        .map(|last| &last.detail)
        .filter(|it| !it.is_empty())
    {
        let _ = writeln!(out, "\nof the last: {detail}");
    }
    let mut told: Vec<&str> = Vec::new();
    for failure in &all {
        let word = failure.client_alert.unwrap_or(failure.reason);
        if let Some(advice) = advice(word).filter(|_| !told.contains(&word)) {
            let _ = writeln!(out, "\n{word}: {advice}");
            told.push(word);
        }
    }
    out.trim_start().to_owned()
}

/// What a reason, or an alert of a client, most often means, and what to try.
fn advice(word: &str) -> Option<&'static str> {
    let found = ADVICE.iter().find(|(known, _)| *known == word);
    found.map(|(_, advice)| *advice)
}

const ADVICE: &[(&str, &str)] = &[
    (
        "unknown_ca",
        "the client does not trust who signed the certificate: most often the chain lacks its intermediate \
         certificate (use fullchain.pem), or it is a development certificate",
    ),
    (
        "bad_certificate",
        "the client does not take the certificate: look whether it names the host",
    ),
    (
        "certificate_unknown",
        "the client does not take the certificate and does not say why; browsers say so of self-signed ones",
    ),
    (
        "certificate_expired",
        "to the client the certificate, or one of its chain, is expired: nagaya certs shows when; or its clock is wrong",
    ),
    (
        "certificate_revoked",
        "the certificate was revoked: get another, with a new key",
    ),
    (
        "unsupported_certificate",
        "the client cannot work with a certificate of this kind",
    ),
    (
        "handshake_over_share",
        "its client, or the tenant of that name, wanted more handshakes at once than others, while there were too many",
    ),
    (
        "handshake_queue_full",
        "there were more handshakes at once than this machine can wait with",
    ),
    (
        "handshake_late",
        "its turn did not come before timeouts.handshake ended",
    ),
    (
        "handshake_limited",
        "a limit with on = \"handshake\" refused it: nagaya limits list shows which",
    ),
    (
        "keeper_lost",
        "the keeper of private keys was not there; it is started again by itself",
    ),
    (
        "no_certificate",
        "no certificate is for this name: give the site one, or the listener a default",
    ),
    (
        "name_refused",
        "its site has names ordered on demand, and on_demand's map does not accept this one; asked again after a minute",
    ),
    (
        "not_obtained",
        "its map accepts the name, but no certificate came of it; asked again after a minute",
    ),
    (
        "obtained_late",
        "its certificate was not there within 10 s; the order may go on: nagaya certs shows how",
    ),
    (
        "demands_full",
        "too many handshakes, or too many of this client, wait for certificates that are ordered on demand",
    ),
    (
        "script_certificate",
        "the certificate that a script of ssl_handshake names cannot be shown: what stands beside it says why",
    ),
    (
        "script_said",
        "a script of ssl_handshake refused it by Nginx.return",
    ),
    (
        "script_raised",
        "a script of ssl_handshake failed: the error log has the way there",
    ),
    (
        "script_late",
        "a script of ssl_handshake was not done before timeouts.handshake ended",
    ),
    (
        "no_shared_version",
        "the client offers no version of TLS that is allowed here: see versions of [tls]",
    ),
    (
        "no_shared_cipher",
        "the client and this gateway have no cipher or group in common; it is a very old one",
    ),
    (
        "client_certificate_missing",
        "the site wants a certificate of its clients, and this one sent none",
    ),
    (
        "client_certificate_refused",
        "the client's certificate is not of the site's client_ca, or expired",
    ),
    (
        "client_slow",
        "the client did not finish its part before timeouts.handshake ended",
    ),
    (
        "client_gone",
        "the client went away before the handshake was done",
    ),
    ("plain_http", "the client spoke http to a port of https"),
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn failure(client: &str, name: Option<&str>, reason: &'static str) -> FailedHandshake {
        FailedHandshake {
            at: Duration::from_secs(1_750_000_000),
            client: client.parse().expect("an address"),
            name: name.map(Box::from),
            reason,
            client_alert: None,
            offered: vec![0x7a7a, 0x0304, 0x0303],
            detail: String::new(),
        }
    }

    fn shared() -> Shared {
        Shared::new(1).0
    }

    #[test]
    fn failures_are_found_by_name_and_by_address_newest_first() {
        let shared = shared();
        let mut alerted = failure("::ffff:192.0.2.7", Some("Example.JP"), "client_alert");
        alerted.client_alert = Some(48);
        shared
            .failures
            .record(failure("192.0.2.7", None, "client_slow"));
        shared
            .failures
            .record(failure("192.0.2.8", Some("other.jp"), "client_gone"));
        shared.failures.record(alerted);
        let by_name = why(&shared, "example.jp.");
        assert!(
            by_name.contains("unknown_ca") && by_name.contains("1.3, 1.2"),
            "{by_name}"
        );
        assert!(
            by_name.contains("fullchain.pem") && !by_name.contains("other.jp"),
            "{by_name}"
        );
        let by_client = why(&shared, "192.0.2.7");
        let at = |word| by_client.find(word).expect(word);
        assert!(at("client_alert") < at("client_slow"), "{by_client}");
        let json = why(&shared, "192.0.2.7 json");
        assert!(json.contains(r#""client_alert":"unknown_ca""#), "{json}");
        assert!(why(&shared, "no.example").starts_with("error: no failed handshake"));
        assert!(why(&shared, "").starts_with("error: say whose"));
        assert!(why(&shared, "a b").starts_with("error: `b`"));
        let (reasons, alerts) = shared.failures.counted();
        assert_eq!(
            (reasons.get("client_slow"), alerts.get("unknown_ca")),
            (Some(&1), Some(&1))
        );
    }

    #[test]
    fn what_a_client_said_cannot_reach_a_terminal_raw() {
        let shared = shared();
        shared
            .failures
            .record(failure("192.0.2.7", Some("a\u{1b}[2J\n"), "client_gone"));
        let shown = why(&shared, "192.0.2.7");
        assert!(
            !shown.contains('\u{1b}') && shown.contains("\\u{1b}"),
            "{shown}"
        );
    }
}
