//! `[directories.NAME]`.

use std::path::PathBuf;

use super::server_url::{ServerOptions, has_password};
use super::table::Table;
use super::tops::{Tops, once_each};
use super::upstream;
use super::user::{Role, wrong_user};
use super::value::Value;
use super::values;
use crate::diagnostics::masked;
use crate::keys;
use crate::model::{
    AFTER_PARAMETER, DIRECTORIES_MAX, DatabaseServer, Directory, DirectoryChanges, DirectorySource,
    HOST_PARAMETER, Handler, Model, RowFormat, RowTrust, SINCE_PARAMETER, ServerAddress,
    pieces_of_query, with_placeholder,
};

/// Bytes of a name, a user, a database, a channel.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of a query.
const QUERY_BYTES_MAX: usize = 8 * 1024;

/// Takes in every `[directories.NAME]`.
pub(super) fn define_all(tops: &Tops<'_>) -> Vec<Directory> {
    let mut directories: Vec<Directory> = Vec::new();
    let members = tops.members("directories");
    for value in once_each(members, ("directory", "directories"), DIRECTORIES_MAX) {
        if value.file != 0 {
            value.report_help(
                "`directories` stand in the first file alone",
                "the gateway reads passwords for them, and sends these away: included files do not choose where",
            );
        }
        directories.push(directory(&value));
    }
    let names = directories.iter().map(|it| it.name.clone());
    *tops.context.directories.borrow_mut() = names.collect();
    directories
}

fn directory(value: &Value<'_>) -> Directory {
    let name = value.name;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(fits) {
        value.report(format!(
            "`{name}` cannot be a directory's name: letters, digits, `-` and `_` can"
        ));
    }
    let table = value.table(&keys::DIRECTORY);
    let is_table = table.is_some();
    let table = table.unwrap_or_else(|| Table::empty(value.context, &keys::DIRECTORY));
    let source = is_table.then(|| table.required("source")).flatten();
    let source = source.and_then(|value| source_of(&value));
    let asks = |key| table.get(key).filter(|_| source.is_some());
    if let Some(DirectorySource::Postgres(_)) = source {
        let queries = ["query", "all"].into_iter();
        queries.filter_map(asks).for_each(|it| refuse_asker(&it));
    }
    if let Some(DirectorySource::File(..)) = source {
        for name in ["query", "all", "changes"] {
            if let Some(stray) = table.get(name) {
                stray.report_help(
                    format!("`{name}` says nothing of a file"),
                    "leave it out: a file is read whole, and again when it has changed",
                );
            }
        }
    } else if source.is_some() {
        table.required("query");
    }
    Directory {
        name: name.to_owned(),
        query: asks("query")
            .and_then(|value| query(&value, HOST_PARAMETER, true))
            .unwrap_or_default(),
        all: asks("all").and_then(|value| query(&value, AFTER_PARAMETER, false)),
        changes: asks("changes").and_then(|value| changes(&value, source.as_ref()?)),
        source: source.unwrap_or(DirectorySource::Sqlite(PathBuf::new())),
        memcached: table
            .get("memcached")
            .and_then(|value| upstream::address(&value)),
        trust: trust(&table),
        keep_ms: table.duration("keep"),
        missing_ms: table.duration("missing"),
        stale_ms: table.duration("stale"),
        snapshot: table.get("snapshot").and_then(|value| {
            let path = values::path(&value)?;
            values::require_directory(&value, &path);
            Some(path)
        }),
        wait_ms: table.duration("wait"),
        questions: questions(&table),
        uid_min: u32::try_from(table.count("uid_min")).unwrap_or(u32::MAX),
        user: user(&table),
    }
}

fn trust(table: &Table<'_>) -> RowTrust {
    if let (Some(trust), None) = (table.get("trust"), table.get("memcached")) {
        trust.report_help(
            "`trust` says nothing without `memcached`",
            "name the memcached, or leave it out",
        );
    }
    table.choice("trust")
}

fn questions(table: &Table<'_>) -> (u32, u64) {
    let said = table.get("questions");
    let said = said.and_then(|value| value.rate(keys::limit::REQUESTS_MAX));
    let default = || (200, 1_000);
    said.map_or_else(default, |(count, per_ms)| (count as u32, per_ms))
}

fn user(table: &Table<'_>) -> Option<String> {
    let value = table.get("user")?;
    let name = value.text()?;
    if let Some((message, help)) = wrong_user(value.context.sources, Role::Files, name) {
        value.report_help(message, help);
    }
    Some(name.to_owned())
}

/// A query; `parameter` is the only one there may be, and has to be there where it is `required`.
fn query(value: &Value<'_>, parameter: &str, required: bool) -> Option<String> {
    let text = value.text()?;
    let placed = with_placeholder(text, parameter, "?");
    if text.trim().is_empty() || text.len() > QUERY_BYTES_MAX {
        value.report(format!(
            "`{}` must be a query of 1 to {QUERY_BYTES_MAX} bytes",
            value.name
        ));
    } else if let Some(stranger) = placed.stranger {
        value.report_help(
            format!("there is no `{stranger}` in `{}`", value.name),
            format!("its parameter is `{parameter}`"),
        );
    } else if placed.count == 0 && required {
        value.report_help(
            format!("`{}` does not ask for `{parameter}`", value.name),
            format!("its parameter stands outside of quotes: `… = {parameter}`"),
        );
    }
    Some(text.to_owned())
}

/// Refuses a bare `user` in a query of PostgreSQL: that is who asks, whatever columns there are, and would be the user
/// of every row.
fn refuse_asker(value: &Value<'_>) {
    let text = value.text().unwrap_or_default();
    let is_blank =
        |piece: &str| piece.trim().is_empty() || piece.starts_with("--") || piece.starts_with("/*");
    let mut before = "";
    for piece in pieces_of_query(text).filter(|piece| !is_blank(piece)) {
        let is_named = before == "." || before.eq_ignore_ascii_case("as");
        if piece.eq_ignore_ascii_case("user") && !is_named {
            return value.report_help(
                "`user` is PostgreSQL's word for who asks it, and no column",
                "write `\"user\"`, or call the column otherwise: `username AS user`",
            );
        }
        before = piece;
    }
}

fn changes(value: &Value<'_>, source: &DirectorySource) -> Option<DirectoryChanges> {
    let text = value.text()?;
    let Some(("LISTEN", channel)) = text.trim().split_once(' ') else {
        return query(value, SINCE_PARAMETER, true).map(DirectoryChanges::Query);
    };
    if !matches!(source, DirectorySource::Postgres(_)) {
        value.report_help(
            "`LISTEN` is for `postgres:` alone",
            "name a query, as in `SELECT id, host FROM changes WHERE id > $since ORDER BY id LIMIT 1000`",
        );
    }
    if !is_word(channel) {
        value.report(format!(
            "`{channel}` is no channel: letters, digits and `_` are one"
        ));
    }
    Some(DirectoryChanges::Listen(channel.to_owned()))
}

fn is_word(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

fn source_of(value: &Value<'_>) -> Option<DirectorySource> {
    let text = value.text()?;
    let path = |name: &str| {
        if name.is_empty() || name.contains('\0') {
            value.report("a file is to be named");
            return None;
        }
        Some(value.context.sources.resolve(value.file, name))
    };
    match text.split_once(':') {
        Some(("mysql", rest)) => server(value, rest, 3_306).map(DirectorySource::Mysql),
        Some(("postgres" | "postgresql", rest)) => {
            server(value, rest, 5_432).map(DirectorySource::Postgres)
        }
        Some(("sqlite", rest)) => path(rest).map(DirectorySource::Sqlite),
        Some(("file", rest)) => {
            let format = match rest.rsplit_once('.') {
                Some((_, "csv")) => RowFormat::Csv,
                Some((_, "jsonl")) => RowFormat::JsonLines,
                _ => {
                    value.report_help(
                        format!("`{rest}` is no file of rows"),
                        "its name ends in `.csv` or `.jsonl`",
                    );
                    return None;
                }
            };
            path(rest).map(|path| DirectorySource::File(path, format))
        }
        _ => {
            let help = "one begins with `mysql://`, `postgres://`, `sqlite:` or `file:`";
            value.report_help(format!("`{}` is no source", masked(text)), help);
            None
        }
    }
}

/// A PostgreSQL that minutes are sent to, named as a source of rows would be.
pub(super) fn archive(value: &Value<'_>) -> Option<DatabaseServer> {
    let text = value.text()?;
    let Some(("postgres" | "postgresql", rest)) = text.split_once(':') else {
        let help =
            "it looks like `postgres://nagaya@127.0.0.1/history?password_file=/etc/nagaya/db`";
        let message = format!("`{}` is no PostgreSQL", masked(text));
        value.report_help(message, help);
        return None;
    };
    let server = server(value, rest, 5_432)?;
    if is_open(&server) {
        let message = "the database is another machine and is not spoken to over TLS: whoever is on the way reads what is sent, and may have the password";
        value.warn_help(
            message,
            "add `tls=on` to it, or keep it to a network of your own",
        );
    }
    Some(server)
}

/// Whether a server is another machine and not spoken to by TLS.
fn is_open(server: &DatabaseServer) -> bool {
    let is_socket = matches!(server.address, ServerAddress::Unix(_));
    !server.tls && !is_socket && !is_here(&server.address)
}

/// `//USER@HOST:PORT/DATABASE?…`.
fn server(value: &Value<'_>, text: &str, port: u16) -> Option<DatabaseServer> {
    let (url, options) = text.split_once('?').unwrap_or((text, ""));
    let parts = url.strip_prefix("//").and_then(|url| {
        let (account, database) = url.split_once('/')?;
        let (user, authority) = account.rsplit_once('@')?;
        Some((user, authority, database))
    });
    let Some((user, authority, database)) = parts else {
        let help = "one looks like `mysql://nagaya@127.0.0.1/hosting`";
        let text = masked(value.text().unwrap_or_default());
        value.report_help(format!("`{text}` names no user, server and database"), help);
        return None;
    };
    if has_password(value, user, "/etc/nagaya/db") {
        return None;
    }
    for (what, name) in [("user", user), ("database", database)] {
        if !is_word(name) {
            value.report(format!("`{name}` is no {what}"));
            return None;
        }
    }
    let mut options = ServerOptions::of(value, options, "source");
    let address = || address(value, authority, port).map(|it| vec![it]);
    let addresses = options.addresses(value, (authority, "source"), address)?;
    Some(DatabaseServer {
        address: addresses.into_iter().next()?,
        user: user.to_owned(),
        password_file: options.password_file,
        database: database.to_owned(),
        tls: options.tls,
        authorities: options.authorities,
    })
}

pub(super) fn address(value: &Value<'_>, authority: &str, port: u16) -> Option<ServerAddress> {
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(host, _)| !host.starts_with('[') || host.ends_with(']'));
    let with_port = match has_port {
        true => authority.to_owned(),
        false => format!("{authority}:{port}"),
    };
    upstream::server_address(value, &with_port)
}

/// Reports what is wrong between directories, and warns of sources that sites' programs can reach.
pub(super) fn judge(tops: &Tops<'_>, model: &Model) {
    let members = tops.members("directories");
    let rules = || model.sites.iter().flat_map(|site| &site.rules);
    let has_programs = rules().any(|rule| {
        let handler = rule.handler.as_ref();
        handler.is_some_and(Handler::starts_programs)
    }) || !model.pools.is_empty();
    for (at, directory) in model.directories.iter().enumerate() {
        let named = |it: &&Value<'_>| it.name == directory.name;
        let Some(value) = members.iter().find(named) else {
            continue;
        };
        let before = model.directories.get(..at).unwrap_or_default();
        let same = |it: &&Directory| it.snapshot.is_some() && it.snapshot == directory.snapshot;
        if let Some(other) = before.iter().find(same) {
            let message = format!("directory `{}` has the same snapshot", other.name);
            value.report_help(message, "name a file for each");
        }
        if let Some(other) = before.iter().find(|it| it.user != directory.user) {
            let message = format!("directory `{}` names another `user`", other.name);
            value.report_help(
                message,
                "one process asks all of them: all name the same, or none",
            );
        }
        warn_of_open_source(value, directory);
        if has_programs {
            warn_of_reach(value, directory);
        }
    }
}

fn warn_of_open_source(value: &Value<'_>, directory: &Directory) {
    if directory.source.server().is_some_and(is_open) {
        let message = "the source is another machine and is not asked over TLS: whoever is on the way reads rows and writes them, and may have the password";
        value.warn_help(message, "add `tls=on` to the source");
    }
}

fn warn_of_reach(value: &Value<'_>, directory: &Directory) {
    let warn = |message: String, help: &str| value.warn_help(message, help);
    let open = directory
        .source
        .server()
        .filter(|it| it.password_file.is_none());
    if open.is_some_and(|server| is_here(&server.address)) {
        warn(
            "the source needs no password and listens here, where sites run programs".to_owned(),
            "give its user a password, and name it: `?password_file=…`",
        );
    }
    let memcached = directory.memcached.as_ref();
    if directory.trust == RowTrust::Unsigned && memcached.is_some_and(is_here) {
        warn(
            "sites run programs, and any of them can write the rows that `trust = \"unsigned\"` believes".to_owned(),
            "leave `trust` out, or let nobody else reach that memcached",
        );
    }
}

/// Whether a server is on this machine, as far as its address says.
pub(super) fn is_here(address: &ServerAddress) -> bool {
    match address {
        ServerAddress::Tcp(address) => address.ip().to_canonical().is_loopback(),
        ServerAddress::Name { host, .. } => host == "localhost",
        ServerAddress::Unix(_) => false,
    }
}
