//! nginx: from what `nginx -T` prints to sites.
//!
//! The idea: what holds in a block is what it says and what the blocks around it say, outermost
//! first; of each directive the innermost counts.

mod acting;
mod answer;
mod condition;
mod files;
mod handler;
mod parse;
mod place;
mod settings;
mod site;
mod table;
mod template;
mod variables;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::draft::{SharedDraft, SiteDraft, TomlItem};
use crate::front::{Front, Fronts, Merged, Socket, listeners, worth_writing};
use crate::ledger::{Fate, Ledger};
use crate::pools::Pools;
use crate::{ImportOptions, Imported, Unreadable, assemble, text_of, words};
use parse::{Files, Statement};
use settings::{Zone, zone};
use table::{Meaning, meaning};

/// Makes sites of a configuration of nginx: what `nginx -T` prints, or a file.
///
/// # Errors
/// What is wrong with the text, if it is none of nginx's.
pub fn nginx(bytes: &[u8], options: &ImportOptions) -> Result<Imported, Unreadable> {
    let text = text_of(bytes, &options.name)?;
    let ledger = Ledger::default();
    let files = Files::read(&text, &options.name, &ledger)?;
    let (drafts, shared) = Http::open(&files, &ledger, options).sites();
    if files.is_exhausted() {
        return Err(Unreadable {
            file: options.name.clone(),
            line: 1,
            text: "files include each other too often".to_owned(),
        });
    }
    drop(files);
    Ok(assemble(&shared, drafts, ledger, options))
}

/// What holds in a block: its own directives, and those of the blocks around it, outermost first.
#[derive(Debug, Clone, Default)]
struct Scope<'a> {
    levels: Vec<Rc<[&'a Statement]>>,
}

impl<'a> Scope<'a> {
    fn with(&self, level: Vec<&'a Statement>) -> Self {
        let mut levels = self.levels.clone();
        levels.push(level.into());
        Self { levels }
    }

    /// What the innermost block says itself.
    fn own(&self) -> &[&'a Statement] {
        self.levels.last().map_or(&[], |level| level)
    }

    /// How many blocks there are.
    fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Without the outermost levels.
    fn below(&self, count: usize) -> Self {
        let levels = self.levels.get(count..).unwrap_or_default().to_vec();
        Self { levels }
    }

    /// What is found of a directive, the innermost level's last one first.
    fn find<T>(&self, find: impl Fn(&'a Statement) -> Option<T>) -> Option<T> {
        let mut levels = self.levels.iter().rev();
        levels.find_map(|level| level.iter().rev().find_map(|line| find(line)))
    }

    /// The directive of this name that holds.
    fn last(&self, name: &str) -> Option<&'a Statement> {
        self.find(|line| (line.name == name).then_some(line))
    }

    /// The `root` or `alias` that holds, and the number of its level.
    fn root(&self) -> Option<(&'a Statement, usize)> {
        let is_one = |line: &&&'a Statement| ["root", "alias"].contains(&line.name.as_str());
        let mut levels = self.levels.iter().enumerate().rev();
        levels.find_map(|(at, level)| Some((*level.iter().rev().find(is_one)?, at)))
    }

    /// All directives of these names on the innermost level that has any.
    fn all(&self, names: &[&str]) -> Vec<&'a Statement> {
        let is_meant = |it: &&&'a Statement| names.contains(&it.name.as_str());
        let levels = self.levels.iter().rev();
        let mut found =
            levels.map(|level| level.iter().filter(is_meant).copied().collect::<Vec<_>>());
        found.find(|found| !found.is_empty()).unwrap_or_default()
    }
}

/// A `server`.
#[derive(Debug, Clone)]
struct NginxServer<'a> {
    line: &'a Statement,
    body: Vec<&'a Statement>,
}

/// The configuration of HTTP.
struct Http<'a> {
    files: &'a Files,
    ledger: &'a Ledger,
    options: &'a ImportOptions,
    /// Where the first file is.
    directory: String,
    level: Vec<&'a Statement>,
    /// What of it holds in servers: all but what they are named by, of which there may be many.
    inherited: Vec<&'a Statement>,
    upstreams: BTreeMap<&'a str, &'a Statement>,
    /// The upstreams that are asked, and whether by FastCGI.
    used: RefCell<BTreeSet<(String, bool)>>,
    zones: BTreeMap<&'a str, Zone>,
    formats: BTreeMap<&'a str, (usize, String)>,
    /// Whether clients are told by something that is not read here.
    hides_clients: bool,
    current_host: RefCell<String>,
    /// Variables that have one value here, whatever the request.
    constants: BTreeMap<String, String>,
    /// Variables that something asks for which is carried.
    asked: BTreeSet<String>,
}

impl<'a> Http<'a> {
    fn open(files: &'a Files, ledger: &'a Ledger, options: &'a ImportOptions) -> Self {
        let main = files.main(ledger);
        let has_http = main.iter().any(|line| line.name == "http");
        let mut level = Vec::new();
        for line in &main {
            match line.name.as_str() {
                "http" => {
                    ledger.carried(line.id);
                    level.extend(files.body(line.block.as_deref().unwrap_or_default(), ledger));
                }
                _ if !has_http => level.push(*line),
                _ => {}
            }
        }
        let mut http = Self {
            files,
            ledger,
            options,
            directory: files.directory(),
            inherited: level
                .iter()
                .filter(|line| !is_apart(line))
                .copied()
                .collect(),
            level,
            upstreams: BTreeMap::new(),
            used: RefCell::default(),
            zones: BTreeMap::new(),
            formats: BTreeMap::new(),
            hides_clients: false,
            current_host: RefCell::default(),
            // Nothing is taken before a handshake has ended.
            constants: BTreeMap::from([("ssl_early_data".to_owned(), String::new())]),
            asked: BTreeSet::new(),
        };
        for line in main.into_iter().filter(|_| has_http) {
            let is_judged = line.name != "http" && http.judge(line).is_none();
            if is_judged && meaning(&line.name) == Meaning::Thought {
                ledger.idle(line.id, "the gateway says its own on standard error");
            }
        }
        http.learn();
        http.learn_variables();
        http
    }

    /// What servers refer to.
    fn learn(&mut self) {
        for line in self.level.clone() {
            match line.name.as_str() {
                "upstream" => {
                    self.upstreams.insert(line.first(), line);
                }
                "limit_req_zone" | "limit_conn_zone" => {
                    if let Some((name, zone)) = zone(line) {
                        self.zones.insert(name, zone);
                    }
                }
                "log_format" => {
                    let text = line.words.get(1..).unwrap_or_default().concat();
                    self.formats.insert(line.first(), (line.id, text));
                }
                "real_ip_header" => {
                    let is_read = line.first().eq_ignore_ascii_case("X-Forwarded-For");
                    self.hides_clients = !is_read;
                    match is_read {
                        true => self.ledger.carried(line.id),
                        false => self.ledger.lost(
                            line.id,
                            "`trusted_proxies` believes `X-Forwarded-For`, and `proxy_protocol` of a listener balancers: \
                             nothing else",
                        ),
                    }
                }
                _ => {}
            }
        }
    }

    /// Says what becomes of a directive that needs no thought; why what it covers is closed, if it is.
    fn judge(&self, line: &Statement) -> Option<&'static str> {
        match meaning(&line.name) {
            Meaning::Thought => None,
            Meaning::Idle(note) => {
                self.bury(line, Fate::NotNeeded, note);
                None
            }
            Meaning::Lost(note) => {
                let is_idiom =
                    line.name == "map" && line.words.iter().any(|word| word == "$http_upgrade");
                let (fate, note) = match (is_idiom, self.is_nobodys(line)) {
                    (true, _) => (Fate::NotNeeded, "`Upgrade` passes by itself"),
                    (_, true) => (
                        Fate::NotNeeded,
                        "nothing that is carried asks for its variable",
                    ),
                    (false, false) => (Fate::NotCarried, note),
                };
                self.bury(line, fate, note);
                None
            }
            Meaning::Closing(note) => {
                self.bury(line, Fate::NotCarried, note);
                Some(note)
            }
        }
    }

    /// What stands in a directive's block, and in what that includes.
    fn body(&self, line: &'a Statement) -> Vec<&'a Statement> {
        let block = line.block.as_deref().unwrap_or_default();
        self.files.body(block, self.ledger)
    }

    /// Says the same of a directive and of all in its block.
    fn bury(&self, line: &Statement, fate: Fate, note: &str) {
        self.ledger.say(line.id, fate, note);
        for inner in line.block.iter().flatten() {
            self.bury(inner, fate, note);
        }
    }

    fn sites(self) -> (Vec<SiteDraft>, SharedDraft) {
        let mut closed = None;
        for line in self.level.clone() {
            closed = closed.or(self.judge(line));
        }
        let (servers, fronts): (Vec<_>, Vec<_>) = self.servers().into_iter().unzip();
        let mut shared = self.shared(&fronts);
        let fronts = Fronts::part(fronts, self.ledger);
        let pools = Pools::read(&self.options.pools, self.ledger);
        let mut drafts = Vec::new();
        for (server, front) in servers.iter().zip(&fronts.list) {
            if front.hosts.is_empty() {
                self.account(server, front.merged);
                continue;
            }
            let mut draft = site::build(&self, server, front);
            fronts.settle(front, &mut draft);
            pools.settle(&mut draft, self.ledger);
            if let Some(why) = closed {
                draft.keys.close(why);
            }
            drafts.push(draft);
        }
        self.share_upstreams(&mut shared);
        self.rest();
        (worth_writing(drafts, self.ledger), shared)
    }

    /// What is left of lines of which nothing was said: an inner level has said otherwise.
    fn rest(&self) {
        let mut all = self.level.clone();
        while let Some(line) = all.pop() {
            if meaning(&line.name) == Meaning::Thought {
                let note = "nothing takes it over: an inner block says otherwise, or it says what is so anyhow";
                self.ledger.say_last(line.id, Fate::NotNeeded, note);
            }
            if ["server", "location"].contains(&line.name.as_str()) {
                all.extend(self.body(line));
            }
        }
    }

    fn servers(&self) -> Vec<(NginxServer<'a>, Front)> {
        let mut servers = Vec::new();
        for line in &self.level {
            if line.name == "server" && line.block.is_some() {
                servers.push(self.server_of(line, self.body(line)));
            }
        }
        // A piece of a configuration, as it stands in a server.
        let is_piece = |line: &&&Statement| {
            ["location", "root", "proxy_pass", "return"].contains(&line.name.as_str())
        };
        if let (true, Some(first)) = (servers.is_empty(), self.level.iter().find(is_piece)) {
            servers.push(self.server_of(first, self.level.clone()));
        }
        servers
    }

    fn server_of(&self, line: &'a Statement, body: Vec<&'a Statement>) -> (NginxServer<'a>, Front) {
        let all_tls = body
            .iter()
            .any(|line| line.name == "ssl" && line.first() == "on");
        let mut sockets = Vec::new();
        for line in body.iter().filter(|line| line.name == "listen") {
            match socket_of(line, all_tls) {
                Some(socket) => {
                    self.ledger.carried(line.id);
                    sockets.push(socket);
                }
                None => self
                    .ledger
                    .lost(line.id, "it is no address here: write `[[listen]]`"),
            }
        }
        let mut hosts = Vec::new();
        for line in body.iter().filter(|line| line.name == "server_name") {
            self.names(line, &mut hosts);
        }
        let goes_to_tls =
            !sockets.iter().any(|socket| socket.is_tls) && self.goes_to_tls(&body, &hosts);
        let said = body
            .iter()
            .filter(|line| line.name != "listen" && !line.name.starts_with("ssl"));
        let likeness: Vec<String> = said.map(|line| likeness(line)).collect();
        let front = Front {
            id: line.id,
            sockets,
            hosts,
            goes_to_tls,
            likeness: likeness.join(";"),
            merged: Merged::No,
        };
        (NginxServer { line, body }, front)
    }

    fn names(&self, line: &Statement, hosts: &mut Vec<String>) {
        self.ledger.carried(line.id);
        for name in &line.words {
            let names = match name.strip_prefix('.') {
                Some(name) => vec![name.to_owned(), format!("*.{name}")],
                None => vec![name.clone()],
            };
            if ["", "_"].contains(&name.as_str()) {
                self.ledger.differs(
                    line.id,
                    "a host that no site names is answered 421, never by another site",
                );
                continue;
            }
            for name in names {
                match words::host(&name) {
                    Some(host) if !hosts.contains(&host) => hosts.push(host),
                    Some(_) => {}
                    None => self.ledger.lost(
                        line.id,
                        "an expression, or a `*` that is not in front, is no host here: write the hosts themselves",
                    ),
                }
            }
        }
    }

    /// Whether all that a server does is to redirect to TLS.
    fn goes_to_tls(&self, body: &[&'a Statement], hosts: &[String]) -> bool {
        let is_it = |line: &Statement| {
            let url = match (line.name.as_str(), line.words.as_slice()) {
                ("return", [status, url])
                    if ["301", "302", "307", "308"].contains(&status.as_str()) =>
                {
                    url
                }
                ("rewrite", [from, url, ..])
                    if ["^", "^(.*)$", "^(.*)", "^/(.*)$"].contains(&from.as_str()) =>
                {
                    url
                }
                _ => return false,
            };
            let rest = url.strip_prefix("https://").unwrap_or_default();
            let ends = [
                "$request_uri?",
                "$request_uri",
                "$1",
                "/$1",
                "$uri",
                "$uri$is_args$args",
            ];
            let host = ends
                .iter()
                .find_map(|end| rest.strip_suffix(end))
                .unwrap_or_default();
            let is_only = |host: &str| matches!(hosts, [only] if only == host);
            ["$host", "$http_host"].contains(&host)
                || (host == "$server_name" && hosts.len() == 1)
                || is_only(host)
        };
        let mut redirects = false;
        for line in body {
            let is_acme = line.words.iter().any(|word| word.contains(".well-known"));
            match line.name.as_str() {
                "return" if line.says(&["404"]) => {}
                "return" | "rewrite" if is_it(line) => redirects = true,
                "if" if line.first().starts_with("($host")
                    && self.body(line).iter().all(|it| is_it(it)) =>
                {
                    redirects = true
                }
                "location" if is_acme => {}
                "location" if line.says(&["/"]) && self.body(line).iter().all(|it| is_it(it)) => {
                    redirects = true
                }
                "return" | "rewrite" | "if" | "location" | "proxy_pass" | "try_files" => {
                    return false;
                }
                _ => {}
            }
        }
        redirects
    }

    /// Says what becomes of a server that is no site.
    fn account(&self, server: &NginxServer<'a>, merged: Merged) {
        let (fate, note) = match merged {
            Merged::No => {
                return self.bury(server.line, Fate::NotCarried, "its server is not carried");
            }
            Merged::Alike => {
                return self.bury(
                    server.line,
                    Fate::Carried,
                    "the server with TLS says the same: they are one site",
                );
            }
            Merged::Redirect => (
                Fate::Different,
                "answered 308 by `tls = { redirect = true }` of the site with TLS",
            ),
        };
        for line in &server.body {
            self.judge(line);
            let is_acme = line.words.iter().any(|word| word.contains(".well-known"));
            match line.name.as_str() {
                "location" if is_acme => self.bury(
                    line,
                    Fate::NotCarried,
                    "where another program orders certificates, write a mount for its directory; `acme` of `tls` needs none",
                ),
                "return" | "rewrite" | "if" | "location" => self.bury(line, fate, note),
                _ => self.ledger.say_last(line.id, Fate::NotNeeded, "nothing is served without TLS"),
            }
        }
    }

    /// What all sites share: listeners, and whom clients' addresses are believed of.
    fn shared(&self, fronts: &[Front]) -> SharedDraft {
        let mut shared = SharedDraft::default();
        let proxies: Vec<&Statement> = self
            .level
            .iter()
            .copied()
            .filter(|line| line.name == "set_real_ip_from")
            .collect();
        let mut networks = Vec::new();
        for line in proxies {
            match words::network(line.first()).filter(|_| !self.hides_clients) {
                Some(network) => {
                    self.ledger.carried(line.id);
                    networks.push((line.id, words::spell_network(&network)));
                }
                None => self
                    .ledger
                    .lost(line.id, "no network that `trusted_proxies` could name"),
            }
        }
        if !networks.is_empty() {
            let ids: Vec<usize> = networks.iter().map(|(id, _)| *id).collect();
            let networks = TomlItem::texts(networks.into_iter().map(|(_, it)| it));
            shared.keys.put("trusted_proxies", networks, &ids);
        }
        let sockets = fronts.iter().flat_map(|front| &front.sockets);
        listeners(&self.options.listening, sockets, &mut shared);
        shared
    }
}

/// Whether a directive of the level of HTTP is one of many that are named, and holds in no server.
fn is_apart(line: &Statement) -> bool {
    let named = ["server", "upstream", "map", "geo", "split_clients"];
    named.contains(&line.name.as_str())
}

/// The address of a `listen`.
fn socket_of(line: &Statement, all_tls: bool) -> Option<Socket> {
    let has = |word: &str| line.words.iter().skip(1).any(|it| it == word);
    Some(Socket {
        is_tls: all_tls || has("ssl") || has("quic"),
        is_default: has("default_server") || has("default"),
        ..Socket::read(line.first())?
    })
}

/// All that a directive says, as a text.
fn likeness(line: &Statement) -> String {
    let inner = line.block.iter().flatten().map(likeness);
    let inner: Vec<String> = inner.collect();
    format!("{} {:?} {{{}}}", line.name, line.words, inner.join(";"))
}
