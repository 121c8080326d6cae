//! From sources to the model: the outline, and the keys of the process.
//!
//! The idea: each part is lowered as far as it goes, whatever is wrong elsewhere, with a default
//! standing in for what could not be read; the model is handed out only if nothing was reported.

mod acme;
mod alert;
pub(crate) mod cgroup;
mod class;
mod command;
mod conditions;
mod console;
mod context;
mod denied;
mod directory;
mod error_logs;
mod expressions;
pub(crate) mod fields;
mod file_cache;
mod files;
mod fleet;
mod handler;
pub(crate) mod hashes;
mod htaccess;
pub(crate) mod limits;
mod listen;
mod map;
mod mounts;
pub(crate) mod names;
pub(crate) mod overrides;
mod php;
mod plan;
mod pool;
mod pool_judge;
mod program;
mod recorder;
mod redirects;
pub(crate) mod rewrite;
mod rows;
mod rule;
pub(crate) mod script;
mod server_url;
mod settings;
mod sharing;
mod shed;
mod site;
mod syntax;
mod table;
pub(crate) mod template;
mod tenant;
mod tls;
mod tops;
pub(crate) mod upstream;
mod user;
mod value;
mod values;

use std::path::PathBuf;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeTable;

use crate::aside::Wrong;
use crate::diagnostics::Diagnostics;
use crate::keys;
use crate::last_good::LastGood;
use crate::model::{Caps, Control, Log, LogTarget, Model, Timeouts};
use crate::sources::Sources;
use crate::units;
use cgroup::Enforcement;
pub(crate) use context::{Context, line_start};
use fields::Side;
use limits::Level;
use pool::PoolList;
pub(crate) use syntax::parse;
use table::Table;
use tenant::Tenants;
use tops::Tops;
use upstream::Upstreams;
use value::Value;

/// Lowers `sources` to a model, or finds every problem in them.
pub fn load(sources: &Sources) -> Result<Model, Diagnostics> {
    load_and_warn(sources).map(|(model, _)| model)
}

/// Lowers `sources` to a model, and tells what in them is not wrong but hardly meant.
pub fn load_and_warn(sources: &Sources) -> Result<(Model, Diagnostics), Diagnostics> {
    judge(sources, &LastGood::default()).map_err(|wrong| wrong.all)
}

/// As [`load_and_warn`]; says as well which files are wrong that may be set aside. Of two that say
/// the same, that one is right of which it is known from before.
pub fn judge(sources: &Sources, last_good: &LastGood) -> Result<(Model, Diagnostics), Wrong> {
    let context = Context::new(sources);
    let documents: Vec<Spanned<DeTable<'_>>> = (0..sources.files.len())
        .map(|file| syntax::parse(&context, file))
        .collect();
    let mut model = lower(&context, &documents);
    drop(documents);
    overrides::apply(&context, &mut model);
    context.judged(model, last_good)
}

fn lower<'a>(context: &'a Context<'a>, documents: &'a [Spanned<DeTable<'a>>]) -> Model {
    let tops = Tops::open(context, documents);
    let (log, user) = (log(&tops), user::server(&tops));
    // First: whatever is a text may ask them.
    let maps = map::define_all(&tops, &user);
    let directories = directory::define_all(&tops);
    let acme = acme::define_all(&tops);
    context.has_fleet.set(tops.is_meant("fleet"));
    let mut upstreams = defined_upstreams(&tops);
    let enforcement = Enforcement::of(&tops.holder("cgroup_required"), Enforcement::Required);
    let plans = plan::Plans::define_all(&tops, enforcement);
    let tenants = defined_tenants(&tops, &plans, enforcement);
    let limits = limits::limits(tops.single("limits"), Level::Process);
    let scripts = script::process(&tops);
    let around = site::Around {
        log: &log.access,
        user: &user,
        tenants: &tenants,
        plans: &plans,
        enforcement,
        limits: limits.len(),
        scripts: &scripts.phases,
    };
    let (listeners, believed) = listen::listeners(&tops);
    let sites = site::lower_all(&tops, &mut upstreams, &around);
    let shed = shed::lower_all(&tops, &upstreams, &maps);
    let alerts = alert::lower_all(&tops, &upstreams);
    let (upstreams, pools) = upstreams.finish();
    let (pool_terms, php, pools) = pools.finish();
    let mut model = Model {
        workers: workers(&tops),
        control: tops.single("control").and_then(|value| control(&value)),
        listeners,
        timeouts: timeouts(&tops),
        caps: caps(&tops.table("caps", &keys::CAPS)),
        trusted_proxies: trusted_proxies(&tops),
        request_headers: fields::edits(tops.single("request_headers"), Side::Request),
        reply_headers: fields::edits(tops.single("reply_headers"), Side::Reply),
        tls: tls::of_process(&tops),
        log,
        user,
        cgroup_required: enforcement == Enforcement::Required,
        time_zone: tops
            .single("time_zone")
            .and_then(|value| limits::zone(&value)),
        limits,
        limits_overrides: overrides::path(&tops),
        suspended: Default::default(),
        last_good: last_good(&tops),
        recorder: recorder::recorder(&tops),
        fleet: fleet::fleet(&tops),
        scripts,
        tenants: tenants.finish(),
        plans: plans.finish(),
        shed,
        alerts,
        maps,
        acme,
        directories,
        pool_terms,
        php,
        pools,
        upstreams,
        htaccess_cached_bytes: htaccess::cached_bytes(&tops),
        sites,
        denied: context.denied.take(),
        guarded: Default::default(),
    };
    model.guarded = files::guarded(context, &model);
    judge_whole(&tops, &model);
    listen::check_believed(&tops, &believed, &model);
    model
}

fn trusted_proxies(tops: &Tops<'_>) -> Vec<IpNet> {
    let value = tops.single("trusted_proxies");
    value
        .map(|value| values::networks(&value))
        .unwrap_or_default()
}

fn defined_upstreams(tops: &Tops<'_>) -> Upstreams {
    let mut upstreams = Upstreams::with(PoolList::open(tops));
    for named in tops.members("upstreams") {
        upstreams.define(&named);
    }
    upstreams
}

fn defined_tenants(tops: &Tops<'_>, plans: &plan::Plans, enforcement: Enforcement) -> Tenants {
    let mut tenants = Tenants::default();
    for named in tops.members("tenants") {
        tenants.define(&named, plans, enforcement);
    }
    tenants
}

/// Reports what is wrong between parts that are right.
fn judge_whole(tops: &Tops<'_>, model: &Model) {
    tls::judge(tops, &model.listeners, &model.sites);
    tls::judge_scripts(tops, model);
    acme::judge(tops, model);
    alert::judge(tops, model);
    console::judge(tops, model);
    directory::judge(tops, model);
    fleet::judge(tops, model);
    pool_judge::judge(tops, model);
    php::judge_memory(tops, model);
    limits::reserve::judge(tops, model);
}

fn workers(tops: &Tops<'_>) -> usize {
    let table = tops.holder("workers");
    match table.get("workers") {
        Some(_) => table.count("workers") as usize,
        None => tops.context.sources.cores,
    }
}

/// Where the last good versions of files are. The supervisor writes there, so nobody who may be set
/// aside says where.
fn last_good(tops: &Tops<'_>) -> PathBuf {
    let path = tops.single("last_good").and_then(|value| {
        if value.file != 0 {
            value.report_help(
                "`last_good` stands in the first file alone",
                "the gateway writes there: included files do not choose the place",
            );
        }
        let path = values::path(&value)?;
        values::require_directory(&value, &path);
        Some(path)
    });
    path.unwrap_or_else(|| tops.context.sources.default_last_good())
}

fn control(value: &Value<'_>) -> Option<Control> {
    let socket = value.table(&keys::CONTROL)?.required("socket")?;
    let path = values::path(&socket)?;
    values::require_directory(&socket, &path);
    Some(Control { socket: path })
}

fn log(tops: &Tops<'_>) -> Log {
    let table = tops.table("log", &keys::LOG);
    Log {
        access: table
            .get("access")
            .and_then(|value| values::log_target(&value))
            .unwrap_or(LogTarget::Stdout),
        format: table.choice("format"),
        reason: table.flag("reason"),
        level: table.choice("level"),
        files_max: table.count("files_max") as usize,
    }
}

fn timeouts(tops: &Tops<'_>) -> Timeouts {
    let table = tops.table("timeouts", &keys::TIMEOUTS);
    table.numbers(&Timeouts::FIELDS)
}

fn caps(table: &Table<'_>) -> Caps {
    let caps = table.numbers(&Caps::FIELDS);
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
