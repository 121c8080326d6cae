//! Apache: from what `apache2ctl -t -D DUMP_CONFIG` prints, or files of a configuration, to sites.
//!
//! The idea: the grammar is that of `.htaccess` files and read as they are. What stands outside of
//! all virtual hosts holds in each, before what they say themselves.

mod access;
mod fields;
mod lines;
mod overrides;
mod places;
mod programs;
mod rewriting;
mod sections;
mod site;
mod table;
mod texts;

use std::sync::Arc;

use htaccess::tree::{self, Directive, TreeCaps};
use htaccess::words::all_words;

use crate::draft::SharedDraft;
use crate::front::{Front, Fronts, Merged, Socket, listeners, worth_writing};
use crate::ledger::{Fate, Ledger};
use crate::pools::Pools;
use crate::{
    BYTES_MAX, DEPTH_MAX, ImportOptions, Imported, LINES_MAX, Unreadable, assemble, words,
};
use table::{ApacheMeaning, meaning};

/// Makes sites of a configuration of Apache: what `apache2ctl -t -D DUMP_CONFIG` prints, or files.
///
/// # Errors
/// What is wrong with the text, if it is none of Apache's.
pub fn apache(bytes: &[u8], options: &ImportOptions) -> Result<Imported, Unreadable> {
    let caps = TreeCaps {
        bytes: BYTES_MAX,
        directives: LINES_MAX,
        depth: DEPTH_MAX,
    };
    if bytes.iter().filter(|byte| **byte == b'\n').count() > 2 * LINES_MAX {
        return Err(Unreadable {
            file: options.name.clone(),
            line: 1,
            text: format!("the configuration has more than {} lines", 2 * LINES_MAX),
        });
    }
    let places = places(bytes, &options.name);
    let at = |line: u32| places.get(line.saturating_sub(1) as usize).cloned();
    let tree = tree::parse(bytes, caps).map_err(|error| {
        let (file, line) = at(error.line).unwrap_or((Arc::from(&*options.name), error.line));
        Unreadable {
            file: file.to_string(),
            line,
            text: error.text,
        }
    })?;
    let ledger = Ledger::default();
    let reader = Reader {
        ledger: &ledger,
        at: &at,
    };
    let mut top = Vec::new();
    reader.enter(&tree, Holds::Yes, &mut top);
    let (drafts, shared) = sites(&top, &ledger, options);
    Ok(assemble(&shared, drafts, ledger, options))
}

/// A directive, with what stands in its section.
#[derive(Debug, Clone)]
struct ApacheLine {
    id: usize,
    /// In small letters.
    name: String,
    /// As it is written.
    spelled: String,
    /// All that follows the name.
    text: Vec<u8>,
    words: Vec<String>,
    children: Option<Vec<ApacheLine>>,
}

impl ApacheLine {
    fn first(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    fn is_on(&self) -> bool {
        self.first().eq_ignore_ascii_case("on")
    }

    /// Whether it keeps somebody out, or is told at the head of the account.
    fn keeps_something(&self) -> bool {
        let counts = [
            "sec",
            "modsecurity",
            "lscache",
            "cachelookup",
            "allow",
            "rewritecond",
            "rewriteengine",
        ];
        let mut inner = self.children.iter().flatten();
        self.restricts() || self.begins(&counts) || inner.next().is_some()
    }
}

/// Where each line of the text stands in the files it was printed from.
fn places(bytes: &[u8], name: &str) -> Vec<(Arc<str>, u32)> {
    let mut file: Arc<str> = Arc::from(name);
    let mut said: Option<u32> = None;
    let mut places = Vec::new();
    for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1_u32..) {
        let text = line.trim_ascii();
        let told = text
            .strip_prefix(b"#")
            .map(|it| String::from_utf8_lossy(it.trim_ascii()).into_owned());
        if let Some(told) = told {
            if let Some(named) = told.strip_prefix("In file: ") {
                file = Arc::from(named);
            } else if let Some(line) = told.strip_suffix(':').and_then(|it| it.parse().ok()) {
                said = Some(line);
            }
        }
        places.push((Arc::clone(&file), said.unwrap_or(number)));
    }
    places
}

struct Reader<'r, A> {
    ledger: &'r Ledger,
    at: &'r A,
}

impl<A: Fn(u32) -> Option<(Arc<str>, u32)>> Reader<'_, A> {
    /// Takes directives in; of sections that only ask about the server what stands in them.
    fn enter(&self, directives: &[Directive], holds: Holds, into: &mut Vec<ApacheLine>) {
        for directive in directives {
            let spelled = String::from_utf8_lossy(&directive.name).into_owned();
            let name = spelled.to_ascii_lowercase();
            let arguments = String::from_utf8_lossy(&directive.arguments);
            let is_section = directive.children.is_some();
            let mark = if is_section { "<" } else { "" };
            let shown = format!("{mark}{spelled} {arguments}");
            let (file, line) = (self.at)(directive.line).unwrap_or((Arc::from(""), directive.line));
            let id = self.ledger.enter(&file, line, shown.trim_end());
            let asked = condition(&name, &arguments);
            let mut inner = Vec::new();
            let children = directive.children.as_deref().unwrap_or_default();
            self.enter(children, holds.max(asked.unwrap_or(Holds::Yes)), &mut inner);
            if asked.is_some() {
                self.ledger
                    .say_last(id, Fate::NotNeeded, "only what it asks for is there or not");
                into.extend(inner);
                continue;
            }
            let words = all_words(&directive.arguments).into_iter();
            let line = ApacheLine {
                id,
                name,
                spelled,
                text: directive.arguments.clone(),
                words: words
                    .map(|word| String::from_utf8_lossy(&word).into_owned())
                    .collect(),
                children: is_section.then_some(inner),
            };
            match holds == Holds::Yes || (holds == Holds::Perhaps && line.keeps_something()) {
                true => into.push(line),
                false => self
                    .ledger
                    .idle(id, "the condition around it does not hold"),
            }
        }
    }
}

/// Whether what stands in a section that asks about the server counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holds {
    Yes,
    /// It did or not: what keeps somebody out, or did, counts.
    Perhaps,
    No,
}

/// Whether a section that asks about the server holds; `None` where it is none.
fn condition(name: &str, arguments: &str) -> Option<Holds> {
    let is_unknown = match name {
        "ifdefine" => true,
        "ifmodule" => OTHERS
            .iter()
            .any(|it| arguments.to_ascii_lowercase().contains(it)),
        _ => false,
    };
    Some(match (is_so(name, arguments)?, is_unknown) {
        (true, _) => Holds::Yes,
        (false, true) => Holds::Perhaps,
        (false, false) => Holds::No,
    })
}

/// Modules that are not had here.
const OTHERS: [&str; 4] = ["litespeed", "security", "pagespeed", "fcgid"];

fn is_so(name: &str, arguments: &str) -> Option<bool> {
    let (is_negated, asked) = match arguments.trim().strip_prefix('!') {
        Some(asked) => (true, asked.trim()),
        None => (false, arguments.trim()),
    };
    let lower = asked.to_ascii_lowercase();
    match name {
        "ifmodule" => {
            let is_php = lower.contains("php");
            let is_other = OTHERS.iter().any(|it| lower.contains(it));
            // PHP is there, and in a program of its own: both are so here.
            Some(is_php || (is_other == is_negated))
        }
        "ifdefine" => Some(is_negated),
        "ifdirective" | "iffile" | "ifsection" => Some(!is_negated),
        "ifversion" => {
            let version = asked.rsplit(' ').next().unwrap_or_default();
            let mut numbers = version
                .split('.')
                .map(|it| it.parse::<u32>().unwrap_or_default());
            let version = (
                numbers.next().unwrap_or_default(),
                numbers.next().unwrap_or_default(),
            );
            let holds = match asked.split(' ').next() {
                Some(">=") => (2, 4) >= version,
                Some(">") => (2, 4) > version,
                Some("<=") => (2, 4) <= version,
                Some("<") => (2, 4) < version,
                _ => (2, 4) == version,
            };
            Some(holds != is_negated)
        }
        _ => None,
    }
}

/// The configuration of all virtual hosts.
struct Apache<'a> {
    ledger: &'a Ledger,
    options: &'a ImportOptions,
    /// What stands outside of all.
    global: Vec<&'a ApacheLine>,
}

impl Apache<'_> {
    /// Says what becomes of a directive that needs no thought; why what it covers is closed, if it is.
    fn judge(&self, line: &ApacheLine) -> Option<&'static str> {
        match meaning(&line.name) {
            ApacheMeaning::Thought => None,
            ApacheMeaning::Idle(note) => {
                self.bury(line, Fate::NotNeeded, note);
                None
            }
            ApacheMeaning::Lost(note) => {
                self.bury(line, Fate::NotCarried, note);
                None
            }
            ApacheMeaning::Unknown => {
                let note = "it is not known here: if it matters, write it by hand";
                self.bury(line, Fate::NotCarried, note);
                None
            }
            ApacheMeaning::Closing(note) => {
                self.bury(line, Fate::NotCarried, note);
                Some(note)
            }
        }
    }

    /// Says the same of a directive and of all in its section.
    fn bury(&self, line: &ApacheLine, fate: Fate, note: &str) {
        self.ledger.say(line.id, fate, note);
        for inner in line.children.iter().flatten() {
            self.bury(inner, fate, note);
        }
    }
}

fn sites(
    top: &[ApacheLine],
    ledger: &Ledger,
    options: &ImportOptions,
) -> (Vec<crate::draft::SiteDraft>, SharedDraft) {
    let (hosts, global): (Vec<&ApacheLine>, Vec<&ApacheLine>) =
        top.iter().partition(|line| line.name == "virtualhost");
    let apache = Apache {
        ledger,
        options,
        global,
    };
    let whole: Vec<(&ApacheLine, Vec<&ApacheLine>)> = match hosts.is_empty() {
        true => apache
            .global
            .first()
            .map(|first| (*first, Vec::new()))
            .into_iter()
            .collect(),
        false => hosts
            .iter()
            .map(|host| (*host, host.children.iter().flatten().collect()))
            .collect(),
    };
    let fronts: Vec<Front> = whole
        .iter()
        .map(|(line, body)| front(&apache, line, body))
        .collect();
    let listens = listens(&apache, &fronts);
    let mut shared = SharedDraft::default();
    listeners(&options.listening, listens.iter(), &mut shared);
    let fronts = Fronts::part(fronts, ledger);
    let pools = Pools::read(&options.pools, ledger);
    let mut drafts = Vec::new();
    for ((line, body), front) in whole.iter().zip(&fronts.list) {
        match (front.hosts.is_empty(), front.merged) {
            (false, _) => {
                let mut draft = site::build(&apache, line, body, front, &mut shared);
                fronts.settle(front, &mut draft);
                pools.settle(&mut draft, ledger);
                drafts.push(draft);
            }
            (true, Merged::No) => {
                apache.bury(line, Fate::NotCarried, "its virtual host is not carried")
            }
            (true, Merged::Alike) => apache.bury(
                line,
                Fate::Carried,
                "the virtual host with TLS says the same: they are one site",
            ),
            (true, Merged::Redirect) => {
                apache.bury(
                    line,
                    Fate::Different,
                    "answered 308 by `tls = { redirect = true }` of the site with TLS",
                );
            }
        }
    }
    for line in top {
        leave(&apache, line);
    }
    (worth_writing(drafts, ledger), shared)
}

/// The addresses that are listened on, with TLS where a virtual host speaks it.
fn listens(apache: &Apache<'_>, fronts: &[Front]) -> Vec<Socket> {
    let port = |address: &str| address.rsplit(':').next().map(str::to_owned);
    let sockets = || fronts.iter().flat_map(|front| &front.sockets);
    let mut listens = Vec::new();
    for line in apache.global.iter().filter(|line| line.name == "listen") {
        let Some(socket) = Socket::read(line.first()) else {
            let note = "it is no address here: write `[[listen]]`";
            apache.ledger.lost(line.id, note);
            continue;
        };
        apache.ledger.carried(line.id);
        let speaks = |it: &Socket| it.is_tls && port(&it.address) == port(&socket.address);
        let is_tls = line.word(1).eq_ignore_ascii_case("https") || sockets().any(speaks);
        listens.push(Socket { is_tls, ..socket });
    }
    listens
}

/// What is left of lines of which nothing was said.
fn leave(apache: &Apache<'_>, line: &ApacheLine) {
    if line.name == "accessfilename" {
        match line.words.iter().all(|name| name == ".htaccess") {
            true => apache.ledger.idle(line.id, "they have that name here"),
            false => apache.ledger.lost(
                line.id,
                "such files have the name .htaccess here: rename those that are to count",
            ),
        }
    } else if meaning(&line.name) == ApacheMeaning::Thought {
        let note =
            "nothing takes it over: another line says otherwise, or it says what is so anyhow";
        apache.ledger.say_last(line.id, Fate::NotNeeded, note);
    } else if !apache.ledger.is_said(line.id) {
        apache.judge(line);
    }
    line.children
        .iter()
        .flatten()
        .for_each(|inner| leave(apache, inner));
}

fn front(apache: &Apache<'_>, line: &ApacheLine, body: &[&ApacheLine]) -> Front {
    let ledger = apache.ledger;
    let last = |name: &str| body.iter().rev().find(|it| it.name == name);
    let is_tls = last("sslengine").is_some_and(|it| it.is_on());
    let mut sockets = Vec::new();
    for word in line.words.iter().filter(|_| line.name == "virtualhost") {
        sockets.extend(Socket::read(word).map(|socket| Socket { is_tls, ..socket }));
    }
    let mut hosts: Vec<String> = Vec::new();
    for named in body
        .iter()
        .filter(|it| ["servername", "serveralias"].contains(&it.name.as_str()))
    {
        ledger.carried(named.id);
        for word in &named.words {
            let word = word
                .rsplit_once("://")
                .map_or(word.as_str(), |(_, rest)| rest);
            let word = word.rsplit_once(':').map_or(word, |(host, _)| host);
            match words::host(word) {
                Some(host) if !hosts.contains(&host) => hosts.push(host),
                Some(_) => {}
                None => ledger.lost(
                    named.id,
                    "a `*` that is not in front, or a name that is none, is no host here",
                ),
            }
        }
    }
    let said = body.iter().filter(|it| !it.name.starts_with("ssl"));
    let likeness: Vec<String> = said.map(|line| likeness(line)).collect();
    let goes_to_tls = !is_tls && rewriting::goes_to_tls(body, &hosts);
    Front {
        id: line.id,
        sockets,
        hosts,
        goes_to_tls,
        likeness: likeness.join(";"),
        merged: Merged::No,
    }
}

/// All that a directive says, as a text.
fn likeness(line: &ApacheLine) -> String {
    let inner: Vec<String> = line.children.iter().flatten().map(likeness).collect();
    format!("{} {:?} {{{}}}", line.name, line.words, inner.join(";"))
}
