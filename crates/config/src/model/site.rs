//! `[[sites]]` and their rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;

use super::cgroup::Cgroup;
use super::condition::Condition;
use super::file::{Auth, ErrorPage};
use super::handler::Handler;
use super::host::HostPattern;
use super::htaccess::SiteHtaccess;
use super::limit::{Limit, LimitPlace};
use super::mount::Mount;
use super::number::Field;
use super::number::Number::Maybe;
use super::pool::SitePool;
use super::process::{FieldEdits, LogTarget};
use super::rewrite::Rewrite;
use super::script::PhaseScripts;
use super::template::Template;
use super::tls::SiteTls;

/// `[[sites]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Exact and wildcard hosts; no host occurs in two sites. None where rows say them.
    pub hosts: Vec<HostPattern>,
    /// What rows of a directory say of it: then it is a site for each of their hosts.
    pub rows: Option<Box<SiteRows>>,
    /// Whose it is. Default: the first host as it is written.
    pub tenant: String,
    /// Index into [`super::Model::tenants`]; `None` for a tenant of whom nothing more is said.
    pub tenant_index: Option<usize>,
    /// The user its programs run as, never root. Default: [`super::Model::user`].
    pub user: String,
    /// Whether the site names that user itself.
    pub has_own_user: bool,
    /// What the programs of all its rules share.
    pub cgroup: Option<Box<Cgroup>>,
    /// What its pools are like. Sites share equal ones.
    pub pool: Arc<SitePool>,
    /// Document root; `None` for a site that only proxies or answers.
    pub root: Option<Root>,
    /// Roots of their own below paths of it, the longest paths first; no path occurs twice.
    pub mounts: Vec<Mount>,
    /// What its `.htaccess` files may say; `None`: they count for nothing. Sites share equal ones.
    pub htaccess: Option<Arc<SiteHtaccess>>,
    /// Names tried in a directory, in order. Default `["index.html"]`.
    pub index: Arc<Vec<String>>,
    /// What a path is resolved to. Default `["$path", "$path/"]`.
    pub resolve: Arc<Vec<TryEntry>>,
    /// Repeated slashes. Default merge.
    pub slashes: Slashes,
    /// `%2F` in a path. Default refuse.
    pub encoded_slash: EncodedSlash,
    /// Field names with `_` (or other odd bytes). Default drop.
    pub underscore_fields: UnderscoreFields,
    /// Static file settings of the site.
    pub files: Arc<Files>,
    /// Which replies are compressed on the fly, where no rule says otherwise.
    pub compress: Arc<Compress>,
    /// Whether the recorder is told of its requests.
    pub record: bool,
    /// Replaced error pages, by status.
    pub error_pages: BTreeMap<u16, ErrorPage>,
    /// What is asked for in the place of what was, before a file is looked for.
    pub rewrites: Vec<Rewrite>,
    /// Settings every rule adds to.
    pub settings: Arc<Settings>,
    /// Access log of this site.
    pub log: LogTarget,
    /// The file of its error log, in which `$site` may stand; `None` is that of the process.
    pub error_log: Option<String>,
    /// Limits that every request to it meets. Sites share equal ones.
    pub limits: Arc<[Limit]>,
    /// Scripts that every request to it meets. Sites share equal ones.
    pub scripts: Arc<PhaseScripts>,
    /// Its certificate, and what it asks of clients that come with TLS. Sites share equal ones.
    pub tls: Arc<SiteTls>,
    /// Rules in order.
    pub rules: Vec<Rule>,
}

/// `hosts = { directory = … }`: every host that has a row there has such a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRows {
    /// Index into [`super::Model::directories`].
    pub directory: usize,
    /// That directory's name.
    pub name: String,
    /// Whose each is.
    pub tenant: Template,
    /// Whether column `user` says whose its files are.
    pub has_user: bool,
    /// The plan; `None`: none.
    pub plan: Option<Template>,
    /// Where its files are.
    pub root: Option<RowRoot>,
    /// The column that names its certificate among those of `[tls]`; `None`: it is found by name.
    pub certificate: Option<String>,
    /// All columns that texts and conditions of the site name.
    pub columns: BTreeSet<String>,
}

impl SiteRows {
    /// What the site is called as a whole.
    #[must_use]
    pub fn site_name(&self) -> String {
        format!("directory:{}", self.name)
    }
}

/// The root of each site of a directory, and its boundary; of the row's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRoot {
    /// The document root, absolute.
    pub path: Template,
    /// No file outside this directory is ever served.
    pub within: Template,
    /// What to do with symbolic links.
    pub symlinks: Symlinks,
}

/// A site's root and its boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The document root, absolute, beneath or equal to `within`.
    pub path: PathBuf,
    /// No file outside this directory is ever served. Default: `path`.
    pub within: PathBuf,
    /// What to do with symbolic links. Default owner.
    pub symlinks: Symlinks,
}

/// Symbolic links below a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symlinks {
    /// Refused.
    Deny,
    /// Followed where the link's owner owns its target.
    Owner,
    /// Followed where they end beneath `within`.
    Allow,
}

/// An entry of `try`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TryEntry {
    /// `"$path"`: the file itself.
    Path,
    /// `"$path/"`: a directory with an index.
    Directory,
    /// `"$path.html"`: the path with this suffix.
    Suffix(String),
    /// `"/index.php"`: a fixed file, the front controller.
    Fixed(String),
    /// `"=404"`: this status.
    Status(u16),
}

/// Repeated slashes in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum Slashes {
    Merge,
    Keep,
}

/// `%2F` in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum EncodedSlash {
    Refuse,
    Keep,
}

/// Field names other than `[A-Za-z0-9-]`, which CGI would fold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum UnderscoreFields {
    Drop,
    Refuse,
    Keep,
}

/// How a site serves its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Globs over the file name that are programs' sources, never served.
    pub sources: Vec<String>,
    /// List directories without an index. Default no.
    pub listing: bool,
    /// Media types by extension (lower case, no dot), over the built-in table.
    pub types: BTreeMap<String, String>,
    /// Type of unknown extensions. Default `application/octet-stream`.
    pub default_type: String,
    /// Serve `.br`, `.zst`, `.gz` siblings. Default yes.
    pub precompressed: bool,
    /// Compress files on the fly. Default yes.
    pub compress: bool,
    /// Smallest file compressed on the fly. Default [`Compress::min_bytes`].
    pub compress_min_bytes: usize,
    /// Largest file compressed on the fly. Default 8 MiB.
    pub compress_max_bytes: usize,
}

/// How long replies may be kept, by media type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expires {
    /// By media type in lower case, `image/*` being all images.
    pub types: Vec<(String, Lifetime)>,
    /// Of the other types.
    pub default: Lifetime,
}

/// How long a reply may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Nothing is said.
    Unsaid,
    /// It is out of date at once.
    Past,
    /// So many seconds.
    Seconds(u64),
}

impl Expires {
    /// What holds for a media type, without its parameters.
    #[must_use]
    pub fn of(&self, media_type: &[u8]) -> Lifetime {
        let kind = media_type
            .split(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        let is_it = |name: &str| name.as_bytes().eq_ignore_ascii_case(media_type);
        let has_it = |name: &str| {
            let range = name.strip_suffix("/*").map(str::as_bytes);
            range.is_some_and(|range| range.eq_ignore_ascii_case(kind))
        };
        let named = self.types.iter().find(|(name, _)| is_it(name));
        let named = named.or_else(|| self.types.iter().find(|(name, _)| has_it(name)));
        named.map_or(self.default, |(_, lifetime)| *lifetime)
    }
}

/// Which replies are compressed on the fly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compress {
    /// Media types without parameters, in lower case, or `kind/*`; `None` is what is text.
    pub types: Option<Vec<String>>,
    /// Shortest reply that is. Default 1 KiB.
    pub min_bytes: usize,
    /// From 1, fast, to 9, small. Default 5.
    pub level: u32,
    /// Whether replies that are no files are. Default yes.
    pub programs: bool,
}

/// What a site and each of its rules may set; all levels apply, outer first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Fields changed on requests.
    pub request_headers: FieldEdits,
    /// Fields changed on replies.
    pub reply_headers: FieldEdits,
    /// How long clients and caches may keep replies; an inner level's takes the place of an outer's.
    pub expires: Option<Expires>,
    /// Clients let in; empty means everybody not denied.
    pub allow: Vec<IpNet>,
    /// Clients refused with 403; `deny` wins over `allow`.
    pub deny: Vec<IpNet>,
    /// Files that name others, by index into [`super::Model::denied`].
    pub deny_files: Vec<usize>,
    /// Basic authentication.
    pub auth: Option<Auth>,
    /// Variables for logs and programs, in order.
    pub env: Vec<Variable>,
    /// Sizes and counts in place of the process's; the innermost level that has one counts.
    pub caps: LevelCaps,
    /// Waits in place of the process's, likewise.
    pub timeouts: LevelTimeouts,
}

/// A variable for logs and programs, or one they do not get.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// What it holds; `None`: it is taken away.
    pub value: Option<Template>,
    /// Conditions, all of which must hold; none of them asks a map.
    pub conditions: Vec<Condition>,
}

/// `caps` of a site or a rule: what is `None` the level above says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LevelCaps {
    /// As [`Caps::body_bytes`](super::Caps::body_bytes).
    pub body_bytes: Option<u64>,
    /// As [`Caps::upstream_head_bytes`](super::Caps::upstream_head_bytes).
    pub upstream_head_bytes: Option<u64>,
    /// As [`Caps::requests_per_connection`](super::Caps::requests_per_connection).
    pub requests_per_connection: Option<u64>,
}

impl LevelCaps {
    pub(crate) const FIELDS: [Field<Self>; 3] = [
        ("body_bytes", |it| Maybe(&mut it.body_bytes)),
        ("upstream_head_bytes", |it| {
            Maybe(&mut it.upstream_head_bytes)
        }),
        ("requests_per_connection", |it| {
            Maybe(&mut it.requests_per_connection)
        }),
    ];
}

/// `timeouts` of a site or a rule, in milliseconds and greater than zero: what is `None` the level
/// above says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LevelTimeouts {
    /// As [`Timeouts::upstream_read_ms`](super::Timeouts::upstream_read_ms).
    pub upstream_read_ms: Option<u64>,
    /// As [`Timeouts::write_ms`](super::Timeouts::write_ms).
    pub write_ms: Option<u64>,
    /// As [`Timeouts::idle_ms`](super::Timeouts::idle_ms); `None` on a rule.
    pub idle_ms: Option<u64>,
}

impl LevelTimeouts {
    pub(crate) const FIELDS: [Field<Self>; 3] = [
        ("upstream_read", |it| Maybe(&mut it.upstream_read_ms)),
        ("write", |it| Maybe(&mut it.write_ms)),
        ("idle", |it| Maybe(&mut it.idle_ms)),
    ];
}

/// `[[sites.rules]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Name for logs; default `rule 3`.
    pub name: String,
    /// Whether that is its own, or tells its place: then it is another rule's once one is put above.
    pub is_named: bool,
    /// Conditions, all of which must hold.
    pub conditions: Vec<Condition>,
    /// What is asked for in the place of what was: the rules are tried again then.
    pub rewrites: Vec<Rewrite>,
    /// What answers; a rule without one adds its settings and goes on.
    pub handler: Option<Handler>,
    /// Where the records of requests go that it matches; `None` for where its site says. Without
    /// `$host`.
    pub log: Option<LogTarget>,
    /// What the rule adds.
    pub settings: Arc<Settings>,
    /// Which of its replies are compressed on the fly; `None` is as its site says.
    pub compress: Option<Arc<Compress>>,
    /// Limits that the requests it matches meet. Rules share equal ones.
    pub limits: Arc<[Limit]>,
    /// What the programs of this rule share. Never on a rule that forwards, or has no handler.
    pub cgroup: Option<Box<Cgroup>>,
    /// Scripts that the requests it matches meet; `rewrite` is empty. Rules share equal ones.
    pub scripts: Arc<PhaseScripts>,
}

impl Rule {
    /// The regular expression whose groups its texts may use: its own `path_regex`.
    #[must_use]
    pub fn groups_of(conditions: &[Condition]) -> Option<&str> {
        conditions.iter().find_map(|condition| match condition {
            Condition::PathRegex(source) => Some(source.as_str()),
            _ => None,
        })
    }

    /// Where the rule's limits stand, in a site of which `host` is the first host.
    #[must_use]
    pub fn limit_place<'a>(&'a self, host: &'a str) -> LimitPlace<'a> {
        match self.is_named {
            true => LimitPlace::Rule(host, &self.name),
            false => LimitPlace::UnnamedRule(host, &self.name),
        }
    }
}

impl Rule {
    /// Whether a script of it may say where a request is forwarded to, by this rule or by one that
    /// it is sent to.
    #[must_use]
    pub fn may_name_upstreams(&self) -> bool {
        let handler = self.handler.as_ref();
        self.scripts.may_name_upstreams() || handler.is_some_and(|it| it.script().is_some())
    }
}

impl Site {
    /// What it is called: its first host, or the directory whose rows make it.
    #[must_use]
    pub fn name(&self) -> String {
        if let Some(rows) = &self.rows {
            return rows.site_name();
        }
        self.hosts
            .first()
            .map_or_else(|| "*".to_owned(), HostPattern::to_string)
    }

    /// Whether its `.htaccess` files may say anything.
    #[must_use]
    pub fn obeys_files(&self) -> bool {
        let files = self.htaccess.as_ref();
        files.is_some_and(|files| files.obeys_files())
    }

    /// Whether programs are started for its rows.
    #[must_use]
    pub fn has_programs_of_rows(&self) -> bool {
        let mut handlers = self.rules.iter().filter_map(|rule| rule.handler.as_ref());
        self.rows.is_some() && handlers.any(Handler::starts_programs)
    }

    /// Whether each of its rows has a pool, once it is wanted.
    #[must_use]
    pub fn has_pools_of_rows(&self) -> bool {
        let mut handlers = self.rules.iter().filter_map(|rule| rule.handler.as_ref());
        handlers.any(Handler::has_pool_of_row)
    }

    /// Whether it or one of its rules has a script.
    #[must_use]
    pub fn has_scripts(&self) -> bool {
        let of_rule = |rule: &Rule| {
            let handler = rule.handler.as_ref();
            !rule.scripts.is_empty() || handler.is_some_and(|it| it.script().is_some())
        };
        !self.scripts.is_empty() || self.rules.iter().any(of_rule)
    }
}
