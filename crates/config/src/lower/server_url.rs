//! What URLs of sources and stores have in common: nobody's password, and what stands behind `?`.

use std::path::PathBuf;

use super::upstream;
use super::value::Value;
use crate::model::ServerAddress;

/// What stands behind `?`.
#[derive(Default)]
pub(super) struct ServerOptions {
    pub(super) password_file: Option<PathBuf>,
    socket: Option<ServerAddress>,
    pub(super) tls: bool,
    pub(super) authorities: Option<PathBuf>,
    /// What Sentinels call the store.
    pub(super) sentinel: Option<String>,
}

impl ServerOptions {
    /// Reads `key=value&…` of a `what`; only stores have Sentinels.
    pub(super) fn of(value: &Value<'_>, text: &str, what: &str) -> ServerOptions {
        let mut options = ServerOptions::default();
        let is_store = what == "store";
        for option in text.split('&').filter(|option| !option.is_empty()) {
            let (key, said) = option.split_once('=').unwrap_or((option, ""));
            let file = || value.context.sources.resolve(value.file, said);
            match (key, said) {
                ("password_file" | "socket" | "ca", "") => {
                    value.report(format!("`{key}` names a file"));
                }
                ("password_file", _) => options.password_file = Some(file()),
                ("socket", _) => options.socket = upstream::unix(value, &format!("unix:{said}")),
                ("ca", _) => options.authorities = Some(file()),
                ("tls", "on" | "off") => options.tls = said == "on",
                ("tls", _) => value.report("`tls` is `on` or `off`"),
                ("sentinel", "") if is_store => value.report_help(
                    "`sentinel` names what Sentinels watch",
                    "as their configuration says it: `sentinel monitor NAME …`",
                ),
                ("sentinel", name) if is_store => options.sentinel = Some(name.to_owned()),
                _ => value.report_help(
                    format!("`{key}` is no option of a {what}"),
                    match is_store {
                        true => "these are `password_file`, `socket`, `tls`, `ca` and `sentinel`",
                        false => "these are `password_file`, `socket`, `tls` and `ca`",
                    },
                ),
            }
        }
        if options.authorities.is_some() && !options.tls {
            value.report_help("`ca` says nothing without TLS", "add `tls=on`");
        }
        if options.socket.is_some() && (options.tls || options.sentinel.is_some()) {
            let help = "leave `socket` out, or the others";
            value.report_help("`tls` and `sentinel` say nothing of a socket", help);
        }
        options
    }

    /// Where it listens: at its socket, or at the addresses that are made of what stands before the `/`.
    pub(super) fn addresses(
        &mut self,
        value: &Value<'_>,
        (authority, what): (&str, &str),
        addresses: impl FnOnce() -> Option<Vec<ServerAddress>>,
    ) -> Option<Vec<ServerAddress>> {
        match self.socket.take() {
            Some(socket) if authority.is_empty() => Some(vec![socket]),
            Some(_) => {
                value.report(format!("a {what} has an address or a socket, not both"));
                None
            }
            None => addresses(),
        }
    }
}

/// Whether somebody's name has a password behind it, which is reported.
pub(super) fn has_password(value: &Value<'_>, user: &str, file: &str) -> bool {
    let has = user.contains(':');
    if has {
        value.report_help(
            "a password does not stand in the configuration",
            format!("name a file that has it: `?password_file={file}`"),
        );
    }
    has
}
