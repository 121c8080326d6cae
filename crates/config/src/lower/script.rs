//! Scripts: `[scripts]`, the levels' `scripts`, and those of handlers.
//!
//! The idea: what a script may say depends on where it stands, and [`Place`] knows; whatever is
//! refused there is refused with the reason. Files were read before; Ruby itself is not looked at.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::context::{Spot, problem};
use super::table::Table;
use super::tops::Tops;
use super::value::Value;
use super::values;
use crate::address::split_port;
use crate::keys;
use crate::looks::Existence;
use crate::model::{
    AllowedAddress, Budgets, Cache, Library, PhaseScripts, Script, ScriptFile, Scripts, Source,
};
use crate::units;

/// Largest script.
const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// Directories of `lib`, and of `cache_files`.
const DIRECTORIES_MAX: usize = 16;

/// Where a script stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// `init`, `worker_init` or `worker_exit`.
    Process,
    /// The phase `ssl_handshake`.
    Handshake,
    /// A phase that runs before the reply has been sent.
    Phase,
    /// The phase `log`.
    Log,
    /// `handler = { script = … }`.
    Content,
    /// `handler = { proxy = { script = … } }`.
    Set,
}

/// A level that `scripts = { … }` stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// A tenant or a site.
    BeforeRules,
    /// A rule.
    Rule,
}

impl Place {
    /// Why a script here does not say this of itself.
    pub(crate) fn objection(self, key: &str) -> Option<&'static str> {
        match (self, key) {
            (Place::Process, "cache") => Some("it runs once, when its VM opens or closes"),
            (Place::Process, "on_error") => Some(
                "it runs for no request; where `init` or `worker_init` raises, the VM is not used",
            ),
            (Place::Process, "optional") => Some("it runs for no request"),
            (Place::Process, "mode") => Some("it runs for no request that it could leave alone"),
            (Place::Handshake, "optional") => Some("what it says is who the site is"),
            (Place::Handshake, "mode") => {
                Some("a handshake shows one certificate, and it is the one that it says")
            }
            (Place::Log, "on_error") => Some("the reply has been sent when it runs"),
            (Place::Log, "mode") => Some(
                "it changes nothing of a request: the reply has been sent when it runs, and what it does elsewhere it does",
            ),
            (Place::Content, "mode") => Some("nothing else could answer in its place"),
            (Place::Set, "mode") => Some("without its word no upstream is chosen"),
            (Place::Content, "on_error") => {
                Some("nothing else could answer: a raise is answered 500")
            }
            (Place::Set, "on_error") => {
                Some("without it no upstream is chosen: a raise is answered 503")
            }
            (Place::Content | Place::Set, "optional") => Some("nothing could be done without it"),
            _ => None,
        }
    }
}

/// `[scripts]`.
pub(crate) fn process(tops: &Tops<'_>) -> Scripts {
    let table = tops.table("scripts", &keys::SCRIPTS);
    Scripts {
        server: table.choice("server"),
        init: all(&table, "init", Place::Process),
        worker_init: all(&table, "worker_init", Place::Process),
        worker_exit: all(&table, "worker_exit", Place::Process),
        lib: libraries(&table),
        phases: Arc::new(phases(&table)),
        budgets: budgets(&table),
        cache_files: existing_directories(&table, "cache_files").into(),
        env: env(&table),
    }
}

/// `scripts = { … }` of a level.
pub(crate) fn level(value: Option<Value<'_>>, level: Level) -> Arc<PhaseScripts> {
    let Some(table) = value.and_then(|value| value.table(&keys::LEVEL_SCRIPTS)) else {
        return Arc::default();
    };
    if let Some(rewrite) = table.get("rewrite").filter(|_| level == Level::Rule) {
        rewrite.report_help(
            "`rewrite` cannot stand on a rule: rules are chosen after it has run",
            "put it on the site, and let the script look at the path",
        );
    }
    if let Some(handshake) = table.get("ssl_handshake").filter(|_| level == Level::Rule) {
        handshake.report_help(
            "`ssl_handshake` cannot stand on a rule: there is no request yet that a rule could match",
            "put it on the site, and let the script look at `servername`",
        );
    }
    Arc::new(phases(&table))
}

/// One script, or a list of them.
fn all(table: &Table<'_>, name: &'static str, place: Place) -> Vec<Script> {
    let listed = table.get(name).map(|value| value.one_or_list());
    let listed = listed.unwrap_or_default();
    listed
        .iter()
        .filter_map(|value| script(value, place))
        .collect()
}

fn phases(table: &Table<'_>) -> PhaseScripts {
    PhaseScripts {
        ssl_handshake: all(table, "ssl_handshake", Place::Handshake),
        rewrite: all(table, "rewrite", Place::Phase),
        access: all(table, "access", Place::Phase),
        header_filter: all(table, "header_filter", Place::Phase),
        body_filter: all(table, "body_filter", Place::Phase),
        log: all(table, "log", Place::Log),
    }
}

/// A script: a file's name, or a table.
pub(crate) fn script(value: &Value<'_>, place: Place) -> Option<Script> {
    let mut script = anywhere(value, place)?;
    if place == Place::Process {
        script.cache = Cache::Always;
    }
    Some(script)
}

fn anywhere(value: &Value<'_>, place: Place) -> Option<Script> {
    if value.is_text() {
        let plain = Table::empty(value.context, &keys::SCRIPT);
        let cache = plain.choice("cache");
        return described(&plain, cache, from_file(value, cache)?);
    }
    if !value.is_table() {
        value.mistyped("a script: a file's name, or a table with `file` or `code`");
        return None;
    }
    let table = value.table(&keys::SCRIPT)?;
    report_misplaced(&table, value.name, place);
    let cache = table.choice("cache");
    match (table.get("file"), table.get("code")) {
        (Some(file), None) => described(&table, cache, from_file(&file, cache)?),
        (None, Some(code)) => {
            let misplaced = place.objection("cache").is_some();
            if let Some(cache) = table.get("cache").filter(|_| !misplaced) {
                let help = "inline code is compiled once, and again on a reload";
                cache.report_help("`cache` says nothing beside `code`", help);
            }
            described(&table, Cache::Always, from_code(&code)?)
        }
        (Some(_), Some(code)) => {
            code.report("a script is one thing, not both `file` and `code`");
            None
        }
        (None, None) => {
            if !["file", "code"].iter().any(|name| table.has_misspelt(name)) {
                let finding = problem(value.spot(), "the script is missing");
                let help = "add `file = \"hooks/script.rb\"`, or the script itself as `code`";
                value.context.report(finding.help(help).absence());
            }
            None
        }
    }
}

/// What a script is made of, and what it is called.
type Named = (Source, Arc<str>);

fn described(table: &Table<'_>, cache: Cache, (source, name): Named) -> Option<Script> {
    Some(Script {
        cache,
        source,
        name,
        on_error: table.choice("on_error"),
        optional: table.flag("optional"),
        mode: table.choice("mode"),
    })
}

fn report_misplaced(table: &Table<'_>, script: &str, place: Place) {
    for key in ["cache", "on_error", "optional", "mode"] {
        if let (Some(value), Some(why)) = (table.get(key), place.objection(key)) {
            let places = match key {
                "on_error" => {
                    "; it may stand in `ssl_handshake`, `rewrite`, `access`, `header_filter` and `body_filter`"
                }
                "mode" => {
                    "; it may stand in `rewrite`, `access`, `header_filter` and `body_filter`"
                }
                _ => "",
            };
            let help = format!("{why}{places}");
            value.report_help(format!("`{key}` says nothing of `{script}`"), help);
        }
    }
}

fn from_file(value: &Value<'_>, cache: Cache) -> Option<Named> {
    let path = values::path(value)?;
    let name = path.to_str()?.into();
    let text = match cache {
        Cache::Never => None,
        Cache::Mtime | Cache::Always => read(value, &path),
    };
    Some((Source::File(ScriptFile { path, text }), name))
}

/// What the file holds, if anybody looked. It is judged once, however many scripts name it.
fn read(value: &Value<'_>, path: &PathBuf) -> Option<Arc<[u8]>> {
    let cache = &value.context.files.scripts;
    if let Some(known) = cache.borrow().get(path) {
        return known.clone().ok().flatten();
    }
    let sources = value.context.sources;
    let found = match (sources.data.get(path), sources.existence) {
        (Some(Ok(bytes)), _) if bytes.len() > SCRIPT_BYTES_MAX => {
            let most = units::size(SCRIPT_BYTES_MAX as u64);
            Err(format!("`{}` is larger than {most}", path.display()))
        }
        (Some(Ok(bytes)), _) => Ok(Some(Arc::from(bytes.as_slice()))),
        (Some(Err(why)), _) => Err(format!("cannot read script `{}`: {why}", path.display())),
        (None, Existence::Assumed) => Ok(None),
        (None, Existence::Checked) => Err(format!("nobody has read script `{}`", path.display())),
    };
    let found = found.map_err(|why| value.report(why));
    cache.borrow_mut().insert(path.clone(), found.clone());
    found.ok().flatten()
}

/// Directories that a key lists, each of which has to be there.
pub(super) fn existing_directories(table: &Table<'_>, key: &'static str) -> Vec<PathBuf> {
    let directory = |value: &Value<'_>| {
        let path = values::path(value)?;
        if let Some(why) = value.context.sources.directory_missing(&path) {
            value.report(format!("no directory `{}`: {why}", path.display()));
        }
        Some(path)
    };
    let listed = directories(table, key);
    listed.iter().filter_map(directory).collect()
}

/// `lib`.
fn libraries(table: &Table<'_>) -> Arc<[Library]> {
    let listed = directories(table, "lib");
    listed.iter().filter_map(library).collect()
}

/// What a key that lists directories says, and that it does not say too much.
fn directories<'a>(table: &Table<'a>, key: &'static str) -> Vec<Value<'a>> {
    let listed = table.get(key).map(|value| value.one_or_list());
    let listed = listed.unwrap_or_default();
    if let Some(beyond) = listed.get(DIRECTORIES_MAX) {
        beyond.report(format!("more than {DIRECTORIES_MAX} directories"));
    }
    listed
}

fn library(value: &Value<'_>) -> Option<Library> {
    let directory = values::path(value)?;
    let sources = value.context.sources;
    let files: Vec<_> = match (sources.libraries.get(&directory), sources.existence) {
        (Some(Ok(files)), _) => files.iter().collect(),
        (Some(Err(why)), _) => {
            value.report(format!(
                "cannot read library `{}`: {why}",
                directory.display()
            ));
            return None;
        }
        (None, Existence::Assumed) => {
            let known = sources.data.keys();
            known.filter(|path| path.starts_with(&directory)).collect()
        }
        (None, Existence::Checked) => {
            value.report(format!("nobody has read library `{}`", directory.display()));
            return None;
        }
    };
    let file = |path: &&PathBuf| ScriptFile {
        path: PathBuf::clone(path),
        text: read(value, path),
    };
    let files = files.iter().map(file).collect();
    Some(Library { directory, files })
}

fn from_code(value: &Value<'_>) -> Option<Named> {
    let code = value.text()?;
    if code.len() > SCRIPT_BYTES_MAX {
        let most = units::size(SCRIPT_BYTES_MAX as u64);
        value.report(format!("`code` is larger than {most}"));
        return None;
    }
    if code.trim().is_empty() {
        value.report("`code` is empty");
        return None;
    }
    let (file, line) = value.context.line_of_text(&value.spot())?;
    Some((Source::Code(code.into()), format!("{file}:{line}").into()))
}

fn budgets(table: &Table<'_>) -> Budgets {
    let budgets = table.numbers(&Budgets::FIELDS);
    let more = |name, than, spelt: (String, String)| {
        let message = format!("`{name}` ({}) is more than `{than}` ({})", spelt.0, spelt.1);
        table.report_at(&[name, than], message);
    };
    let time = units::duration;
    for (name, wall_ms) in [("wall", budgets.wall_ms), ("log_wall", budgets.log_wall_ms)] {
        if budgets.cpu_ms > wall_ms {
            more("cpu", name, (time(budgets.cpu_ms), time(wall_ms)));
        }
    }
    let held = [
        ("body_filter_bytes", budgets.body_filter_bytes as u64),
        ("read_bytes", budgets.read_bytes),
    ];
    for (name, bytes) in held {
        if bytes > budgets.memory_bytes {
            let spelt = (units::size(bytes), units::size(budgets.memory_bytes));
            more(name, "memory", spelt);
        }
    }
    budgets
}

fn env(table: &Table<'_>) -> Arc<[String]> {
    let mut seen: BTreeMap<&str, Spot> = BTreeMap::new();
    let mut names = Vec::new();
    for value in table.list("env") {
        let Some(name) = value.text() else {
            continue;
        };
        if name.is_empty() || name.contains(['=', '\0']) {
            value.report(format!("{name:?} cannot be a variable's name"));
        } else if let Some(first) = seen.insert(name, value.spot()) {
            let finding = problem(value.spot(), format!("variable `{name}` is named twice"));
            value
                .context
                .report(finding.other("first named here", first));
        } else {
            names.push(name.to_owned());
        }
    }
    names.into()
}

/// `allow` of `proxy`.
pub(crate) fn allow(table: &Table<'_>) -> Box<[AllowedAddress]> {
    table.list("allow").iter().filter_map(allowed).collect()
}

fn allowed(value: &Value<'_>) -> Option<AllowedAddress> {
    let text = value.text()?;
    let wrong = |message: String| {
        let help =
            "one looks like `10.0.0.0/8`, `10.0.0.0/8:8080`, `127.0.0.1:9000` or `[fd00::/8]:8080`";
        value.report_help(message, help);
    };
    let (network, port) = split_port(text);
    let port = match port.map(str::parse::<u16>) {
        None => None,
        Some(Ok(port)) if port != 0 => Some(port),
        Some(_) => {
            wrong(format!("`{text}` has no port from 1 to 65535"));
            return None;
        }
    };
    match values::parse_network(network) {
        Ok(network) => Some(AllowedAddress { network, port }),
        Err(values::NoNetwork::Bits(meant)) => {
            let finding = problem(
                value.spot(),
                format!("`{network}` has bits beyond its prefix"),
            );
            let meant = meant.to_string();
            value.context.report(finding.meant(Some(&meant)));
            None
        }
        Err(values::NoNetwork::Syntax) => {
            wrong(format!("`{text}` is neither an address nor a network"));
            None
        }
    }
}
