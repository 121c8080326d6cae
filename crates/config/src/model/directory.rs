//! `[directories.NAME]`: tables of sites, and where they are kept.

use std::path::PathBuf;

use super::upstream::ServerAddress;

/// Directories there may be.
pub const DIRECTORIES_MAX: usize = 100;

/// `[directories.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Its name.
    pub name: String,
    /// Where the table is.
    pub source: DirectorySource,
    /// What is asked for one host, with [`HOST_PARAMETER`]; empty where the source is a file.
    pub query: String,
    /// What lists everything, perhaps with [`AFTER_PARAMETER`].
    pub all: Option<String>,
    /// How changes are heard of.
    pub changes: Option<DirectoryChanges>,
    /// The memcached that is asked first.
    pub memcached: Option<ServerAddress>,
    /// Which of its rows are believed.
    pub trust: RowTrust,
    /// How long a row is fresh. Default 60 s.
    pub keep_ms: u64,
    /// How long it is believed that a host has none. Default 10 s.
    pub missing_ms: u64,
    /// How long a row serves that cannot be asked for again. Default 7 days.
    pub stale_ms: u64,
    /// The file that outlives the process.
    pub snapshot: Option<PathBuf>,
    /// How long a request waits for a row. Default 1 s.
    pub wait_ms: u64,
    /// Questions, and the milliseconds in which so many may be asked. Default 200/s.
    pub questions: (u32, u64),
    /// The least uid that a row's `user` may have. Default 1000.
    pub uid_min: u32,
    /// Whom the process becomes; `None` is whoever there is for it. All directories say the same.
    pub user: Option<String>,
}

/// Stands in a query for the host that is asked for.
pub const HOST_PARAMETER: &str = "$host";
/// Stands in `all` for the last host of the page before.
pub const AFTER_PARAMETER: &str = "$after";
/// Stands in `changes` for the highest number that it gave.
pub const SINCE_PARAMETER: &str = "$since";

/// Where a table is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectorySource {
    /// MySQL or MariaDB.
    Mysql(DatabaseServer),
    /// PostgreSQL.
    Postgres(DatabaseServer),
    /// A database of SQLite.
    Sqlite(PathBuf),
    /// A file that is read whole.
    File(PathBuf, RowFormat),
}

/// A server of databases, and who logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseServer {
    /// Where it listens.
    pub address: ServerAddress,
    /// Who logs in.
    pub user: String,
    /// The file whose first line is the password; the supervisor reads it.
    pub password_file: Option<PathBuf>,
    /// The database.
    pub database: String,
    /// Whether it is spoken to by TLS alone.
    pub tls: bool,
    /// PEM file of the authorities that its certificate may come from; `None`: the machine's.
    pub authorities: Option<PathBuf>,
}

/// How a file of rows is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFormat {
    /// RFC 4180; the first line names the columns.
    Csv,
    /// An object a line.
    JsonLines,
}

/// How changes are heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryChanges {
    /// A query asked each second, with [`SINCE_PARAMETER`]: a growing number, and the host.
    Query(String),
    /// A channel of PostgreSQL whose messages are hosts.
    Listen(String),
}

/// Which rows from memcached are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowTrust {
    /// Those that the directory has signed.
    Signed,
    /// All.
    Unsigned,
}

impl DirectorySource {
    /// As `source` says it.
    #[must_use]
    pub fn url(&self) -> String {
        let (scheme, server) = match self {
            DirectorySource::Mysql(server) => ("mysql", server),
            DirectorySource::Postgres(server) => ("postgres", server),
            DirectorySource::Sqlite(path) => return format!("sqlite:{}", path.display()),
            DirectorySource::File(path, _) => return format!("file:{}", path.display()),
        };
        server.url(scheme)
    }

    /// Where it is asked over the network or a socket.
    #[must_use]
    pub fn server(&self) -> Option<&DatabaseServer> {
        match self {
            DirectorySource::Mysql(server) | DirectorySource::Postgres(server) => Some(server),
            DirectorySource::Sqlite(_) | DirectorySource::File(..) => None,
        }
    }
}

impl DatabaseServer {
    /// As a key says it, for a database of this kind.
    #[must_use]
    pub fn url(&self, scheme: &str) -> String {
        let mut url = format!("{scheme}://{}@", self.user);
        let mut options = Vec::new();
        match &self.address {
            ServerAddress::Unix(path) => options.push(format!("socket={}", path.display())),
            address => url.push_str(&address.to_string()),
        }
        url.push_str(&format!("/{}", self.database));
        let files = (&self.password_file, &self.authorities, self.tls);
        add_options(&mut url, options, files);
        url
    }
}

/// Ends a URL with these options, the file of the password, that of authorities, and whether TLS is spoken.
pub(super) fn add_options(
    url: &mut String,
    mut options: Vec<String>,
    (password, authorities, tls): (&Option<PathBuf>, &Option<PathBuf>, bool),
) {
    for (key, file) in [("password_file", password), ("ca", authorities)] {
        options.extend(file.iter().map(|file| format!("{key}={}", file.display())));
    }
    if tls {
        options.push("tls=on".to_owned());
    }
    if !options.is_empty() {
        url.push_str(&format!("?{}", options.join("&")));
    }
}

/// A query with a placeholder of its database for a parameter (`$host`), how often that stood there, and the first
/// other name with a `$`. What stands in quotes and comments is left as it is.
#[must_use]
pub fn with_placeholder(query: &str, parameter: &str, placeholder: &str) -> PlacedQuery {
    let mut placed = PlacedQuery::default();
    for piece in pieces_of_query(query) {
        if piece == parameter {
            placed.count += 1;
            placed.text.push_str(placeholder);
            continue;
        }
        if piece.starts_with('$') && placed.stranger.is_none() {
            placed.stranger = Some(piece.to_owned());
        }
        placed.text.push_str(piece);
    }
    placed
}

/// The pieces of a query, which are all of it: what stands between quotes and with them, comments, words, names with a `$`, and
/// single characters.
pub fn pieces_of_query(query: &str) -> impl Iterator<Item = &str> {
    let (mut rest, mut before) = (query, "");
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = match first {
            '\'' if before.eq_ignore_ascii_case("e") => escaped_end(rest),
            '\'' | '"' | '`' => end_of(rest, 1, first),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => {
                let end = rest.get(2..).and_then(|rest| rest.find("*/"));
                end.map_or(rest.len(), |end| end + 4)
            }
            '$' => name_end(rest),
            it if is_of_word(it) => rest.find(|it| !is_of_word(it)).unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let (piece, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        (rest, before) = (after, piece);
        Some(piece)
    })
}

fn is_of_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

/// Where a text of PostgreSQL with escapes ends (`E'…'`).
fn escaped_end(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, it)) = characters.next() {
        let is_doubled = it == '\'' && characters.peek().is_some_and(|(_, next)| *next == '\'');
        match it {
            _ if is_doubled => drop(characters.next()),
            '\\' => drop(characters.next()),
            '\'' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// What [`with_placeholder`] makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacedQuery {
    /// The query as its database takes it.
    pub text: String,
    /// How often the parameter stood there.
    pub count: usize,
    /// The first name with a `$` that is not the parameter.
    pub stranger: Option<String>,
}

fn end_of(text: &str, from: usize, quote: char) -> usize {
    let closing = text.get(from..).and_then(|rest| rest.find(quote));
    closing.map_or(text.len(), |at| from + at + quote.len_utf8())
}

fn name_end(text: &str) -> usize {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    1 + text.bytes().skip(1).take_while(is_name).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_placed_outside_of_quotes_and_comments_alone() {
        for (query, placed, count, stranger) in [
            ("a = $host", "a = ?", 1, None),
            ("a = $host OR b=$host", "a = ? OR b=?", 2, None),
            ("a = '$host' -- $host\n", "a = '$host' -- $host\n", 0, None),
            ("'it''s' /* $x */ $host", "'it''s' /* $x */ ?", 1, None),
            (
                "`$a` \"$b\" $host2",
                "`$a` \"$b\" $host2",
                0,
                Some("$host2"),
            ),
            ("'open $host", "'open $host", 0, None),
            ("/* open $host", "/* open $host", 0, None),
            ("é$host$1", "é?$1", 1, Some("$1")),
            ("$", "$", 0, Some("$")),
        ] {
            let made = with_placeholder(query, HOST_PARAMETER, "?");
            assert_eq!((&*made.text, made.count), (placed, count), "{query}");
            assert_eq!(made.stranger.as_deref(), stranger, "{query}");
        }
    }
}
