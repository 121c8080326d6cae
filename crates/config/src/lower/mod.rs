//! From sources to the model: the outline, and the keys of the process.
//!
//! The idea: each part is lowered as far as it goes, whatever is wrong elsewhere, with a default
//! standing in for what could not be read; the model is handed out only if nothing was reported.

mod cgroup;
mod context;
mod fields;
mod files;
mod handler;
mod limits;
mod map;
pub(crate) mod names;
pub(crate) mod overrides;
mod program;
mod rule;
pub(crate) mod script;
mod sharing;
mod shed;
mod site;
mod syntax;
mod table;
mod template;
mod tenant;
mod tops;
mod upstream;
mod value;
mod values;

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeTable;

use crate::diagnostics::Diagnostics;
use crate::keys;
use crate::model::{Caps, Control, ListenAddress, Listener, Log, LogTarget, Model, Timeouts};
use crate::sources::Sources;
use crate::units;
use cgroup::Enforcement;
pub(crate) use cgroup::spell_cpu;
pub(crate) use context::{Context, line_start};
use context::{Spot, problem, problem_overall};
use fields::Side;
use limits::Level;
pub use limits::spell_key;
pub(crate) use limits::spell_when;
pub(crate) use syntax::parse;
use table::Table;
pub(crate) use template::spell;
use tenant::Tenants;
use tops::Tops;
pub(crate) use upstream::FASTCGI_PREFIX;
use upstream::Upstreams;
use value::Value;

/// Lowers `sources` to a model, or finds every problem in them.
pub fn load(sources: &Sources) -> Result<Model, Diagnostics> {
    load_and_warn(sources).map(|(model, _)| model)
}

/// Lowers `sources` to a model, and tells what in them is not wrong but hardly meant.
pub fn load_and_warn(sources: &Sources) -> Result<(Model, Diagnostics), Diagnostics> {
    let context = Context::new(sources);
    let documents: Vec<Spanned<DeTable<'_>>> = (0..sources.files.len())
        .map(|file| syntax::parse(&context, file))
        .collect();
    let mut model = lower(&context, &documents);
    drop(documents);
    overrides::apply(&context, &mut model);
    context.finish(model)
}

fn lower<'a>(context: &'a Context<'a>, documents: &'a [Spanned<DeTable<'a>>]) -> Model {
    let tops = Tops::open(context, documents);
    let (log, user) = (log(&tops), user(&tops));
    // First: whatever is a text may ask them.
    let maps = map::define_all(&tops, &user);
    let mut upstreams = Upstreams::default();
    for named in tops.members("upstreams") {
        upstreams.define(&named);
    }
    let enforcement = Enforcement::of(&tops.holder("cgroup_required"), Enforcement::Required);
    let mut tenants = Tenants::default();
    for named in tops.members("tenants") {
        tenants.define(&named, enforcement);
    }
    let limits = limits::limits(tops.single("limits"), Level::Process);
    let scripts = script::process(&tops);
    let around = site::Around {
        log: &log.access,
        user: &user,
        tenants: &tenants,
        enforcement,
        limits: limits.len(),
        scripts: &scripts.phases,
    };
    let sites = site::lower_all(&tops, &mut upstreams, &around);
    let mut model = Model {
        workers: workers(&tops),
        control: tops.single("control").and_then(|value| control(&value)),
        listeners: listeners(&tops),
        timeouts: timeouts(&tops.table("timeouts", &keys::TIMEOUTS)),
        caps: caps(&tops.table("caps", &keys::CAPS)),
        trusted_proxies: tops
            .single("trusted_proxies")
            .map(|value| values::networks(&value))
            .unwrap_or_default(),
        request_headers: fields::edits(tops.single("request_headers"), Side::Request),
        reply_headers: fields::edits(tops.single("reply_headers"), Side::Reply),
        log,
        user,
        cgroup_required: enforcement == Enforcement::Required,
        time_zone: tops
            .single("time_zone")
            .and_then(|value| limits::zone(&value)),
        limits,
        limits_overrides: overrides::path(&tops),
        scripts,
        tenants: tenants.finish(),
        shed: shed::lower_all(&tops, &upstreams, &maps),
        maps,
        upstreams: upstreams.finish(),
        sites,
        guarded: Default::default(),
    };
    model.guarded = files::guarded(context, &model);
    model
}

fn workers(tops: &Tops<'_>) -> usize {
    let table = tops.holder("workers");
    match table.get("workers") {
        Some(_) => table.count("workers") as usize,
        None => tops.context.sources.cores,
    }
}

fn user(tops: &Tops<'_>) -> String {
    let table = tops.holder("user");
    let name = table.text("user");
    let written = table.get("user");
    if written.is_none_or(|value| value.is_text())
        && let Some((message, help)) = wrong_user(tops.context.sources, Role::Server, &name)
    {
        match written {
            Some(value) => value.report_help(message, help),
            None => tops.context.report(problem_overall(message).help(help)),
        }
    }
    name
}

/// Who becomes a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The server.
    Server,
    /// Programs of a site or a map.
    Programs,
    /// Nobody: the site has no programs.
    Nobody,
}

/// Why the server, or programs, cannot become a user, and what to do.
fn wrong_user(sources: &Sources, role: Role, name: &str) -> Option<(String, &'static str)> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.$@".contains(&byte);
    if name.is_empty() || !name.bytes().all(known) {
        let message = format!("`{name}` is no user name");
        return Some((message, "one looks like `www-data`"));
    }
    if name == "root" || name.bytes().all(|byte| byte == b'0') {
        let help = "name a user without privileges, such as `www-data`";
        let message = match role {
            Role::Server => "the server must not stay root",
            Role::Programs | Role::Nobody => "a site's programs must not run as root",
        };
        return Some((message.to_owned(), help));
    }
    let why = sources.users.get(name)?.as_ref().err();
    let message = match role {
        Role::Server => format!("the server cannot become user `{name}`: {}", why?),
        Role::Programs => format!("programs cannot run as user `{name}`: {}", why?),
        Role::Nobody => return None,
    };
    Some((message, "create it, or let `user` name another"))
}

fn control(value: &Value<'_>) -> Option<Control> {
    let socket = value.table(&keys::CONTROL)?.required("socket")?;
    let path = values::path(&socket)?;
    values::require_directory(&socket, &path);
    Some(Control { socket: path })
}

fn listeners(tops: &Tops<'_>) -> Vec<Listener> {
    let mut listeners = Vec::new();
    let mut seen: BTreeMap<ListenAddress, Spot> = BTreeMap::new();
    let tables = tops.elements("listen", "`address = \"127.0.0.1:8080\"`");
    for table in tables.iter().filter_map(|value| value.table(&keys::LISTEN)) {
        let backlog = table.count("backlog") as u32;
        let Some(value) = table.required("address") else {
            continue;
        };
        let Some(address) = upstream::listen_address(&value) else {
            continue;
        };
        if let Some(first) = seen.get(&address) {
            let finding = problem(value.spot(), "two listeners have the same address");
            tops.context
                .report(finding.other("the first", first.clone()));
            continue;
        }
        seen.insert(address.clone(), value.spot());
        listeners.push(Listener { address, backlog });
    }
    listeners
}

fn log(tops: &Tops<'_>) -> Log {
    let table = tops.table("log", &keys::LOG);
    Log {
        access: table
            .get("access")
            .and_then(|value| values::log_target(&value))
            .unwrap_or(LogTarget::Stdout),
        format: table.choice("format"),
        level: table.choice("level"),
        files_max: table.count("files_max") as usize,
    }
}

fn timeouts(table: &Table<'_>) -> Timeouts {
    Timeouts {
        header_ms: table.duration("header"),
        body_ms: table.duration("body"),
        write_ms: table.duration("write"),
        idle_ms: table.duration("idle"),
        upstream_connect_ms: table.duration("upstream_connect"),
        upstream_read_ms: table.duration("upstream_read"),
        upstream_write_ms: table.duration("upstream_write"),
        upstream_idle_ms: table.duration("upstream_idle"),
        tunnel_ms: table.duration("tunnel"),
        drain_ms: table.duration("drain"),
        resolve_ms: table.duration("resolve"),
    }
}

fn caps(table: &Table<'_>) -> Caps {
    let caps = Caps {
        head_bytes: table.size("head_bytes") as usize,
        target_bytes: table.size("target_bytes") as usize,
        fields: table.count("fields") as usize,
        body_bytes: table.size("body_bytes"),
        chunk_extension_bytes: table.size("chunk_extension_bytes") as usize,
        trailer_bytes: table.size("trailer_bytes") as usize,
        drain_bytes: table.size("drain_bytes"),
        upstream_head_bytes: table.size("upstream_head_bytes") as usize,
        connections: table.count("connections") as usize,
        connections_per_client: table.count("connections_per_client") as usize,
        refusals_per_client: table.count("refusals_per_client"),
        requests_per_connection: table.count("requests_per_connection"),
        body_rate_min: table.size("body_rate_min"),
        write_rate_min: table.size("write_rate_min"),
        spool_memory_bytes: table.size("spool_memory_bytes") as usize,
        spool_disk_bytes: table.size("spool_disk_bytes"),
        cached_file_bytes: table.size("cached_file_bytes") as usize,
        file_cache_bytes: table.size("file_cache_bytes") as usize,
        auth_waiting: table.count("auth_waiting") as usize,
        programs: table.count("programs") as usize,
        env_bytes: table.size("env_bytes") as usize,
        limit_keys: table.count("limit_keys") as usize,
    };
    if caps.target_bytes > caps.head_bytes {
        let message = format!(
            "`target_bytes` ({}) is more than `head_bytes` ({})",
            units::size(caps.target_bytes as u64),
            units::size(caps.head_bytes as u64)
        );
        table.report_at(&["target_bytes", "head_bytes"], message);
    }
    caps
}
