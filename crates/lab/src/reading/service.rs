//! Back ends and variants.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::model::{Ready, Service};
use super::super::source::{Table, Value, nearest};
use super::{beside, command, commands, limited, stays_below, words};
use load::client::Scheme;

const BACKEND: &str = "\
    backends needs command config configs values environment prepare ready ready_seconds cores \
    workers before_slice after_slice";
const VARIANT: &str = "\
    name nagaya backends needs command config configs values environment prepare ready \
    ready_seconds cores workers before_slice after_slice tls";
/// The core of what is measured.
const VARIANT_CORE: usize = 0;
/// The core of everything else, the generator included.
const BACKEND_CORE: usize = 1;
/// Longest wait for a service.
const READY_SECONDS: f64 = 20.0;
/// Names of services become names of directories.
const NAME_BYTES_MAX: usize = 60;

/// The program that is measured unless another is named.
pub(crate) const OURS: &str = "nagaya";

pub(super) fn backends(top: &Table<'_>, directory: &Path) -> Vec<Service> {
    let entries = top
        .get("backends")
        .map_or_else(Vec::new, |value| value.entries());
    let mut found: Vec<Service> = Vec::new();
    for (name, value) in limited(top, "back ends", entries) {
        let Some(table) = value.table(format!("[backends.{name}]"), BACKEND) else {
            continue;
        };
        if !is_plain(&name) {
            table.report(format!(
                "`{name}`: a back end's name is of letters, digits and `-`"
            ));
        }
        let mut backend = service(&table, name, directory, BACKEND_CORE);
        // Only those before it: they are started in the order of the file.
        let earlier: Vec<&str> = found.iter().map(|other| other.name.as_str()).collect();
        backend.backends = named(&table, "backends", &earlier, "earlier back end");
        found.push(backend);
    }
    found
}

pub(super) fn variants(top: &Table<'_>, directory: &Path, backends: &[&str]) -> Vec<Service> {
    let Some(value) = top.required("variants", "[[variants]]") else {
        return Vec::new();
    };
    let mut found: Vec<Service> = Vec::new();
    for value in limited(top, "variants", value.list()) {
        let Some(table) = value.table("[[variants]]", VARIANT) else {
            continue;
        };
        let Some(variant) = variant(&table, directory, backends) else {
            continue;
        };
        if found.iter().any(|other| other.name == variant.name) {
            table.report(format!("two variants are called `{}`", variant.name));
        }
        found.push(variant);
    }
    found
}

fn variant(table: &Table<'_>, directory: &Path, backends: &[&str]) -> Option<Service> {
    let name = table.required("name", "name = \"nagaya\"")?.text()?;
    if name.trim().is_empty() || name.len() > NAME_BYTES_MAX || name.contains(['/', '\0', '\n']) {
        table.report(format!(
            "`{name}`: a variant's name has 1 to {NAME_BYTES_MAX} bytes and no slash"
        ));
        return None;
    }
    let mut found = match table.get("nagaya") {
        None => service(table, name, directory, VARIANT_CORE),
        Some(config) => {
            if table.has("command") || table.has("config") {
                table.report(format!(
                    "`{name}`: `nagaya` takes the place of `command` and `config`"
                ));
            }
            let mut found = parts(table, name, directory, VARIANT_CORE);
            found.needs.insert(0, OURS.to_owned());
            found.command = ["@program@", "serve", "-c", "@config@"]
                .map(str::to_owned)
                .into();
            let from = beside(&config, directory).unwrap_or_default();
            found.configs.insert(0, ("nagaya.toml".into(), from));
            found
        }
    };
    found.backends = named(table, "backends", backends, "back end");
    Some(found)
}

/// Texts that are all among the names that are known.
pub(super) fn named(table: &Table<'_>, key: &str, known: &[&str], what: &str) -> Vec<String> {
    let Some(value) = table.get(key) else {
        return Vec::new();
    };
    let texts = value.texts();
    for text in &texts {
        if !known.contains(&text.as_str()) {
            value.report(unknown(what, text, known));
        }
    }
    texts
}

/// Says that nothing is called so.
pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(meant) => format!("no {what} is called `{name}`; did you mean `{meant}`?"),
        None if known.is_empty() => format!("no {what} is called `{name}`; there is none at all"),
        None => format!(
            "no {what} is called `{name}`; there are {}",
            known.join(", ")
        ),
    }
}

/// A service whose mistakes are written down stays, so that its name is known.
fn service(table: &Table<'_>, name: String, directory: &Path, core: usize) -> Service {
    let mut found = parts(table, name, directory, core);
    let example = "command = [\"@program@\", \"-c\", \"@config@\"]";
    let Some(given) = table.required("command", example) else {
        return found;
    };
    found.command = given.texts();
    let has = |name: &str| found.command.iter().any(|word| word.contains(name));
    if found.command.is_empty() {
        given.report("`command` has no words");
    }
    if has("@program@") && found.needs.is_empty() {
        given.report("`@program@` is the first of `needs`, which is missing; write for example `needs = \"nginx\"`");
    }
    if has("@config@") && found.configs.is_empty() {
        given.report("`@config@` is the file of `config`, which is missing");
    }
    found
}

/// Everything but the command.
fn parts(table: &Table<'_>, name: String, directory: &Path, core: usize) -> Service {
    let seconds = table
        .number("ready_seconds", 0.1, 600.0)
        .unwrap_or(READY_SECONDS);
    Service {
        name,
        needs: table.texts("needs"),
        command: Vec::new(),
        configs: configs(table, directory),
        values: words(table, "values"),
        environment: words(table, "environment"),
        prepare: commands(table, "prepare"),
        ready: table
            .get("ready")
            .map_or(Ready::Port, |value| ready(&value)),
        ready_within: Duration::from_secs_f64(seconds),
        cores: cores(table).unwrap_or_else(|| vec![core]),
        workers: table.count("workers", 1, 1024).unwrap_or(1),
        backends: Vec::new(),
        before_slice: commands(table, "before_slice"),
        after_slice: commands(table, "after_slice"),
        scheme: match table.flag("tls") {
            Some(true) => Scheme::Https,
            _ => Scheme::Http,
        },
    }
}

fn cores(table: &Table<'_>) -> Option<Vec<usize>> {
    let value = table.get("cores")?;
    let cores: Option<Vec<usize>> = if value.is_list() {
        let list = value.list();
        list.iter()
            .map(|core| Some(core.count(0, 1023)? as usize))
            .collect()
    } else {
        Some(vec![value.count(0, 1023)? as usize])
    };
    cores.filter(|cores| !cores.is_empty())
}

fn ready(value: &Value<'_>) -> Ready {
    if value.is_table() {
        let table = value.table("`ready`", "command");
        let given = table.and_then(|table| table.required("command", "command = \"true\""));
        return given
            .and_then(|given| command(&given))
            .map_or(Ready::Port, Ready::Command);
    }
    match value.text().unwrap_or_default() {
        text if text == "port" => Ready::Port,
        text if text == "at once" => Ready::AtOnce,
        text if text.starts_with('/') => Ready::Path(text),
        text => match text.strip_prefix("unix:") {
            Some(path) => Ready::Unix(path.to_owned()),
            None => {
                value.report("`ready` is \"port\", \"/path\", \"unix:@home@/socket\", \"at once\" or { command = … }");
                Ready::Port
            }
        },
    }
}

fn configs(table: &Table<'_>, directory: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    if let Some(value) = table.get("config")
        && let Some(path) = beside(&value, directory)
    {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        found.push((name.unwrap_or_default(), path));
    }
    let more: BTreeMap<String, Value<'_>> = table
        .get("configs")
        .map_or_else(BTreeMap::new, |value| value.entries().into_iter().collect());
    for (name, value) in more {
        if !stays_below(&name) {
            value.report(format!(
                "`{name}` has to be a path below the service's directory"
            ));
        } else if let Some(path) = beside(&value, directory) {
            found.push((name, path));
        }
    }
    found
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}
