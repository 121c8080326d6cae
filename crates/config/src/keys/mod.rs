//! The table of keys: what may be written, and everything that is said about it.
//!
//! The idea: one table drives the check for unknown keys, the suggestions, the ranges and
//! defaults of the lowering and the reference manual, so that none of them can drift from the
//! others. What a key's value means stands in `lower`.

mod acme;
mod alert;
mod amounts;
mod condition;
mod directory;
mod fleet;
#[cfg(test)]
mod frames;
mod handler;
mod htaccess;
mod include;
mod key;
mod level;
pub(crate) mod limit;
mod listen;
mod map;
mod mount;
mod php;
mod plan;
mod pool;
mod process;
mod program;
mod recorder;
mod rewrite;
mod script;
mod shed;
mod site;
mod suggest;
#[cfg(test)]
mod tests;
mod tls;
mod upstream;

pub(crate) use acme::{ACME, ACME_DNS, ACME_EXPORT, EAB, ON_DEMAND};
pub(crate) use alert::ALERT;
pub(crate) use condition::{MATCH, TEXT_MATCH};
pub(crate) use directory::DIRECTORY;
pub(crate) use fleet::FLEET;
pub(crate) use handler::{CONSOLE, HANDLER, PROXY, PROXY_REDIRECT, RESPOND};
pub(crate) use htaccess::{DIRECTORY_SECTION, HTACCESS, SITE_HTACCESS};
pub(crate) use include::INCLUDE;
pub(crate) use key::{Fallback, Key, Kind, NO_KEY, Section, default_of};
pub(crate) use level::{LEVEL_CAPS, LEVEL_TIMEOUTS};
pub(crate) use limit::{CLASS, LIMIT, OVERRIDE, OVERRIDES};
pub(crate) use listen::{LISTEN, SENDERS};
pub(crate) use map::MAP;
pub(crate) use mount::MOUNT;
pub(crate) use php::meant_setting;
pub(crate) use plan::{HOSTS, PLAN, PLAN_POOL};
pub(crate) use pool::{APP, PHP, PHP_HANDLER, POOL, POOLS};
pub(crate) use process::{CAPS, CONTROL, LOG, TIMEOUTS, TOP};
pub(crate) use program::{CGI, CGROUP, FASTCGI, IO, PARAMS, TENANT};
pub(crate) use recorder::RECORDER;
pub(crate) use rewrite::REWRITE;
pub(crate) use script::{LEVEL_SCRIPTS, SCRIPT, SCRIPTS};
pub(crate) use shed::{SHED, SHED_RESPOND};
pub(crate) use site::{
    AUTH, COMPRESS, DENY_FILE, EDITS, FILES, RULE, RULE_LOG, SITE, SITE_LOG, VARIABLE,
};
pub use suggest::nearest;
pub(crate) use suggest::{others_handler, phase_of_handler};
pub(crate) use tls::{LISTEN_TLS, SITE_TLS, TLS};
pub(crate) use upstream::{SERVER, UPSTREAM, UPSTREAM_TLS};

/// Every section, in the order of the reference.
pub(crate) const SECTIONS: &[&Section] = &[
    &TOP,
    &INCLUDE,
    &CONTROL,
    &LISTEN,
    &LISTEN_TLS,
    &SENDERS,
    &TLS,
    &LOG,
    &TIMEOUTS,
    &CAPS,
    &SCRIPTS,
    &UPSTREAM,
    &SERVER,
    &UPSTREAM_TLS,
    &TENANT,
    &PLAN,
    &SHED,
    &SHED_RESPOND,
    &ALERT,
    &MAP,
    &POOLS,
    &PHP,
    &HTACCESS,
    &ACME,
    &EAB,
    &ON_DEMAND,
    &ACME_DNS,
    &ACME_EXPORT,
    &DIRECTORY,
    &RECORDER,
    &FLEET,
    &SITE,
    &HOSTS,
    &MOUNT,
    &SITE_HTACCESS,
    &DIRECTORY_SECTION,
    &SITE_LOG,
    &SITE_TLS,
    &POOL,
    &PLAN_POOL,
    &FILES,
    &COMPRESS,
    &AUTH,
    &DENY_FILE,
    &EDITS,
    &REWRITE,
    &RULE,
    &RULE_LOG,
    &MATCH,
    &TEXT_MATCH,
    &HANDLER,
    &PROXY,
    &PROXY_REDIRECT,
    &FASTCGI,
    &PHP_HANDLER,
    &APP,
    &CGI,
    &PARAMS,
    &RESPOND,
    &CONSOLE,
    &LEVEL_CAPS,
    &LEVEL_TIMEOUTS,
    &LEVEL_SCRIPTS,
    &SCRIPT,
    &LIMIT,
    &VARIABLE,
    &CLASS,
    &CGROUP,
    &IO,
];
