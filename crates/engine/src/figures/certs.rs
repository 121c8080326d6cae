//! Every certificate by itself, for `nagaya certs`: a row each, those with a problem first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use control::{Certificate, CertificateOrder};
use ipc::acme::OrderedCertificate;
use ipc::certificates::{KeyKind, Source};

use super::certificates::{is_failing, now_s, word};
use super::table::{count, grid};
use crate::directory::eyes;
use crate::generation::Generation;
use crate::permits::questions::moment;
use crate::tls::table::covers;
use crate::worker::Shared;

/// Rows of a table.
const SHOWN_MAX: usize = 200;

/// Answers `certs [json] [NAME]`.
pub(crate) fn certs(shared: &Shared, rest: &str) -> String {
    let (is_json, name) = match rest.split_once(' ').unwrap_or((rest, "")) {
        ("json", name) => (true, name.trim()),
        _ => (false, rest.trim()),
    };
    let mut rows = rows(shared, now_s());
    if !name.is_empty() {
        let name = name.trim_end_matches('.');
        rows.retain(|row| {
            let ordered = row.order.iter().flat_map(|order| &order.names);
            let mut names = row.names.iter().chain(ordered);
            names.any(|known| covers(known, name))
        });
    }
    match is_json {
        true => control::json(&rows),
        false if rows.is_empty() => none(name),
        false => table(&rows),
    }
}

fn none(name: &str) -> String {
    match name {
        "" => "error: there is no certificate, and none is ordered: `[tls] certificates` leads to no file, no site names one, and no authority is asked for one\n".into(),
        name => format!("error: no certificate is for {name}, and none is ordered\n"),
    }
}

/// The rows of all certificates, and whose they are.
pub(crate) fn look(shared: &Shared) -> Vec<Certificate> {
    let mut rows = rows(shared, now_s());
    if let Some(generation) = shared.generation() {
        let of_rows = tenants_of_rows(shared, &generation, &rows);
        for row in &mut rows {
            let tenants = row.names.iter().map(|name| {
                let written = generation.tenant_of(name);
                written.or_else(|| of_rows.get(name).map(String::as_str))
            });
            let tenants = tenants.collect::<Option<BTreeSet<&str>>>();
            let tenants = tenants.unwrap_or_default().into_iter();
            row.tenants = tenants.map(str::to_owned).collect();
        }
    }
    rows
}

/// Whose the names are that a row says it of, by what is known of rows.
fn tenants_of_rows(
    shared: &Shared,
    generation: &Generation,
    rows: &[Certificate],
) -> HashMap<String, String> {
    let names = rows.iter().flat_map(|row| &row.names);
    let names = names.filter(|name| generation.may_be_row(name));
    let names: Vec<String> = names.cloned().collect();
    let outlines = eyes::outlines_of(shared, generation, &names);
    let known = names.into_iter().zip(outlines.unwrap_or_default());
    known
        .filter_map(|(name, outline)| Some((name, outline?.tenant)))
        .collect()
}

/// Answers `certs-renew NAME`: what the certificate is called.
pub(crate) fn renew(shared: &Shared, name: &str) -> String {
    told(shared.orders.renew(plain_name(name)))
}

/// Answers `certs-rehearse NAME`: what the certificate is called.
pub(crate) fn rehearse(shared: &Shared, name: &str) -> String {
    told(shared.orders.rehearse(plain_name(name)))
}

fn plain_name(name: &str) -> &str {
    name.trim().trim_end_matches('.')
}

fn told(asked: Result<String, String>) -> String {
    match asked {
        Ok(called) => format!("{called}\n"),
        Err(why) => format!("error: {why}\n"),
    }
}

/// A row for each: those with a problem first, then those that end first.
fn rows(shared: &Shared, now_s: i64) -> Vec<Certificate> {
    let table = shared.certificates.table();
    let set = table.set();
    let counts = shared.certificates.counts();
    let mut orders = shared.orders.all();
    let mut rows = Vec::with_capacity(set.certificates.len());
    for certificate in &set.certificates {
        let counts = counts.get(&certificate.source).copied().unwrap_or_default();
        let mut row = row(&certificate.source, &mut orders);
        row.name = certificate.names.first().cloned().unwrap_or_default();
        row.names.clone_from(&certificate.names);
        row.key = Some(kind(certificate.kind));
        row.valid_from = Some(at(certificate.not_before_s));
        row.valid_until = Some(at(certificate.not_after_s));
        row.valid_s = Some(certificate.not_after_s.saturating_sub(now_s));
        if let Some(problem) = &certificate.problem {
            row.problem = Some(problem.clone());
        }
        (row.handshakes, row.client_alerts) = (counts.completed, counts.alerts);
        rows.push(row);
    }
    for broken in &set.broken {
        let mut row = row(&broken.source, &mut orders);
        row.problem = Some(broken.problem.clone());
        rows.push(row);
    }
    let awaited: Vec<Source> = orders.keys().cloned().map(Source::Acme).collect();
    rows.extend(awaited.iter().map(|source| row(source, &mut orders)));
    rows.sort_by(|one, other| {
        let key = |row: &Certificate| (row.problem.is_none(), row.valid_s.unwrap_or(i64::MIN));
        (key(one), &one.name).cmp(&(key(other), &other.name))
    });
    rows
}

/// What a source, and its order, say of a certificate.
fn row(source: &Source, orders: &mut BTreeMap<String, OrderedCertificate>) -> Certificate {
    let row = Certificate {
        source: word(source).into(),
        ..Certificate::default()
    };
    match source {
        Source::File(path) | Source::Upstream(path) => Certificate {
            of: path.clone(),
            ..row
        },
        Source::Local(site) => Certificate {
            of: site.clone(),
            name: site.clone(),
            ..row
        },
        Source::Acme(path) => match orders.remove(path) {
            Some(order) => Certificate {
                name: order.names.first().cloned().unwrap_or_default(),
                problem: is_failing(&order).then(|| order.state.error.clone()),
                of: order.account.clone(),
                order: Some(shown(&order)),
                names: order.names,
                ..row
            },
            None => Certificate {
                of: path.clone(),
                ..row
            },
        },
    }
}

fn shown(order: &OrderedCertificate) -> CertificateOrder {
    let known = |seconds: i64| (seconds > 0).then(|| at(seconds));
    let state = &order.state;
    CertificateOrder {
        names: order.names.clone(),
        here: order.is_ordered_here,
        tries: state.tries,
        issued: state.issued,
        failures: state.failures,
        rehearsals: state.rehearsals,
        rehearsal_problem: Some(state.rehearsal.clone()).filter(|it| !it.is_empty()),
        last_try: known(state.last_try_s),
        next_try: known(state.next_try_s),
    }
}

fn kind(kind: KeyKind) -> String {
    match kind {
        KeyKind::Rsa { bits } => format!("RSA-{bits}"),
        KeyKind::P256 => "P-256".to_owned(),
        KeyKind::P384 => "P-384".to_owned(),
        KeyKind::P521 => "P-521".to_owned(),
        KeyKind::Ed25519 => "Ed25519".to_owned(),
    }
}

fn table(rows: &[Certificate]) -> String {
    let heads = [
        "name",
        "source",
        "key",
        "expires",
        "in",
        "last try",
        "next try",
        "handshakes",
        "alerts",
    ];
    let none = || "-".to_owned();
    let cells = rows.iter().take(SHOWN_MAX).map(|row| {
        let order = row.order.as_ref();
        let next = match order {
            Some(order) if !order.here => Some("elsewhere".to_owned()),
            order => order.and_then(|order| order.next_try.clone()),
        };
        vec![
            name_of(row),
            source_of(row),
            row.key.clone().unwrap_or_else(none),
            row.valid_until.clone().unwrap_or_else(none),
            row.valid_s.map_or_else(none, left),
            order
                .and_then(|order| order.last_try.clone())
                .unwrap_or_else(none),
            next.unwrap_or_else(none),
            count(row.handshakes),
            count(row.client_alerts),
        ]
    });
    let mut out = String::new();
    grid(&heads, cells.collect(), &mut out);
    // Writing to memory does not fail, here and below.
    if let more @ 1.. = rows.len().saturating_sub(SHOWN_MAX) {
        let _ = writeln!(out, "and {more} that end later; --json has them all");
    }
    let wrong = rows.iter().take(SHOWN_MAX);
    for (row, problem) in wrong.filter_map(|row| Some((row, row.problem.as_ref()?))) {
        let _ = writeln!(out, "\n{}: {}", name_of(row), plain(problem));
    }
    out.trim_start().to_owned()
}

fn name_of(row: &Certificate) -> String {
    let name = match row.name.as_str() {
        "" => &row.of,
        name => name,
    };
    match row.names.len().saturating_sub(1) {
        0 => plain(name),
        more => format!("{} +{more}", plain(name)),
    }
}

fn source_of(row: &Certificate) -> String {
    match &*row.source {
        "file" => plain(&row.of),
        "acme" => format!("acme {}", plain(&row.of)),
        source => source.to_owned(),
    }
}

/// What a terminal may be shown of a text that others wrote.
fn plain(text: &str) -> String {
    text.escape_debug().to_string()
}

/// `61 d`, `5 h`, `expired 3 d ago`
fn left(seconds: i64) -> String {
    let size = match seconds.unsigned_abs() {
        s @ 0..3_600 => format!("{} min", s / 60),
        s @ 3_600..172_800 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    };
    match seconds < 0 {
        true => format!("expired {size} ago"),
        false => size,
    }
}

fn at(seconds: i64) -> String {
    moment(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
pub(crate) mod tests {
    use ipc::acme::CertificateState;
    use ipc::certificates::{Blob, Broken, CertificateSet, KeyId};
    use ipc::server::CertificateNews;

    use super::*;
    use crate::tls::table::CertificateTable;

    pub(crate) const NOW_S: i64 = 1_800_000_000;

    pub(crate) fn certificate(
        source: Source,
        names: &[&str],
        days: i64,
    ) -> ipc::certificates::Certificate {
        ipc::certificates::Certificate {
            source,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            not_before_s: NOW_S - 10 * 86_400,
            not_after_s: NOW_S + days * 86_400,
            kind: KeyKind::P256,
            key: KeyId(1),
            chain: vec![0],
            problem: None,
            tenant: None,
        }
    }

    fn ordered(name: &str, error: &str) -> OrderedCertificate {
        OrderedCertificate {
            path: format!("/store/{name}.pem"),
            account: "le".into(),
            names: vec![name.into()],
            is_ordered_here: true,
            state: CertificateState {
                certificate: name.into(),
                tries: 3,
                issued: 1,
                last_try_s: NOW_S - 60,
                next_try_s: NOW_S + 60,
                error: error.into(),
                ..CertificateState::default()
            },
        }
    }

    pub(crate) fn shared(certificates: Vec<ipc::certificates::Certificate>) -> Shared {
        let shared = Shared::new(1).0;
        shared
            .certificates
            .replace(CertificateTable::new(CertificateSet {
                number: 1,
                blobs: vec![Blob::default()],
                certificates,
                broken: vec![Broken {
                    source: Source::File("/etc/broken.pem".into()),
                    problem: "no \u{1b}PEM".into(),
                }],
            }));
        shared
    }

    fn news(certificates: Vec<OrderedCertificate>) -> CertificateNews {
        CertificateNews {
            certificates,
            ..CertificateNews::default()
        }
    }

    pub(crate) fn town() -> Shared {
        let (file, local) = (
            Source::File("/etc/a.pem".into()),
            Source::Local("dev".into()),
        );
        let acme = Source::Acme("/store/b.example.pem".into());
        let shared = shared(vec![
            certificate(file.clone(), &["a.example", "*.a.example"], 60),
            certificate(acme, &["b.example"], -3),
            certificate(local, &["dev.localhost"], 5),
        ]);
        shared.certificates.count(&file, true);
        shared.certificates.count(&file, true);
        shared.certificates.count(&file, false);
        let orders = vec![
            ordered("b.example", "the authority is away"),
            ordered("c.example", ""),
        ];
        shared.orders.take(news(orders));
        shared
    }

    #[test]
    fn each_certificate_has_a_row_and_what_needs_somebody_comes_first() {
        let rows = rows(&town(), NOW_S);
        let names: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_str(), &*row.source))
            .collect();
        let expected = [
            ("", "file"),
            ("b.example", "acme"),
            ("c.example", "acme"),
            ("dev.localhost", "local"),
            ("a.example", "file"),
        ];
        assert_eq!(names, expected);
        let last = rows.last().map(|row| (row.handshakes, row.client_alerts));
        assert_eq!(last, Some((2, 1)));
        let text = table(&rows);
        for part in [
            "a.example +1",
            "expired 3 d ago",
            "b.example: the authority is away",
            "/etc/broken.pem: no \\u{1b}PEM",
            "acme le",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn a_name_finds_what_is_for_it_wildcards_included() {
        let shared = town();
        let found = |name: &str| {
            certs(&shared, &format!("json {name}"))
                .matches("\"source\"")
                .count()
        };
        for (name, count) in [
            ("", 5),
            ("a.example", 1),
            ("WWW.a.example.", 1),
            ("x.y.a.example", 0),
            ("c.example", 1),
            ("dev", 0),
        ] {
            assert_eq!(found(name), count, "{name}");
        }
        assert!(
            certs(&shared, "no.example").starts_with("error: no certificate is for no.example")
        );
    }

    #[test]
    fn an_order_is_asked_for_here_alone_and_for_names_that_are_ordered() {
        let shared = town();
        let mut elsewhere = ordered("d.example", "");
        elsewhere.is_ordered_here = false;
        shared.orders.take(news(vec![elsewhere]));
        for (name, why) in [
            ("a.example", "no certificate for a.example is ordered"),
            ("d.example", "another machine orders"),
            ("b.example", "there is no supervisor"),
        ] {
            let said = renew(&shared, name);
            assert!(said.starts_with("error: ") && said.contains(why), "{said}");
        }
    }
}
