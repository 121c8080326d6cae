//! PHPs that pools run, and what they are told: `[php.VERSION]`, and `admin` of a site's pool.
//!
//! The idea: which settings there are the extensions of each PHP decide, so a name that is not known
//! is no mistake; one that is nearly another's is told of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::context::{Spot, problem};
use super::table::Table;
use super::tops::Tops;
use super::value::{Entry, Value};
use super::values;
use crate::keys;
use crate::model::{Cgroup, Model, Php, PoolProgram};

/// A setting of PHP.
const SETTING_BYTES_MAX: usize = 4 * 1024;
/// Memory in which a master of php-fpm and a page do not work.
const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// What is found, and what `[php.VERSION]` says, by version.
pub(super) fn all(tops: &Tops<'_>) -> Vec<Php> {
    let found = tops.context.sources.phps.iter();
    let found = found.map(|(version, program)| {
        let php = Php {
            version: version.clone(),
            program: program.clone(),
            ini: Vec::new(),
        };
        (version.clone(), php)
    });
    let mut phps: BTreeMap<String, Php> = found.collect();
    let mut named: BTreeMap<&str, Spot> = BTreeMap::new();
    for value in tops.members("php") {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=32).contains(&value.name.len()) || !value.name.bytes().all(fits) {
            let name = value.name;
            value.report_help(
                format!("`{name}` cannot be a version: letters, digits, `-`, `_` and `.` can"),
                "write the version in quotes: `[php.\"8.2\"]`",
            );
        }
        if let Some(first) = named.insert(value.name, value.spot()) {
            value.report_again(format!("PHP `{}` is described twice", value.name), first);
        }
        let found = phps.remove(value.name).map(|php| php.program);
        phps.insert(value.name.to_owned(), php(&value, found));
    }
    phps.into_values().collect()
}

fn php(value: &Value<'_>, found: Option<PathBuf>) -> Php {
    let table = value.table(&keys::PHP);
    let table = table.unwrap_or_else(|| Table::empty(value.context, &keys::PHP));
    let program = table.get("program").and_then(|value| {
        if !value.text()?.contains('/') {
            value.report_help(
                "`program` must be the path of a php-fpm",
                "as in `/usr/sbin/php-fpm8.2`",
            );
        }
        values::path(&value)
    });
    if program.is_none() && found.is_none() && table.get("program").is_none() {
        let message = format!(
            "no php-fpm {} is found where they are looked for",
            value.name
        );
        let finding = problem(value.spot(), message).help("say where it is: `program = \"…\"`");
        value.context.report(finding.absence());
    }
    Php {
        version: value.name.to_owned(),
        program: program.or(found).unwrap_or_default(),
        ini: settings(table.entries("ini")),
    }
}

/// Settings of PHP, by name. What could be read as another setting is refused.
pub(super) fn settings(entries: Vec<Entry<'_>>) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for Entry {
        name,
        name_spot,
        value,
    } in entries
    {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
        if !begins || name.len() > 128 || !name.bytes().all(fits) {
            let message = format!("{name:?} cannot be a setting of PHP");
            let finding = problem(name_spot, message).help("one looks like `memory_limit`");
            value.context.report(finding);
            continue;
        }
        if let Some(meant) = keys::meant_setting(name) {
            let message = format!("`{name}` is no setting of PHP that is known");
            value.context.warn(problem(name_spot, message).help(meant));
        }
        let flag = value.as_flag().map(|flag| u8::from(flag).to_string());
        let Some(text) = flag.or_else(|| value.typed()) else {
            value.mistyped("a text, a number, true or false");
            continue;
        };
        let is_wrong = |c: char| c.is_control() || ['"', '\\'].contains(&c);
        if text.contains(is_wrong) || text.contains("${") {
            value.report(format!(
                "`{name}` may hold neither control characters nor `\"`, `\\` or `${{`"
            ));
        } else if text.len() > SETTING_BYTES_MAX {
            value.report(format!("`{name}` has more than {SETTING_BYTES_MAX} bytes"));
        }
        settings.push((name.to_owned(), text));
    }
    settings.sort();
    settings
}

/// Warns of memory that is less than any pool of PHP takes.
pub(super) fn judge_memory(tops: &Tops<'_>, model: &Model) {
    let is_little = |cgroup: Option<&Cgroup>| {
        let memory = cgroup.and_then(|it| it.memory_bytes);
        memory.is_some_and(|bytes| bytes < MEMORY_BYTES_MIN)
    };
    let (mut tenants, mut sites) = (BTreeSet::new(), BTreeSet::new());
    let is_php = |program: &PoolProgram| matches!(program, PoolProgram::Php(_));
    for pool in model.pools.iter().filter(|pool| is_php(&pool.program)) {
        let tenant = pool.tenant_index.and_then(|at| model.tenants.get(at));
        let tenant = tenant.filter(|it| is_little(it.cgroup.as_deref()));
        tenants.extend(tenant.map(|it| &*it.name));
        if let [at] = *pool.sites {
            let site = model.sites.get(at);
            let site = site.filter(|it| is_little(it.cgroup.as_deref()));
            sites.extend(site.map(|_| at));
        }
    }
    if tenants.is_empty() && sites.is_empty() {
        return;
    }
    let members = tops.members("tenants").into_iter();
    let members = members.filter(|value| tenants.contains(value.name));
    let elements = tops.elements_again("sites");
    // One that is wrong has been reported.
    let is_whole = elements.len() == model.sites.len();
    let elements = elements.into_iter().enumerate();
    let elements = elements.filter(|(at, _)| is_whole && sites.contains(at));
    for level in members.chain(elements.map(|(_, value)| value)) {
        let memory = level.member("cgroup").and_then(|it| it.member("memory"));
        if let Some(memory) = memory {
            let message = "no php-fpm does its work with so little `memory`";
            let help = "it is for all processes of the pool together: begin with \"256MiB\"";
            memory.warn_help(message, help);
        }
    }
}
