//! `handler = { console = … }`: what it shows, below which path, and whether somebody asks who comes.
//!
//! The idea: a console is a way to what others must not see, so that its rule says whose figures it
//! shows and something in force there says for whom; both are looked at before anything is served.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::context::problem;
use super::files::content;
use super::table::Table;
use super::tops::Tops;
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::{
    ClientAuth, Condition, Console, Glob, Handler, LinkSecret, Model, Rule, Settings, Site,
};

/// The shortest secret: it is guessed at by whoever likes to.
const SECRET_BYTES_MIN: usize = 32;
/// The longest.
const SECRET_BYTES_MAX: usize = 4 << 10;

/// What a console shows; where it stands is not known yet.
pub(super) fn console(value: &Value<'_>) -> Option<Handler> {
    let (tenants, secret) = match (value.as_flag(), value.is_text(), value.is_table()) {
        (Some(true), ..) => (None, None),
        (_, true, _) if value.text() == Some(Console::OWN_TENANT) => {
            (Some(vec![Console::OWN_TENANT.to_owned()]), None)
        }
        (_, _, true) => {
            let table = value.table(&keys::CONSOLE)?;
            let secret = table.get("link_secret").map(|value| secret(&value));
            (
                tenants(&table)?,
                secret.map_or(Some(None), |it| it.map(Some))?,
            )
        }
        _ => {
            value.report_help(
                "`console` must be `true`, `\"$tenant\"` or a table",
                "`console = { tenants = [\"example\"] }` shows what is theirs",
            );
            return None;
        }
    };
    Some(Handler::Console(Box::new(Console {
        base: "/".to_owned(),
        tenants,
        secret,
    })))
}

/// The tenants that are named; `None` within where none are, and all is shown.
fn tenants(table: &Table<'_>) -> Option<Option<Vec<String>>> {
    let Some(value) = table.get("tenants") else {
        return Some(None);
    };
    let names = value.list()?;
    if names.is_empty() {
        value.report_help("`tenants` names nobody", "leave it out to show everything");
    }
    let names = names.iter().filter_map(|name| name.text());
    Some(Some(names.map(str::to_owned).collect()))
}

fn secret(value: &Value<'_>) -> Option<LinkSecret> {
    let file = values::path(value)?;
    let bytes = content(value, &file)?.trim_ascii();
    if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
        let message = format!(
            "`{}` holds {} bytes; a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}",
            file.display(),
            bytes.len()
        );
        value.report_help(message, "make one: `openssl rand -hex 32 > console.key`");
        return None;
    }
    if value.context.sources.open_to_others.contains(&file) {
        let message = format!(
            "every user of this machine may read `{}`, and sign links to everybody's figures with it",
            file.display()
        );
        let help = format!("`chmod 600 {}`, and make another secret", file.display());
        value.warn_help(message, help);
    }
    let bytes = Arc::from(bytes);
    Some(LinkSecret { file, bytes })
}

/// A handler as its rule has it: a console learns below which path it stands.
pub(super) fn placed(handler: Handler, conditions: &[Condition], rule: &Table<'_>) -> Handler {
    let Handler::Console(mut console) = handler else {
        return handler;
    };
    match base(conditions) {
        Some(base) => console.base = base,
        None => {
            let finding = problem(
                rule.get("match").map_or(rule.spot(), |it| it.spot()),
                "the console has to know below which path it stands",
            );
            let help = "write `match = { path = \"/console/*\" }`, or leave `match` out on a site of its own";
            rule.context.report(finding.help(help));
        }
    }
    Handler::Console(console)
}

/// The path that all of a rule's requests lie below, with a slash at its end.
fn base(conditions: &[Condition]) -> Option<String> {
    if conditions
        .iter()
        .any(|it| matches!(it, Condition::PathRegex(_)))
    {
        return None;
    }
    let paths = conditions.iter().find_map(|condition| match condition {
        Condition::Path(globs) => Some(globs),
        _ => None,
    });
    let Some(paths) = paths else {
        return Some("/".to_owned());
    };
    let below = |Glob(glob): &Glob| Some(glob.strip_suffix('*')?.to_owned());
    let base = paths.iter().find_map(below)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let stands = base.starts_with('/')
        && base.ends_with('/')
        && base.bytes().all(is_plain)
        && paths.iter().all(|glob| {
            below(glob).as_ref() == Some(&base) || base.strip_suffix('/') == Some(&glob.0)
        });
    stands.then_some(base)
}

/// A console, and what stands around it.
struct PlacedConsole<'a> {
    value: Value<'a>,
    console: &'a Console,
    site: &'a Site,
    /// The rules before its own, and that.
    rules: &'a [Rule],
    /// Whether passwords are asked for that could not be read, which was reported.
    has_broken_auth: bool,
}

/// Refuses consoles without a recorder, those that everybody could look at, and names that nobody has.
pub(super) fn judge(tops: &Tops<'_>, model: &Model) {
    for standing in consoles(tops, model) {
        if !tops.is_meant("recorder") {
            let message = "the console shows what the recorder knows, and there is no `[recorder]`";
            let help =
                "add `recorder = { directory = \"/var/lib/nagaya/recorder\" }` to the first file";
            let finding = problem(standing.value.spot(), message).help(help);
            tops.context.report(finding.absence());
        }
        if !standing.asks_who_comes(model) && !standing.has_broken_auth {
            let help = "add `auth = { file = \"…\" }` or `allow = [\"127.0.0.0/8\", \"::1\"]` to its rule, have the site \
                        require certificates of its clients on TLS alone, or give the console a `link_secret`";
            let finding = problem(
                standing.value.spot(),
                "everybody could look at this console",
            );
            tops.context.report(finding.help(help).absence());
        }
        standing.judge_neighbours();
        standing.judge_tenants(model);
    }
}

fn consoles<'a>(tops: &Tops<'a>, model: &'a Model) -> Vec<PlacedConsole<'a>> {
    let values = tops.elements_again("sites");
    // What is not whole has been reported.
    if values.len() != model.sites.len() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (in_file, site) in values.iter().zip(&model.sites) {
        let rules = in_file.member("rules").filter(|rules| rules.is_list());
        let rules = rules.and_then(|rules| rules.list()).unwrap_or_default();
        for (number, rule) in site.rules.iter().enumerate() {
            let (Some(Handler::Console(console)), true) =
                (&rule.handler, rules.len() == site.rules.len())
            else {
                continue;
            };
            let handler = rules.get(number).and_then(|it| it.member("handler"));
            let value = handler.and_then(|handler| handler.member("console"));
            let is_broken = |it: &Value<'_>, settings: &Settings| {
                settings.auth.is_none() && it.member("auth").is_some_and(|it| it.is_table())
            };
            let own = rules.get(number).zip(site.rules.get(number));
            // What could not be read was reported.
            let has_broken_auth = in_file.context.found() > 0
                && (is_broken(in_file, &site.settings)
                    || own.is_some_and(|(own, rule)| is_broken(own, &rule.settings)));
            found.extend(value.map(|value| PlacedConsole {
                has_broken_auth,
                value,
                console,
                site,
                rules: site.rules.get(..=number).unwrap_or_default(),
            }));
        }
    }
    found
}

impl PlacedConsole<'_> {
    /// What certainly holds for its requests: of the site, of the rule, and of rules before it that
    /// add what they say to every request.
    fn settings(&self) -> impl Iterator<Item = &Settings> {
        let last = self.rules.len().saturating_sub(1);
        let rules = self.rules.iter().enumerate();
        let rules = rules.filter(move |(number, rule)| {
            *number == last || rule.conditions.iter().all(Condition::always_holds)
        });
        let of_rules = rules.map(|(_, rule)| &*rule.settings);
        std::iter::once(&*self.site.settings).chain(of_rules)
    }

    fn asks_who_comes(&self, model: &Model) -> bool {
        let is_here_alone =
            |it: &Settings| !it.allow.is_empty() && it.allow.iter().all(is_loopback);
        self.console.secret.is_some()
            || self
                .settings()
                .any(|it| it.auth.is_some() || is_here_alone(it))
            || self.shows_certificates(model)
    }

    /// Whether nobody comes without a certificate: not by TLS, and not without it.
    fn shows_certificates(&self, model: &Model) -> bool {
        let tls = &self.site.tls;
        let is_required = |it: &crate::model::ClientCertificates| it.mode == ClientAuth::Require;
        tls.client.as_deref().is_some_and(is_required)
            && (tls.redirect || model.listeners.iter().all(|it| it.tls.is_some()))
    }

    /// What is others' is shown where nothing else could read it: what a page of the same site runs in
    /// a browser may ask for all of the site.
    fn judge_neighbours(&self) {
        let site = self.site;
        let is_its_own = |name: &String| name == Console::OWN_TENANT || *name == *site.tenant;
        let names = self.console.tenants.as_ref();
        if names.is_some_and(|names| names.iter().all(is_its_own)) {
            return;
        }
        if site.rows.is_some() {
            self.value.report_help(
                "a console on a site of a directory shows the tenant of the row, and nobody else",
                "write `console = \"$tenant\"`, or give it a site of its own",
            );
            return;
        }
        let serves = |handler: &Handler| {
            let is_program = handler.starts_programs() || handler.upstream().is_some();
            is_program || matches!(handler, Handler::Proxy(_))
        };
        let mut handlers = site.rules.iter().filter_map(|rule| rule.handler.as_ref());
        let other = if site.root.is_some() || !site.mounts.is_empty() {
            "files"
        } else if handlers.any(serves) {
            "programs or back ends"
        } else {
            return;
        };
        self.value.report_help(
            format!("a console of more than the site's own tenant stands on a site that has {other}: their pages could read it"),
            "give it a site of its own, or show `\"$tenant\"` here",
        );
    }

    fn judge_tenants(&self, model: &Model) {
        let known = model.sites.iter().map(|site| &*site.tenant);
        let known: BTreeSet<&str> = known
            .chain(model.tenants.iter().map(|tenant| &*tenant.name))
            .collect();
        for name in self.console.tenants.iter().flatten() {
            if name != Console::OWN_TENANT && !known.contains(name.as_str()) {
                let message = format!("there is no tenant `{name}`");
                let meant = keys::nearest(name, known.iter().copied());
                let finding = problem(self.value.spot(), message).meant(meant);
                self.value.context.report(finding.absence());
            }
        }
    }
}

/// Whether a network is of this machine alone.
fn is_loopback(network: &IpNet) -> bool {
    match network.addr() {
        IpAddr::V4(address) => address.is_loopback() && network.prefix_len() >= 8,
        IpAddr::V6(address) => address.is_loopback() && network.prefix_len() == 128,
    }
}
