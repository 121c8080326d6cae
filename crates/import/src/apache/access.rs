//! Who may come in, by `Require` and by `Order`, `Allow` and `Deny`.
//!
//! The idea: what one level says comes to an [`Admission`]; where it says more than a rule can, fewer
//! are let in, and nobody where it is not understood.

use ipnet::IpNet;

use super::ApacheLine;
use crate::draft::{DraftKeys, TomlItem, member};
use crate::ledger::Ledger;
use crate::words;

/// Who is let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Admission {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
    is_nobody: bool,
    asks_password: bool,
    groups: Vec<String>,
    /// Why nobody is, where it is not understood.
    closed: Option<&'static str>,
    lines: Vec<usize>,
}

impl Admission {
    /// Whether everybody is.
    pub(super) fn is_open(&self) -> bool {
        let restricts = self.is_nobody || self.asks_password || self.closed.is_some();
        !restricts && self.allow.is_empty() && self.deny.is_empty()
    }

    pub(super) fn closed(why: &'static str) -> Self {
        Self {
            closed: Some(why),
            ..Self::default()
        }
    }

    fn nobody() -> Self {
        Self {
            is_nobody: true,
            ..Self::default()
        }
    }

    fn by_address(allow: Vec<IpNet>, deny: Vec<IpNet>) -> Self {
        Self {
            allow,
            deny,
            ..Self::default()
        }
    }

    fn by_password(groups: Vec<String>) -> Self {
        Self {
            asks_password: true,
            groups,
            ..Self::default()
        }
    }

    /// Says it, with the files of passwords that are in force.
    pub(super) fn say(&self, passwords: &[&ApacheLine], ledger: &Ledger, keys: &mut DraftKeys) {
        keys.note(&self.lines);
        if let Some(why) = self.closed {
            self.lines.iter().for_each(|id| ledger.lost(*id, why));
            return keys.close(why);
        }
        if self.is_nobody {
            return keys.put("deny", "all", &[]);
        }
        let texts = |networks: &[IpNet]| TomlItem::texts(networks.iter().map(words::spell_network));
        if !self.allow.is_empty() {
            keys.put("allow", texts(&self.allow), &[]);
        }
        if !self.deny.is_empty() {
            keys.put("deny", texts(&self.deny), &[]);
        }
        if self.asks_password {
            self.ask(passwords, ledger, keys);
        }
    }

    fn ask(&self, passwords: &[&ApacheLine], ledger: &Ledger, keys: &mut DraftKeys) {
        let last = |name: &str| passwords.iter().rev().find(|line| line.name == name);
        let path = |name: &str| last(name).and_then(|line| words::file_path(line.first()));
        let is_basic =
            last("authtype").is_some_and(|line| line.first().eq_ignore_ascii_case("basic"));
        let (Some(file), true) = (path("authuserfile"), is_basic) else {
            let why =
                "passwords are asked for by Basic authentication, with a file: nobody is let in";
            self.lines.iter().for_each(|id| ledger.lost(*id, why));
            return keys.close(why);
        };
        let realm = last("authname").map_or("restricted", |line| line.first());
        let mut auth = vec![member("realm", words::realm(realm)), member("file", file)];
        if !self.groups.is_empty() {
            let Some(groups) = path("authgroupfile") else {
                return keys.close("it is not known who is in the groups that are let in");
            };
            auth.push(member("group_file", groups));
            auth.push(member(
                "require",
                TomlItem::texts(self.groups.iter().cloned()),
            ));
        }
        for name in ["authtype", "authname", "authuserfile", "authgroupfile"] {
            last(name).iter().for_each(|line| ledger.carried(line.id));
        }
        keys.put("auth", TomlItem::Table(auth), &[]);
    }
}

/// What a level says of who may come in; `None` where it says nothing.
pub(super) fn admission(lines: &[&ApacheLine], ledger: &Ledger) -> Option<Admission> {
    let is_require = |line: &&&ApacheLine| line.name.starts_with("require");
    let is_order = |line: &&&ApacheLine| ["order", "allow", "deny"].contains(&line.name.as_str());
    let requires: Vec<&ApacheLine> = lines.iter().filter(is_require).copied().collect();
    let orders: Vec<&ApacheLine> = lines.iter().filter(is_order).copied().collect();
    let mut found = match (requires.is_empty(), orders.is_empty()) {
        (true, true) => return None,
        (false, true) => any_of(&requires, ledger),
        (true, false) => ordered(&orders, ledger),
        (false, false) => both(any_of(&requires, ledger), ordered(&orders, ledger)),
    };
    found.lines = requires.iter().chain(&orders).map(|line| line.id).collect();
    for line in lines.iter().filter(|line| line.name == "satisfy") {
        match line.first().eq_ignore_ascii_case("any") && found.asks_password {
            true => ledger.differs(
                line.id,
                "both are asked for, an address and a password: there is no `Any`",
            ),
            false => ledger.carried(line.id),
        }
    }
    Some(found)
}

/// Both must hold.
fn both(one: Admission, other: Admission) -> Admission {
    let differ = |one: bool, other: bool, same: bool| !one && !other && !same;
    let (allows, groups) = (one.allow == other.allow, one.groups == other.groups);
    if differ(one.allow.is_empty(), other.allow.is_empty(), allows)
        || differ(one.groups.is_empty(), other.groups.is_empty(), groups)
    {
        return Admission::closed("two lists that must both hold have no counterpart");
    }
    let mut all = one;
    all.is_nobody |= other.is_nobody;
    all.asks_password |= other.asks_password;
    all.closed = all.closed.or(other.closed);
    if all.allow.is_empty() {
        all.allow = other.allow;
    }
    all.deny.extend(other.deny);
    if all.groups.is_empty() {
        all.groups = other.groups;
    }
    all
}

/// One must hold; where that is more than a rule can say, fewer are let in.
fn any_of(lines: &[&ApacheLine], ledger: &Ledger) -> Admission {
    let mut open = false;
    let mut sum = Admission::default();
    let mut unknown = None;
    let (mut terms, mut has_compound) = (0, false);
    for line in lines {
        let term = term(line, ledger);
        ledger.carried(line.id);
        if let Some(why) = term.closed {
            unknown = unknown.or(term.closed);
            ledger.differs(line.id, why);
        } else if term.is_open() {
            open = true;
        } else if !term.is_nobody {
            terms += 1;
            has_compound |= term.asks_password && !term.allow.is_empty();
            if (!term.deny.is_empty() && lines.len() > 1) || (has_compound && terms > 1) {
                return Admission::closed("such a choice among requirements has no counterpart");
            }
            sum.allow.extend(term.allow);
            sum.deny.extend(term.deny);
            sum.asks_password |= term.asks_password;
            sum.groups.extend(term.groups);
        }
    }
    match (open, terms, unknown) {
        (true, ..) => Admission::default(),
        (_, 0, Some(why)) => Admission::closed(why),
        (_, 0, None) => Admission::nobody(),
        _ => {
            if sum.asks_password && !sum.allow.is_empty() {
                let note = "an address and a password are both asked for, where one of them did";
                lines.iter().for_each(|line| ledger.differs(line.id, note));
            }
            sum
        }
    }
}

fn term(line: &ApacheLine, ledger: &Ledger) -> Admission {
    let inner: Vec<&ApacheLine> = line.children.iter().flatten().collect();
    match line.name.as_str() {
        "requireall" => inner.iter().fold(Admission::default(), |all, line| {
            ledger.carried(line.id);
            both(all, term(line, ledger))
        }),
        "requireany" => any_of(&inner, ledger),
        "requirenone" => {
            let why = "`RequireNone` has no counterpart: write `deny`";
            inner.iter().for_each(|line| ledger.lost(line.id, why));
            Admission::closed(why)
        }
        _ => required(line),
    }
}

fn required(line: &ApacheLine) -> Admission {
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    let lower = words.first().map(|word| word.to_ascii_lowercase());
    let rest = words.get(1..).unwrap_or_default();
    let networks = |texts: &[&str]| -> Option<Vec<IpNet>> {
        let networks = texts.iter().map(|text| htaccess::network(text.as_bytes()));
        networks.collect()
    };
    match (lower.as_deref(), rest) {
        (Some("all"), [word]) if word.eq_ignore_ascii_case("granted") => Admission::default(),
        (Some("all"), _) => Admission::nobody(),
        (Some("local"), _) => Admission::by_address(words::loopback().collect(), Vec::new()),
        (Some("ip"), texts) if !texts.is_empty() => match networks(texts) {
            Some(allow) => Admission::by_address(allow, Vec::new()),
            None => Admission::closed("it is not known which addresses are let in"),
        },
        (Some("not"), [kind, texts @ ..]) if kind.eq_ignore_ascii_case("ip") => {
            match networks(texts) {
                Some(deny) => Admission::by_address(Vec::new(), deny),
                None => Admission::closed("it is not known which addresses are kept out"),
            }
        }
        (Some("valid-user"), _) => Admission::by_password(Vec::new()),
        (Some("group"), names) if !names.is_empty() => {
            Admission::by_password(names.iter().map(|name| (*name).to_owned()).collect())
        }
        (Some("user"), _) => Admission::closed(
            "single users have no counterpart: write a group of them, `auth = { group_file, require }`",
        ),
        _ => Admission::closed(
            "hosts, variables, methods and expressions let nobody in here: write an `access` script",
        ),
    }
}

/// `Order`, `Allow` and `Deny` of 2.2.
fn ordered(lines: &[&ApacheLine], ledger: &Ledger) -> Admission {
    let order = lines.iter().rev().find(|line| line.name == "order");
    let order = order.map(|line| line.words.concat().to_ascii_lowercase());
    let allows_last = order.is_none_or(|order| order == "deny,allow");
    let (mut allow, mut deny) = (Vec::new(), Vec::new());
    let (mut allows_all, mut denies_all) = (false, false);
    for line in lines {
        ledger.carried(line.id);
        if line.name == "order" {
            continue;
        }
        let is_allow = line.name == "allow";
        for word in line.words.iter().skip(1) {
            if word.eq_ignore_ascii_case("all") {
                allows_all |= is_allow;
                denies_all |= !is_allow;
                continue;
            }
            let list = if is_allow { &mut allow } else { &mut deny };
            match htaccess::network(word.as_bytes()) {
                Some(network) => list.push(network),
                None if word == "localhost" => list.extend(words::loopback()),
                None if is_allow => {
                    ledger.differs(line.id, "hosts and variables let nobody in: fewer come in")
                }
                None => return Admission::closed("it is not known whom a `Deny` keeps out"),
            }
        }
    }
    // With `deny,allow` what is named nowhere comes in, with `allow,deny` it does not.
    match (allows_last, allows_all, denies_all) {
        (true, true, _) => Admission::default(),
        (true, false, true) | (false, false, false) if allow.is_empty() => Admission::nobody(),
        (false, _, true) => Admission::nobody(),
        (true, false, true) => Admission::by_address(allow, Vec::new()),
        (false, false, false) => Admission::by_address(allow, deny),
        (true, false, false) | (false, true, false) => {
            if !allow.is_empty() && !deny.is_empty() && allows_last {
                lines
                    .iter()
                    .for_each(|line| ledger.differs(line.id, "`deny` wins here"));
            }
            Admission::by_address(Vec::new(), deny)
        }
    }
}
