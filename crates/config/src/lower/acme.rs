//! `[acme.NAME]`, and what sites say of them.

use super::command::command;
use super::context::{problem, title_of};
use super::names::Named;
use super::table::Table;
use super::tops::{Tops, once_each};
use super::user::{Role, wrong_user};
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::{
    Acceptor, Acme, AcmeBinding, AcmeChallenge, AcmeDns, AcmeExport, Chore, HostPattern, Model,
    OnDemand, Site,
};

/// Accounts there may be.
const ACCOUNTS_MAX: usize = 100;
/// Who makes records: the package makes it.
const DNS_USER: &str = "nagaya-dns";
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 64;

/// Takes in every `[acme.NAME]`.
pub(super) fn define_all(tops: &Tops<'_>) -> Vec<Acme> {
    let mut accounts: Vec<Acme> = Vec::new();
    let members = tops.members("acme");
    let names: Vec<String> = members.iter().map(|it| it.name.to_owned()).collect();
    for value in once_each(members, ("account", "accounts"), ACCOUNTS_MAX) {
        accounts.push(account(&value, &names));
    }
    let names = accounts.iter().map(|account| account.name.clone());
    *tops.context.accounts.borrow_mut() = names.collect();
    accounts
}

fn account(value: &Value<'_>, names: &[String]) -> Acme {
    let name = value.name;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(fits) {
        value.report(format!(
            "`{name}` cannot be an account's name: letters, digits, `-` and `_` can"
        ));
    }
    let table = value.table(&keys::ACME);
    let table = table.unwrap_or_else(|| Table::empty(value.context, &keys::ACME));
    let texts = |key| table.get(key).map(|value| value.one_or_list());
    let contact = texts("contact").unwrap_or_default();
    let fallback = texts("fallback").unwrap_or_default();
    let fallback = fallback.iter().filter_map(|other| {
        let found = named(other, names)?;
        if names.get(found).is_some_and(|found| found == name) {
            other.report("an account cannot stand in for itself");
        }
        Some(found)
    });
    let store = table.get("store").and_then(|value| values::path(&value));
    let default = || keys::default_of(&keys::ACME, "store").into();
    let challenges = challenges(&table);
    Acme {
        name: name.to_owned(),
        directory: table
            .required("directory")
            .and_then(url)
            .unwrap_or_default(),
        contact: contact.iter().filter_map(mailbox).collect(),
        binding: binding(&table),
        fallback: fallback.collect(),
        dns: dns(&table, &challenges),
        export: export(&table),
        challenges,
        profile: table.get("profile").and_then(|value| plain(&value)),
        authorities: table.get("ca").and_then(|value| values::path(&value)),
        store: store.unwrap_or_else(default).join(name),
        lease_ms: table.duration("lease"),
        on_demand: on_demand(&table),
    }
}

fn challenges(table: &Table<'_>) -> Vec<AcmeChallenge> {
    let mut challenges: Vec<AcmeChallenge> = Vec::new();
    let values = table.list("challenges");
    if values.is_empty()
        && let Some(list) = table.get("challenges").filter(Value::is_list)
    {
        list.report("`challenges` is empty: nothing could be shown to an authority");
    }
    for value in values {
        match value.choice() {
            Some(challenge) if challenges.contains(&challenge) => {
                value.report(format!("`{}` stands here twice", challenge.name()));
            }
            challenge => challenges.extend(challenge),
        }
    }
    if challenges.is_empty() {
        challenges.push(AcmeChallenge::Http01);
    }
    challenges
}

fn dns(table: &Table<'_>, challenges: &[AcmeChallenge]) -> Option<AcmeDns> {
    let value = table.get("dns");
    let is_wanted = challenges.contains(&AcmeChallenge::Dns01);
    if let (true, None, Some(challenges)) = (is_wanted, &value, table.get("challenges")) {
        challenges.report_help(
            "`dns-01` needs a program that puts records there",
            "name it: `dns = { program = [\"./dns.sh\"] }`",
        );
    } else if let (false, Some(value)) = (is_wanted, &value) {
        let message = "`dns` says nothing without `dns-01` among `challenges`";
        let help = "add it: `challenges = [\"dns-01\"]`";
        value.warn_help(message, help);
    }
    let table = value?.table(&keys::ACME_DNS)?;
    let own = table.get("user").and_then(|value| {
        let name = value.text()?;
        if let Some((message, help)) = wrong_user(value.context.sources, Role::Programs, name) {
            value.report_help(message, help);
        }
        Some(name.to_owned())
    });
    Some(AcmeDns {
        program: Chore {
            command: command(table.required("program")?),
            directory: table.context.sources.resolve(table.file, ""),
            has_own_user: own.is_some(),
            user: own.unwrap_or_else(|| DNS_USER.to_owned()),
        },
        timeout_ms: table.duration("timeout"),
    })
}

fn export(table: &Table<'_>) -> Option<AcmeExport> {
    let table = table.get("export")?.table(&keys::ACME_EXPORT)?;
    let mode = values::mode(&table.text("mode")).filter(|mode| mode & 0o133 == 0);
    if mode.is_none() {
        let message = "`mode` is three or four octal digits, and lets nobody else write or anybody execute, as in `\"0640\"`";
        table.report_at(&["mode"], message);
    }
    let owner = table.get("owner").and_then(|value| {
        let name = value.text()?;
        let wrong = wrong_user(value.context.sources, Role::Files, name);
        // Root it may be, where that is said.
        if let Some((message, help)) = wrong.filter(|_| name != "root") {
            value.report_help(message, help);
        }
        Some(name.to_owned())
    });
    let run = table.get("run").and_then(|value| {
        let Some(owner) = &owner else {
            value.report_help(
                "whom `run` runs as is to be said",
                "name whose the files are: `owner = \"root\"`",
            );
            return None;
        };
        Some(Chore {
            command: command(value),
            directory: table.context.sources.resolve(table.file, ""),
            user: owner.clone(),
            has_own_user: true,
        })
    });
    Some(AcmeExport {
        directory: table
            .required("directory")
            .and_then(|value| values::path(&value))?,
        owner,
        mode: mode.unwrap_or(0o600),
        run,
    })
}

fn binding(table: &Table<'_>) -> Option<AcmeBinding> {
    let table = table.get("eab")?.table(&keys::EAB)?;
    Some(AcmeBinding {
        id: table.required("id").and_then(|value| plain(&value))?,
        key: table
            .required("key")
            .and_then(|value| values::path(&value))?,
    })
}

fn on_demand(table: &Table<'_>) -> Option<OnDemand> {
    let table = table.get("on_demand")?.table(&keys::ON_DEMAND)?;
    let by = match table.get("directory") {
        Some(directory) => {
            if let Some(map) = table.get("map") {
                map.report("`map` says nothing beside `directory`");
            }
            Acceptor::Directory(values::directory_named(&directory)?.0)
        }
        None => {
            let example = "map = \"customers\"` or `directory = \"customers\"";
            let map = table.required_as("map", example)?;
            Acceptor::Map(values::map_named(&map, map.text()?, map.spot())?)
        }
    };
    let count = |key| usize::try_from(table.count(key)).unwrap_or(usize::MAX);
    Some(OnDemand {
        by,
        per_tenant: count("tenant"),
        per_domain: count("domain"),
        in_all: count("total"),
        names: count("names"),
        unused_ms: table.duration("unused"),
    })
}

fn url(value: Value<'_>) -> Option<String> {
    let text = plain(&value)?;
    if !text.starts_with("https://") && !text.starts_with("http://") {
        value.report_help(
            format!("`{text}` is no URL"),
            "as in `https://acme-v02.api.letsencrypt.org/directory`",
        );
        return None;
    }
    Some(text)
}

fn plain(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if !values::is_plain(text) || text.contains(' ') {
        value.report(format!("`{}` must be one word of plain text", value.name));
        return None;
    }
    Some(text.to_owned())
}

/// A mail address as the URL that it stands for; any other URL as it is.
fn mailbox(value: &Value<'_>) -> Option<String> {
    let text = plain(value)?;
    if !text.contains('@') && !text.contains(':') {
        value.report_help(
            format!("`{text}` is neither a mail address nor a URL"),
            "as in `ops@example.jp`",
        );
    }
    Some(match text.contains(':') {
        true => text,
        false => format!("mailto:{text}"),
    })
}

/// The index of the account that a text names.
fn named(value: &Value<'_>, names: &[String]) -> Option<usize> {
    let name = value.text()?;
    let found = names.iter().position(|known| known == name);
    if found.is_none() {
        let finding = problem(value.spot(), format!("there is no account `{name}`"));
        let finding = match keys::nearest(name, names.iter().map(String::as_str)) {
            Some(meant) => finding.meant(Some(meant)),
            None => finding.help(format!("describe it: `{}`", title_of("acme", name))),
        };
        value.context.report(finding.absence());
    }
    found
}

/// `acme` of a site's `tls`.
pub(super) fn of_site(table: &Table<'_>) -> Option<usize> {
    let value = table.get("acme")?;
    let names = value.context.accounts.borrow();
    named(&value, &names)
}

/// Warns of hosts that no certificate is ordered for.
pub(super) fn judge(tops: &Tops<'_>, model: &Model) {
    let places = tops.elements_again("sites");
    judge_rows(tops, model);
    for (site, place) in model.sites.iter().zip(places) {
        let account = site.tls.acme.and_then(|index| model.acme.get(index));
        let account = account.filter(|account| account.on_demand.is_none());
        let (Some(place), Some(account)) = (place.member("tls"), account) else {
            continue;
        };
        let unordered = site.hosts.iter().find(|host| match host {
            HostPattern::Exact(_) => false,
            HostPattern::Below(_) => !account.orders_wildcards(),
            HostPattern::Any => true,
        });
        if let Some(host) = unordered {
            let message = format!("no certificate is ordered for `{host}`");
            let help = match host {
                HostPattern::Below(_) => format!(
                    "name each host that is to have one, or show the authority all names below by \
                     records: `challenges = [\"dns-01\"]` and `dns` of [acme.{}]",
                    account.name
                ),
                HostPattern::Exact(_) | HostPattern::Any => {
                    "name each host that is to have one, or give the account `on_demand`".to_owned()
                }
            };
            place.warn_help(message, help);
        }
    }
}

/// Refuses sites of rows whose account does not ask their directory, and a default site beside one that does: whose a
/// name is says the row alone.
fn judge_rows(tops: &Tops<'_>, model: &Model) {
    let asks = |site: &Site| matches!(model.acceptor_of(site), Some(Acceptor::Directory(_)));
    let is_asked = model.sites.iter().any(asks);
    for (site, place) in model.sites.iter().zip(tops.elements_again("sites")) {
        let (Some(place), Some(account)) = (place.member("tls"), site.tls.acme) else {
            continue;
        };
        let account = model.acme.get(account).map_or("", |it| &it.name);
        let is_default = site.hosts.contains(&HostPattern::Any);
        if let Some(rows) = site.rows.as_ref().filter(|_| !asks(site)) {
            let message = format!(
                "account `{account}` orders nothing for directory `{}`",
                rows.name
            );
            let name = &rows.name;
            let help =
                format!("say so in [acme.{account}]: `on_demand = {{ directory = \"{name}\" }}`");
            place.report_help(message, help);
        } else if is_asked && is_default && model.acceptor_of(site).is_some() {
            place.report(
                "the default site has names ordered on demand, and so has a site of a directory: \
                 which of them one is for is not known before there is a certificate",
            );
        }
    }
}
