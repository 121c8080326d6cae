//! TLS of listeners, process and sites. Certificates are not read here: only who keeps their keys does.

use std::sync::Arc;

use super::context::problem;
use super::table::Table;
use super::tops::Tops;
use super::value::Value;
use super::{acme, files, values};
use crate::glob;
use crate::keys;
use crate::model::{
    CertificateFiles, ClientCertificates, ListenTls, Listener, Site, SiteTls, Tls, TlsVersion,
};

/// `tls` of a listener.
pub(super) fn of_listener(table: &Table<'_>) -> Option<ListenTls> {
    let value = table.get("tls")?;
    if let Some(flag) = value.as_flag() {
        return flag.then_some(ListenTls { default: None });
    }
    let table = value.table(&keys::LISTEN_TLS)?;
    let host = table
        .get("default")
        .and_then(|value| values::host(&value, value.text()?));
    Some(ListenTls { default: host })
}

/// `[tls]`.
pub(super) fn of_process(tops: &Tops<'_>) -> Tls {
    let table = tops.table("tls", &keys::TLS);
    let certificates = table.list("certificates");
    Tls {
        certificates: certificates.iter().filter_map(pattern).collect(),
        versions: versions(&table),
        tickets_ms: table.duration("tickets"),
    }
}

fn pattern(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if let Err(why) = glob::check(text) {
        value.report(format!("bad glob in `certificates`: {why}"));
        return None;
    }
    Some(values::path(value)?.to_str()?.to_owned())
}

fn versions(table: &Table<'_>) -> Vec<TlsVersion> {
    let both = vec![TlsVersion::V12, TlsVersion::V13];
    let Some(list) = table.get("versions") else {
        return both;
    };
    let values = list.list().unwrap_or_default();
    if values.is_empty() && list.is_list() {
        list.report("`versions` is empty: nothing would be spoken");
    }
    let mut versions: Vec<TlsVersion> = values.iter().filter_map(Value::choice).collect();
    versions.sort();
    versions.dedup();
    if versions.is_empty() { both } else { versions }
}

/// `tls` of a site.
pub(super) fn of_site(table: &Table<'_>) -> SiteTls {
    let table = table.table("tls", &keys::SITE_TLS);
    let certificate = table
        .get("certificate")
        .and_then(|value| values::path(&value));
    let key = table.get("key").and_then(|value| values::path(&value));
    if table.get("certificate").is_none()
        && let Some(key) = table.get("key")
    {
        let finding = problem(key.spot(), "`key` says nothing without `certificate`");
        table.context.report(finding.absence());
    }
    let files = certificate.map(|certificate| CertificateFiles {
        key: key.unwrap_or_else(|| certificate.clone()),
        certificate,
        is_loose: table.context.is_loose(table.file),
    });
    let local = table.flag("local");
    if let (true, Some(value), Some(_)) = (local, table.get("local"), &files) {
        let finding = problem(value.spot(), "`local` says nothing beside `certificate`");
        table.context.warn(finding.help("take one of them out"));
    }
    SiteTls {
        files,
        local,
        acme: acme::of_site(&table),
        client: client(&table).map(Arc::new),
        redirect: table.flag("redirect"),
        hsts_s: table.some_number("hsts").map(|ms| ms / 1_000),
    }
}

fn client(table: &Table<'_>) -> Option<ClientCertificates> {
    let Some(value) = table.get("client_ca") else {
        if let Some(mode) = table.get("client_auth") {
            let finding = problem(
                mode.spot(),
                "`client_auth` says nothing without `client_ca`",
            );
            table.context.report(finding.absence());
        }
        return None;
    };
    let mode = table.choice("client_auth");
    let file = values::path(&value)?;
    let authorities = files::content(&value, &file)?;
    Some(ClientCertificates {
        authorities: Arc::from(authorities),
        file,
        mode,
    })
}

/// Warns where TLS is asked for that no listener speaks.
pub(super) fn judge(tops: &Tops<'_>, listeners: &[Listener], sites: &[Site]) {
    if listeners.iter().any(|listener| listener.tls.is_some()) {
        return;
    }
    let asks = |site: &Site| *site.tls != SiteTls::default();
    let Some(place) = tops
        .elements_again("sites")
        .into_iter()
        .find_map(|site| site.member("tls"))
        .filter(|_| sites.iter().any(asks))
    else {
        return;
    };
    let finding = problem(place.spot(), "no listener speaks TLS");
    let help = "add `tls = true` to a `[[listen]]`, as that of port 443";
    tops.context.warn(finding.help(help));
}
