//! Pools: processes that run a site's programs and stay between requests.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::upstream::Protocol;

/// How the id of a row's pool begins, and its bytes.
const ROW_ID_PREFIX: &str = "row-";
const ROW_ID_BYTES: usize = 16;

/// `[pools]`: what all pools of the machine share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pools {
    /// Where their sockets, sessions and caches are, absolute.
    pub directory: PathBuf,
    /// Pools that start at once. Default half the cores, at least 2.
    pub starting: u32,
    /// How long a pool without work is kept. Default 10 min.
    pub idle_ms: u64,
    /// Paths that every pool sees beside those it needs, absolute.
    pub see: Vec<PathBuf>,
    /// Most bytes that compiled files of a pool keep of the disk. Default 512 MiB.
    pub cache_bytes: u64,
    /// `HOST:PORT` of the server that takes mail for `nagaya sendmail`. Default `127.0.0.1:25`.
    pub mail: String,
}

/// `[php."8.2"]`: a PHP that pools run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Php {
    /// What sites call it.
    pub version: String,
    /// Its `php-fpm`, absolute.
    pub program: PathBuf,
    /// Settings of the whole process, as `opcache.memory_consumption`: names of letters, digits, `_`,
    /// `.` and `-`, sorted, each once; values without control characters, `"`, `\` and `${`.
    pub ini: Vec<(String, String)>,
}

/// The processes of one user of one tenant, with one program and one set of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Names its socket, its control group and its directory: lower-case letters, digits and `-`,
    /// at most 64. It tells whose pool it is, not with which settings: where these change, it stays,
    /// and a second master takes the first one's place.
    pub id: String,
    /// In messages: `php 8.2 of example.jp`.
    pub name: String,
    /// The tenant.
    pub tenant: String,
    /// Its index in [`super::Model::tenants`], where it has an entry.
    pub tenant_index: Option<usize>,
    /// The user it runs as; `None` is who the gateway runs as, which is not root.
    pub user: Option<String>,
    /// The sites that it serves, by index in [`super::Model::sites`], rising; at least one.
    pub sites: Vec<usize>,
    /// The one upstream that leads to its socket, by index in [`super::Model::upstreams`].
    pub upstream: usize,
    /// Its socket, below [`Pools::directory`].
    pub socket: PathBuf,
    /// What runs in it.
    pub program: PoolProgram,
    /// What is shut away from it.
    pub isolate: Isolate,
    /// Whether it is started with the gateway and never ended for want of work.
    pub is_kept: bool,
}

/// What runs in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolProgram {
    /// A master of php-fpm with its children.
    Php(PhpPool),
    /// An application that listens.
    App(AppPool),
}

/// What a master of php-fpm is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhpPool {
    /// Index into [`super::Model::php`].
    pub php: usize,
    /// Requests at once: children. Default 8.
    pub processes: u32,
    /// Requests that a child serves. Default 4,000.
    pub requests: u32,
    /// How long a request may take. Default 5 min.
    pub time_ms: u64,
    /// Settings that programs cannot change, spelt as [`Php::ini`]. They stand in place of what the
    /// gateway sets by itself; those of `opcache.` count for the whole process.
    pub admin: Vec<(String, String)>,
}

/// `pool` of a site: what its pools are like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitePool {
    /// The PHP of its rules with `php`; `None` where it has none. A site of rows may name a column.
    pub php: Option<String>,
    /// As [`PhpPool::processes`].
    pub processes: u32,
    /// As [`PhpPool::requests`].
    pub requests: u32,
    /// As [`PhpPool::time_ms`].
    pub time_ms: u64,
    /// As [`PhpPool::admin`].
    pub admin: Vec<(String, String)>,
    /// Whose its pools are. Default: the user's, and the site's own where it has a `cgroup`.
    pub share: Share,
    /// As [`Pool::isolate`].
    pub isolate: Isolate,
    /// As [`Pool::is_kept`].
    pub is_kept: bool,
    /// Whether browsers that open a page while it starts get one that loads itself again. Default no.
    pub waiting_page: bool,
}

/// `pool` of a plan: what it says of pools with PHP, as [`SitePool`] does of a site's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanPool {
    /// Children.
    pub processes: Option<u32>,
    /// Pages of a child.
    pub requests: Option<u32>,
    /// How long a page may take.
    pub time_ms: Option<u64>,
}

/// What names the pool of a row: whose it is and what runs there, in words. It begins as no other pool's id does, and
/// stands for these words alone.
#[must_use]
pub fn row_pool_id(words: &[&str]) -> String {
    let mut hash = Sha256::new();
    for word in words {
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word.as_bytes());
    }
    let digits = hash.finalize();
    let digits = digits.iter().take(ROW_ID_BYTES);
    digits.fold(ROW_ID_PREFIX.to_owned(), |id, byte| {
        format!("{id}{byte:02x}")
    })
}

/// Whether an id is that of a row's pool.
#[must_use]
pub fn is_row_pool_id(id: &str) -> bool {
    let digits = id.strip_prefix(ROW_ID_PREFIX);
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.is_some_and(|it| it.len() == 2 * ROW_ID_BYTES && it.bytes().all(is_digit))
}

impl SitePool {
    /// The column of the row that says which PHP it has, where one does.
    #[must_use]
    pub fn php_column(&self) -> Option<&str> {
        let said = self.php.as_deref()?;
        let braced = said.strip_prefix("${row.");
        let braced = braced.and_then(|name| name.strip_suffix('}'));
        braced.or_else(|| said.strip_prefix("$row."))
    }
}

/// Who shares a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All sites of the same tenant and user whose settings are the same.
    User,
    /// Nobody.
    Site,
}

/// `handler = { app = { … } }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppPool {
    /// Program and arguments; `$socket` in them is the socket's path.
    pub command: Vec<String>,
    /// Where it starts, absolute.
    pub directory: PathBuf,
    /// Variables beside the usual ones.
    pub env: Vec<(String, String)>,
    /// Processes that listen. Default 1.
    pub instances: u32,
    /// How long it may take to listen. Default 30 s.
    pub start_ms: u64,
    /// How long it may take to end. Default 10 s.
    pub stop_ms: u64,
    /// What it speaks. Default HTTP.
    pub protocol: Protocol,
    /// A path that it answers with less than 500 once it is ready; `None`: it is as soon as it
    /// accepts a connection. HTTP alone.
    pub ready: Option<String>,
}

/// What is shut away from a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolate {
    /// It sees its user's home and the roots of its sites, and of the machine what it needs.
    Home,
    /// It sees what its user may see.
    None,
}
