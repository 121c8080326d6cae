//! TLS of listeners, process and sites. Certificates are not read here: only who keeps their keys does.

use std::path::Path;
use std::sync::Arc;

use super::context::problem;
use super::table::Table;
use super::tops::Tops;
use super::value::Value;
use super::{acme, files, script, values};
use crate::glob;
use crate::keys;
use crate::mentions::AUTHORITIES;
use crate::model::{
    CertificateFiles, ClientCertificates, ListenTls, Listener, Model, Site, SiteTls, Tls,
    TlsVersion, UpstreamTls,
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
        ticket_secret: table.get("ticket_secret").and_then(|it| values::path(&it)),
        script_files: script::existing_directories(&table, "script_files"),
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
    let is_of_rows = table.context.has_rows.get();
    let files = (!is_of_rows).then(|| certificate_files(&table)).flatten();
    let local = table.flag("local");
    if let (true, Some(value), Some(_)) = (local, table.get("local"), &files) {
        let finding = problem(value.spot(), "`local` says nothing beside `certificate`");
        table.context.warn(finding.help("take one of them out"));
    }
    SiteTls {
        files,
        local,
        acme: acme::of_site(&table),
        script: table.flag("script"),
        client: client(&table).map(Arc::new),
        redirect: table.flag("redirect"),
        hsts_s: table.some_number("hsts").map(|ms| ms / 1_000),
    }
}

/// A certificate and its key.
fn certificate_files(table: &Table<'_>) -> Option<CertificateFiles> {
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
    certificate.map(|certificate| CertificateFiles {
        key: key.unwrap_or_else(|| certificate.clone()),
        certificate,
        is_loose: table.context.is_loose(table.file),
    })
}

/// `tls` of an upstream.
pub(super) fn of_upstream(value: &Value<'_>) -> Option<UpstreamTls> {
    if let Some(flag) = value.as_flag() {
        let table = Table::empty(value.context, &keys::UPSTREAM_TLS);
        return flag.then(|| to_servers(value, &table)).flatten();
    }
    to_servers(value, &value.table(&keys::UPSTREAM_TLS)?)
}

/// What a table says of the TLS that `value` asks for.
pub(super) fn to_servers(value: &Value<'_>, table: &Table<'_>) -> Option<UpstreamTls> {
    let verify = table.flag("verify");
    let ca = table.get("ca");
    let file = ca.as_ref().and_then(values::path);
    let authorities = match (&ca, &file) {
        (Some(ca), _) if !verify => {
            ca.report("`ca` says nothing with `verify = false`");
            return None;
        }
        (Some(ca), Some(file)) => authorities(ca, file)?,
        (Some(_), None) => return None,
        (None, _) if verify => authorities_of_machine(value)?,
        (None, _) => Arc::default(),
    };
    if let Some(verify) = table.get("verify").filter(|_| !verify) {
        let message = "whoever is on the way to the servers can read and change everything";
        let finding = problem(verify.spot(), message);
        let help = "name who vouches for them, `ca = \"FILE\"`, and take `verify` out";
        table.context.warn(finding.help(help));
    }
    let name = table.get("name");
    let name = name.map(|value| values::host(&value, value.text()?));
    Some(UpstreamTls {
        authorities,
        file,
        name: match name {
            Some(name) => Some(name?),
            None => None,
        },
        verify,
        certificate: certificate_files(table),
    })
}

/// The certificates of those whom this machine trusts.
fn authorities_of_machine(value: &Value<'_>) -> Option<Arc<[u8]>> {
    let data = &value.context.sources.data;
    let is_there = |bundle: &&Path| matches!(data.get(*bundle), Some(Ok(_)));
    match AUTHORITIES.iter().map(Path::new).find(is_there) {
        Some(bundle) => authorities(value, bundle),
        None => {
            let message =
                "this machine has no certificates of authorities that could vouch for a server";
            let help = "install `ca-certificates`, or name a file: `ca = \"FILE\"`";
            value.report_help(message, help);
            None
        }
    }
}

/// What a file of authorities holds, shared by all that name it.
fn authorities(value: &Value<'_>, file: &Path) -> Option<Arc<[u8]>> {
    let cache = &value.context.files.authorities;
    if let Some(known) = cache.borrow().get(file) {
        return Some(Arc::clone(known));
    }
    let bytes = Arc::<[u8]>::from(files::content(value, file)?);
    let known = Arc::clone(&bytes);
    cache.borrow_mut().insert(file.to_owned(), known);
    Some(bytes)
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
    Some(ClientCertificates {
        authorities: authorities(&value, &file)?,
        file,
        mode,
    })
}

/// Warns where a site lets scripts choose its certificate and none is there to do so.
pub(super) fn judge_scripts(tops: &Tops<'_>, model: &Model) {
    let of_tenant = |site: &Site| {
        let tenant = model.tenants.get(site.tenant_index?)?;
        Some(!tenant.scripts.ssl_handshake.is_empty())
    };
    let has_any = |site: &Site| {
        !model.scripts.phases.ssl_handshake.is_empty()
            || !site.scripts.ssl_handshake.is_empty()
            || of_tenant(site).unwrap_or(false)
    };
    let sites = model.sites.iter().zip(tops.elements_again("sites"));
    for (_, place) in sites.filter(|(site, _)| site.tls.script && !has_any(site)) {
        if let Some(place) = place.member("tls") {
            let finding = problem(
                place.spot(),
                "`script = true`, and no script runs in its handshakes",
            );
            let help = "add `scripts = { ssl_handshake = \"hooks/certificate.rb\" }`";
            tops.context.warn(finding.help(help));
        }
    }
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
