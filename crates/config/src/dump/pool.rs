//! Pools as TOML.

use super::write::{Lines, braces, list, quote, quote_path, some_count, some_duration};
use crate::lower::names::Named;
use crate::model::{AppPool, Model, PlanPool, SitePool};

impl Lines {
    /// What all pools share, and the PHPs that they run.
    pub(super) fn pools(&mut self, model: &Model) {
        let terms = &model.pool_terms;
        self.section("[pools]");
        self.key("directory", quote_path(&terms.directory));
        self.key("starting", terms.starting);
        self.duration("idle", terms.idle_ms);
        self.key("see", list(&terms.see, |path| quote_path(path)));
        self.size("cache", terms.cache_bytes);
        self.key("mail", quote(&terms.mail));
        for php in &model.php {
            self.section(&format!("[php.{}]", quote(&php.version)));
            self.key("program", quote_path(&php.program));
            self.key("ini", texts(&php.ini));
        }
    }
}

/// `pool` of a site.
pub(super) fn of_site(pool: &SitePool) -> String {
    let shared = [
        Some(format!("share = {}", quote(pool.share.name()))),
        some_count("min", Some(u8::from(pool.is_kept))),
    ];
    braces(common(pool).chain(shared.into_iter().flatten()))
}

/// `pool` of a site of rows, each of which has its own.
pub(super) fn of_rows(pool: &SitePool) -> String {
    braces(common(pool))
}

/// `pool` of a plan.
pub(super) fn of_plan(pool: &PlanPool) -> Option<String> {
    let entries = [
        some_count("processes", pool.processes),
        some_count("requests", pool.requests),
        some_duration("time", pool.time_ms),
    ];
    let is_said = *pool != PlanPool::default();
    is_said.then(|| braces(entries.into_iter().flatten()))
}

fn common(pool: &SitePool) -> impl Iterator<Item = String> {
    let version = pool.php.as_ref();
    let entries = [
        version.map(|version| format!("php = {}", quote(version))),
        some_count("processes", Some(pool.processes)),
        some_count("requests", Some(pool.requests)),
        some_duration("time", Some(pool.time_ms)),
        Some(format!("admin = {}", texts(&pool.admin))),
        Some(format!("isolate = {}", quote(pool.isolate.name()))),
        Some(format!("waiting_page = {}", pool.waiting_page)),
    ];
    entries.into_iter().flatten()
}

/// `app`, but for what is done with its requests.
pub(super) fn app(app: &AppPool) -> impl Iterator<Item = String> {
    let ready = app.ready.as_ref();
    let entries = [
        Some(format!("command = {}", list(&app.command, quote))),
        Some(format!("directory = {}", quote_path(&app.directory))),
        Some(format!("env = {}", texts(&app.env))),
        some_count("instances", Some(app.instances)),
        some_duration("start", Some(app.start_ms)),
        some_duration("stop", Some(app.stop_ms)),
        Some(format!("protocol = {}", quote(app.protocol.name()))),
        ready.map(|path| format!("ready = {}", quote(path))),
    ];
    entries.into_iter().flatten()
}

fn texts(texts: &[(String, String)]) -> String {
    let texts = texts.iter();
    braces(texts.map(|(name, text)| format!("{} = {}", quote(name), quote(text))))
}
