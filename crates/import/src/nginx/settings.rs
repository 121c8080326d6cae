//! What a level says of access, limits, fields, times and records, as keys.
//!
//! The idea: of each family the innermost level that says anything counts, as nginx inherits; what
//! can only be kept more strictly is, and is told.

use ipnet::IpNet;

use super::parse::Statement;
use super::template::template;
use super::{Http, Scope, place};
use crate::draft::{DraftKeys, TomlItem, member};
use crate::ledger::ONE_FILE;
use crate::words;

/// Directives of which an inner level's take the place of an outer one's, where a rule here would
/// only add to its site.
pub(super) const ACCESS: &[&str] = &["allow", "deny"];
pub(super) const AUTH: &[&str] = &["auth_basic", "auth_basic_user_file"];
pub(super) const LIMITS: &[&str] = &["limit_req", "limit_conn"];
pub(super) const FIELDS: &[&str] = &["add_header"];

/// The longest that a reply may be kept, in milliseconds.
const LIFETIME_MS_MAX: u64 = 3_650 * 86_400_000;

impl<'a> Http<'a> {
    /// Who may come in, by address.
    pub(super) fn clients(&self, scope: &Scope<'a>, keys: &mut DraftKeys) {
        let lines = scope.all(ACCESS);
        let ids: Vec<usize> = lines.iter().map(|line| line.id).collect();
        if !lines.is_empty() && self.hides_clients && !lines.iter().all(|it| it.first() == "all") {
            let note = "clients are told by a field that is not believed here: `trusted_proxies` reads \
                `X-Forwarded-For`";
            ids.iter().for_each(|id| self.ledger.lost(*id, note));
            return keys.close(note);
        }
        let (mut allow, mut deny) = (Vec::<IpNet>::new(), Vec::<(IpNet, usize)>::new());
        let mut keeps_rest_out = false;
        for line in lines {
            let (is_allow, who) = (line.name == "allow", line.first());
            self.ledger.carried(line.id);
            if who == "all" {
                keeps_rest_out = !is_allow;
                break;
            }
            match (words::network(who), is_allow) {
                (Some(network), true) => allow.push(network),
                (Some(network), false) => {
                    let overlaps = |it: &IpNet| it.contains(&network) || network.contains(it);
                    if allow.iter().any(overlaps) {
                        let note = "`deny` wins here: those are kept out whom a line above lets in";
                        self.ledger.differs(line.id, note);
                    }
                    deny.push((network, allow.len()));
                }
                (None, true) => self.ledger.lost(line.id, "no address: fewer are let in"),
                (None, false) => {
                    self.ledger.lost(line.id, "no address: nobody is let in");
                    return keys.close("it is not known whom a `deny` keeps out");
                }
            }
        }
        if keeps_rest_out {
            // Those are kept out anyhow for whom no `allow` comes later.
            deny.retain(|(_, allowed)| *allowed < allow.len());
        }
        if keeps_rest_out && allow.is_empty() {
            return keys.put("deny", "all", &ids);
        }
        if keeps_rest_out {
            let allow = allow.iter().map(words::spell_network);
            keys.put("allow", TomlItem::texts(allow), &ids);
        }
        if !deny.is_empty() {
            let deny = deny
                .iter()
                .map(|(network, _)| words::spell_network(network));
            keys.put("deny", TomlItem::texts(deny), &ids);
        }
    }

    /// Whom a password is asked of.
    pub(super) fn auth(&self, scope: &Scope<'a>, keys: &mut DraftKeys) {
        let Some(realm) = scope.last("auth_basic") else {
            return;
        };
        self.ledger.carried(realm.id);
        if realm.first() == "off" {
            return;
        }
        let file = scope.last("auth_basic_user_file");
        let Some(path) = file.and_then(|file| self.path(file.first())) else {
            let note = "the file of passwords is not known: nobody is let in";
            self.ledger.lost(realm.id, note);
            return keys.close(note);
        };
        let said = words::realm(realm.first());
        let ids = [Some(realm.id), file.map(|file| file.id)];
        let ids: Vec<usize> = ids.into_iter().flatten().collect();
        ids.iter().for_each(|id| self.ledger.carried(*id));
        let auth = TomlItem::table([("realm", said.into()), ("file", path.into())]);
        keys.put("auth", auth, &ids);
        if let Some(any) = scope.last("satisfy").filter(|it| it.first() == "any") {
            let note =
                "both are asked for, an address that is let in and a password: there is no `any`";
            self.ledger.differs(any.id, note);
        }
    }

    /// How many may come at once, and how fast.
    pub(super) fn limits(&self, scope: &Scope<'a>, keys: &mut DraftKeys) {
        for line in scope.all(LIMITS) {
            let is_rate = line.name == "limit_req";
            let word = |name: &str| line.words.iter().find_map(|word| word.strip_prefix(name));
            let name = match is_rate {
                true => word("zone="),
                false => Some(line.first()),
            };
            let zone = name.and_then(|name| self.zones.get(name));
            let Some((zone, key)) = zone.and_then(|zone| Some((zone, zone.key.clone()?))) else {
                self.ledger
                    .lost(line.id, "it is not known what it counts by: write `limits`");
                continue;
            };
            let status = scope.last(&format!("{}_status", line.name));
            let code = status.and_then(|it| it.first().parse().ok());
            let code: u64 = code.unwrap_or(503);
            let mut members = vec![member("key", key)];
            if is_rate {
                let Some(rate) = &zone.rate else {
                    self.ledger
                        .lost(line.id, "its rate is not known: write `limits`");
                    continue;
                };
                let burst = word("burst=")
                    .and_then(|it| it.parse::<u64>().ok())
                    .unwrap_or(0);
                members.push(member("rate", rate.clone()));
                members.push(member("burst", burst.min(999_999) + 1));
                match line.words.iter().any(|word| word == "nodelay") || burst == 0 {
                    true => self.ledger.carried(line.id),
                    false => self.ledger.differs(
                        line.id,
                        "without `nodelay` nginx delays those within `burst`: here they pass at once, and one above \
                         it is refused",
                    ),
                }
            } else {
                let count = line.words.get(1).and_then(|it| it.parse::<u64>().ok());
                let count = count.unwrap_or(1).clamp(1, 1_000_000);
                members.push(member("concurrent", count));
                self.ledger.carried(line.id);
            }
            members.push(member("status", code.clamp(400, 599)));
            let note = "a zone that several sites name is one count there: here each has its own";
            self.ledger.differs(zone.id, note);
            let from = [Some(zone.id), Some(line.id), status.map(|it| it.id)];
            let from: Vec<usize> = from.into_iter().flatten().collect();
            status.iter().for_each(|it| self.ledger.carried(it.id));
            keys.put(
                "limits",
                TomlItem::List(vec![TomlItem::Table(members)]),
                &from,
            );
        }
    }

    /// Fields that replies get, and such as they lose.
    pub(super) fn fields(&self, scope: &Scope<'a>, keys: &mut DraftKeys) {
        let mut fields: Vec<(String, Vec<String>)> = Vec::new();
        for line in scope.all(FIELDS) {
            let name = line.first();
            let value = line.words.get(1).map_or("", String::as_str);
            let value = template(&self.settled(value), None);
            let Some(value) = value.filter(|_| config::is_changeable_field(name)) else {
                self.ledger.lost(
                    line.id,
                    "the field or a variable in it is none here: write `reply_headers`",
                );
                continue;
            };
            match line.words.get(2).map(String::as_str) {
                Some("always") => self.ledger.carried(line.id),
                _ => self
                    .ledger
                    .differs(line.id, "the field is sent with errors, too"),
            }
            keys.note(&[line.id]);
            match fields
                .iter_mut()
                .find(|(known, _)| known.eq_ignore_ascii_case(name))
            {
                _ if value.is_empty() => {}
                Some((_, values)) => values.push(value),
                None => fields.push((name.to_owned(), vec![value])),
            }
        }
        for (name, values) in fields {
            let value = TomlItem::table([(name.as_str(), TomlItem::one_or_list(values))]);
            keys.put_in("reply_headers", "add", value, &[]);
        }
    }

    /// Times, sizes and ages that a level says itself: a rule's take the place of its site's.
    pub(super) fn bounds(&self, level: &Scope<'a>, keys: &mut DraftKeys) {
        for (name, table, key) in [
            ("client_max_body_size", "caps", "body_bytes"),
            ("fastcgi_read_timeout", "timeouts", "upstream_read"),
            ("proxy_read_timeout", "timeouts", "upstream_read"),
            ("send_timeout", "timeouts", "write"),
        ] {
            if let Some(line) = level.last(name) {
                let said = match table {
                    "caps" => words::body(line.first()),
                    _ => words::wait(line.first()),
                };
                keys.bound((self.ledger, line.id), said, (table, key));
            }
        }
        if let Some(line) = level.last("keepalive_requests") {
            let count = line.first().parse().unwrap_or(1_000_u64).min(1_000_000_000);
            let key = ("caps", "requests_per_connection");
            keys.bound((self.ledger, line.id), Some(count), key);
        }
        if let Some(line) = level.last("expires") {
            match lifetime(line) {
                Some(said) => {
                    self.ledger.carried(line.id);
                    keys.put("expires", said, &[line.id]);
                }
                None => self
                    .ledger
                    .lost(line.id, "no age that can be said here: write `expires`"),
            }
        }
    }

    /// Where records go.
    pub(super) fn records(&self, level: &Scope<'a>, keys: &mut DraftKeys) {
        for line in level.all(&["access_log"]) {
            if line.first() == "off" {
                self.ledger.carried(line.id);
                keys.put_in("log", "access", "", &[line.id]);
                continue;
            }
            let path = self.path(line.first());
            let Some(path) = path.filter(|_| keys.get("log").is_none()) else {
                self.ledger
                    .lost(line.id, "one file a site has its records: write `log`");
                continue;
            };
            if line.words.iter().any(|word| word.starts_with("if=")) {
                self.ledger.differs(
                    line.id,
                    "all requests are recorded: write a rule with `log` for the others",
                );
            }
            let named = line.words.get(1).map_or("combined", String::as_str);
            let lost = self
                .formats
                .get(named)
                .map(|(id, text)| (*id, lost_fields(text)));
            match lost {
                Some((id, lost)) if !lost.is_empty() => {
                    let note = format!(
                        "records are in the format `combined`: {} are not in it; `format = \"json\"` of `[log]` has \
                         everything",
                        lost.join(", ")
                    );
                    self.ledger.differs(id, &note);
                    self.ledger.differs(line.id, &note);
                }
                Some((id, _)) => self.ledger.carried(id),
                None => {}
            }
            self.ledger.differs(line.id, ONE_FILE);
            keys.put_in("log", "access", path, &[line.id]);
        }
    }

    /// What is compressed.
    pub(super) fn compression(&self, scope: &Scope<'a>, keys: &mut DraftKeys) {
        let Some(gzip) = scope.last("gzip") else {
            return;
        };
        self.ledger.carried(gzip.id);
        if gzip.first() == "off" {
            keys.put_in("compress", "programs", false, &[gzip.id]);
            return;
        }
        let types = scope.last("gzip_types");
        if let Some(line) = types {
            let is_type = |word: &&String| words::is_media_type(word);
            let mut types: Vec<String> = line.words.iter().filter(is_type).cloned().collect();
            self.ledger.carried(line.id);
            types.push("text/html".to_owned());
            match line.words.iter().any(|word| word == "*") {
                true => self.ledger.idle(line.id, "text of all kinds is compressed"),
                false => keys.put_in("compress", "types", TomlItem::texts(types), &[line.id]),
            }
        }
        let number = |name| {
            scope
                .last(name)
                .and_then(|line| Some((line, words::bytes(line.first())?)))
        };
        if let Some((line, bytes)) = number("gzip_min_length") {
            self.ledger.carried(line.id);
            let bytes = config::size(bytes.min(1 << 30));
            keys.put_in("compress", "min_bytes", bytes, &[line.id]);
        }
        if let Some((line, level)) = number("gzip_comp_level") {
            self.ledger.carried(line.id);
            keys.put_in("compress", "level", level.clamp(1, 9), &[line.id]);
        }
    }

    /// A path of the machine: relative ones begin where the first file is.
    pub(super) fn path(&self, text: &str) -> Option<String> {
        let path = match text.starts_with('/') {
            true => text.to_owned(),
            false => format!("{}/{text}", self.directory),
        };
        let fits = !text.is_empty() && !text.starts_with("syslog:") && !text.starts_with("memory:");
        words::file_path(&path).filter(|_| fits).map(str::to_owned)
    }
}

fn lifetime(line: &Statement) -> Option<String> {
    let [said] = line.words.as_slice() else {
        return None;
    };
    if ["off", "epoch", "max"].contains(&said.as_str()) {
        return Some(said.clone());
    }
    if said.starts_with('-') {
        return Some("epoch".to_owned());
    }
    let ms = words::milliseconds(said.strip_prefix('+').unwrap_or(said))?;
    Some(config::duration(ms.min(LIFETIME_MS_MAX)))
}

/// The variables of a format that `combined` does not have.
fn lost_fields(format: &str) -> Vec<String> {
    const KNOWN: [&str; 9] = [
        "remote_addr",
        "remote_user",
        "time_local",
        "request",
        "status",
        "body_bytes_sent",
        "http_referer",
        "http_user_agent",
        "bytes_sent",
    ];
    let pieces = super::template::pieces(format).into_iter();
    let names = pieces.filter_map(|piece| match piece {
        super::template::Piece::Variable(name) if !KNOWN.contains(&name) => {
            Some(format!("${name}"))
        }
        _ => None,
    });
    names.collect()
}

/// What a zone counts.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) id: usize,
    pub(super) key: Option<TomlItem>,
    pub(super) rate: Option<String>,
}

/// The zone of `limit_req_zone` or `limit_conn_zone`, with its name.
pub(super) fn zone(line: &Statement) -> Option<(&str, Zone)> {
    let word = |name: &str| line.words.iter().find_map(|word| word.strip_prefix(name));
    let name = word("zone=")?.split(':').next()?;
    let rate = word("rate=").and_then(|rate| {
        let (count, unit) = rate.split_once("r/")?;
        let fits = count
            .parse::<u32>()
            .is_ok_and(|count| (1..=1_000_000).contains(&count));
        (fits && ["s", "m"].contains(&unit)).then(|| format!("{count}/{unit}"))
    });
    let zone = Zone {
        id: line.id,
        key: place::limit_key(line.first()),
        rate,
    };
    Some((name, zone))
}
