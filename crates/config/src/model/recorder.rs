//! What is recorded of requests, and by whom.

use std::path::PathBuf;

use ipnet::IpNet;

use super::directory::DatabaseServer;

/// `[recorder]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorder {
    /// Where figures are kept.
    pub directory: PathBuf,
    /// How long a visitor is known as the same.
    pub salt: SaltTime,
    /// Clients of which nothing is recorded.
    pub exclude: Vec<IpNet>,
    /// Name of a cookie with which nothing is recorded.
    pub exclude_cookie: Option<String>,
    /// Whether nothing is recorded of who asks not to be tracked.
    pub do_not_track: bool,
    /// Keys of queries that say what was searched for.
    pub searches: Vec<String>,
    /// Pairs of a text that referrers may contain, in lower case, and the name they count under then.
    pub groups: Vec<(String, String)>,
    /// A file that says which country an address is in (MMDB).
    pub countries: Option<PathBuf>,
    /// Whom the recorder becomes; `None` is whoever there is for it.
    pub user: Option<String>,
    /// How much it gives way, 0 to 19.
    pub nice: i32,
    /// The PostgreSQL that minutes and incidents are sent to.
    pub send: Option<DatabaseServer>,
}

/// How long a salt holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SaltTime {
    Day,
    Week,
    Month,
}

impl Recorder {
    /// Keys of searches where none are named.
    pub fn usual_searches() -> Vec<String> {
        ["q", "s", "query", "search"].map(str::to_owned).into()
    }
}

impl SaltTime {
    /// Its word.
    pub fn word(self) -> &'static str {
        crate::lower::names::Named::name(self)
    }
}
