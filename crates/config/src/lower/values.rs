//! Values that several sections share: paths, networks, hosts, globs, log targets, media types.

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::context::{Spot, problem, title_of};
use super::value::Value;
use crate::clients::canonical;
use crate::model::{Glob, HostPattern, LogTarget};
use crate::{glob, keys, units};

/// Largest `buffer_reply`.
const BUFFER_BYTES_MAX: u64 = 1 << 40;

/// A path, made absolute from the directory of its file.
pub(crate) fn path(value: &Value<'_>) -> Option<PathBuf> {
    let text = value.text()?;
    if text.is_empty() || text.contains('\0') {
        value.report(format!("`{}` must be a path", value.name));
        return None;
    }
    let path = value.context.sources.resolve(value.file, text);
    if path.to_str().is_none() {
        value.report("the directory of the configuration must have a name in UTF-8");
        return None;
    }
    Some(path)
}

/// Reports that the directory is missing in which `socket` is to be made.
pub(crate) fn require_directory(value: &Value<'_>, socket: &Path) {
    let directory = socket.parent();
    let why = directory.and_then(|directory| value.context.sources.directory_missing(directory));
    report_missing(value, socket, why);
}

/// As [`require_directory`], for a log.
fn require_log_directory(value: &Value<'_>, log: &Path) {
    let directory = log.parent();
    // What is filled in per host is known once it is written to.
    let is_template = |path: &Path| path.as_os_str().as_encoded_bytes().contains(&b'$');
    if directory.is_some_and(is_template) {
        return;
    }
    let missing = &value.context.sources.missing_for_logs;
    let why = directory.and_then(|directory| missing.get(directory));
    report_missing(value, log, why.map(String::as_str));
}

fn report_missing(value: &Value<'_>, file: &Path, why: Option<&str>) {
    if let (Some(directory), Some(why)) = (file.parent(), why) {
        value.report_help(
            format!("directory `{}`: {why}", directory.display()),
            "create it: logs and sockets are made, their directories are not",
        );
    }
}

/// Whether a text is printable ASCII without quotes and backslashes, as it stands in a header.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte) && !b"\"\\".contains(&byte))
}

/// A list of addresses and networks, or a single one.
pub(crate) fn networks(value: &Value<'_>) -> Vec<IpNet> {
    value.one_or_list().iter().filter_map(network).collect()
}

/// As [`networks`], with the word `all` for every client.
pub(crate) fn clients(value: &Value<'_>) -> Vec<IpNet> {
    if value.is_text() && value.text() == Some("all") {
        return [IpAddr::from([0; 4]), IpAddr::from([0; 16])]
            .iter()
            .filter_map(|address| IpNet::new(*address, 0).ok())
            .collect();
    }
    networks(value)
}

/// An address or a network.
pub(crate) fn network(value: &Value<'_>) -> Option<IpNet> {
    let text = value.text()?;
    match parse_network(text) {
        Ok(network) => return Some(canonical(network)),
        Err(NoNetwork::Syntax) => {
            let message = format!("`{text}` is neither an address nor a network");
            let help = match text {
                "all" => {
                    "everybody is `\"all\"` by itself, where that may stand, and not in a list"
                }
                _ => "an address such as `192.0.2.1` or a network such as `10.0.0.0/8`",
            };
            value.report_help(message, help);
        }
        Err(NoNetwork::Bits(meant)) => {
            let message = format!("`{text}` has bits beyond its prefix");
            let finding = problem(value.spot(), message);
            value
                .context
                .report(finding.meant(Some(&meant.to_string())));
        }
    }
    None
}

/// Why a text is no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoNetwork {
    /// It is neither an address nor a network.
    Syntax,
    /// It has bits beyond its prefix; without them it is this.
    Bits(IpNet),
}

/// An address, or a network without bits beyond its prefix.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, NoNetwork> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let network = text.parse::<IpNet>().map_err(|_| NoNetwork::Syntax)?;
    match network.trunc() {
        fine if fine == network => Ok(network),
        fine => Err(NoNetwork::Bits(fine)),
    }
}

/// A glob.
pub(crate) fn glob(value: &Value<'_>) -> Option<Glob> {
    let text = value.text()?;
    let checked = if text.is_empty() {
        Err("it is empty and matches nothing".to_owned())
    } else {
        glob::check(text)
    };
    match checked {
        Ok(()) => Some(Glob(text.to_owned())),
        Err(why) => {
            value.report(format!("bad glob in `{}`: {why}", value.name));
            None
        }
    }
}

/// A media type as it stands in `Content-Type`.
pub(crate) fn media_type(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    let named = essence
        .split_once('/')
        .is_some_and(|(kind, form)| super::fields::is_token(kind) && super::fields::is_token(form));
    if !named || !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        value.report_help(
            format!("`{text}` is no media type"),
            "one looks like `text/html; charset=utf-8`",
        );
        return None;
    }
    Some(text.to_owned())
}

/// Where access records go.
pub(crate) fn log_target(value: &Value<'_>) -> Option<LogTarget> {
    let text = value.text()?;
    match text {
        "" => return Some(LogTarget::Off),
        "-" => return Some(LogTarget::Stdout),
        _ => {}
    }
    let mut fine = true;
    for (at, _) in text.match_indices('$') {
        let behind = text.get(at + 1..).unwrap_or_default();
        let end = behind
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(behind.len());
        let name = behind.get(..end).unwrap_or_default();
        if !["host", "site"].contains(&name) {
            let spot = value.part(at..at + 1 + end);
            let finding = problem(
                spot,
                format!("`${name}` is unknown in the name of a log file"),
            );
            let meant = keys::nearest(name, ["host", "site"].into_iter());
            let meant = meant.map(|meant| format!("${meant}"));
            value.context.report(match meant {
                Some(meant) => finding.meant(Some(&meant)),
                None => finding.help("`$host` and `$site` are known"),
            });
            fine = false;
        }
    }
    let path = path(value)?;
    require_log_directory(value, &path);
    let path = path.to_str().filter(|_| fine)?;
    Some(LogTarget::File(path.to_owned()))
}

/// As [`log_target`], for a log that all hosts of a site have in common.
pub(crate) fn log_of_site(value: &Value<'_>) -> Option<LogTarget> {
    let target = log_target(value)?;
    if matches!(&target, LogTarget::File(path) if path.contains("$host")) {
        value.report_help("`$host` cannot stand in this log's name", "`$site` can");
    }
    Some(target)
}

/// Who may do what with a file or a socket, in octal digits.
pub(crate) fn mode(text: &str) -> Option<u32> {
    let is_octal = text.bytes().all(|byte| byte.is_ascii_digit()) && (3..=4).contains(&text.len());
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| is_octal && *mode <= 0o777)
}

/// An entry of `hosts`.
pub(crate) fn host_pattern(value: &Value<'_>) -> Option<HostPattern> {
    let text = value.text()?;
    if text == "*" {
        return Some(HostPattern::Any);
    }
    match text.strip_prefix("*.") {
        Some(below) => host(value, below).map(HostPattern::Below),
        None => host(value, text).map(HostPattern::Exact),
    }
}

/// A host as requests are compared with it: lower case, no port, no trailing dot.
pub(crate) fn host(value: &Value<'_>, text: &str) -> Option<String> {
    let refuse = |message: String, help: &str| {
        value.report_help(message, help);
        None
    };
    if let Some(inner) = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return match inner.parse::<Ipv6Addr>() {
            Ok(address) => Some(format!("[{address}]")),
            Err(_) => refuse(
                format!("`{text}` is no IPv6 address"),
                "one looks like `[2001:db8::1]`",
            ),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return refuse(
            format!("an IPv6 address stands in brackets: `[{text}]`"),
            "as it does in a URL",
        );
    }
    if text.contains("://") || text.contains('/') {
        return refuse(
            format!("`{text}` is not a host alone"),
            "write the host, without scheme and path",
        );
    }
    if text.contains(':') {
        return refuse(
            format!("host `{text}` has a port"),
            "leave the port out: a site answers on every listener",
        );
    }
    if !text.is_ascii() {
        return refuse(
            format!("host `{text}` is not ASCII"),
            "write its `xn--` form, as clients send it",
        );
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label_fits = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if name.len() > 253 || !name.split('.').all(label_fits) {
        return refuse(
            format!("`{text}` is no host"),
            "labels are letters, digits and `-`, with dots between them; `*` stands for whole labels in front",
        );
    }
    Some(name)
}

/// The directory that a text names, and its index.
pub(super) fn directory_named(value: &Value<'_>) -> Option<(usize, String)> {
    let name = value.text()?;
    let known = value.context.directories.borrow();
    let found = known.iter().position(|known| known == name);
    if found.is_none() {
        let finding = problem(value.spot(), format!("there is no directory `{name}`"));
        let finding = match keys::nearest(name, known.iter().map(String::as_str)) {
            Some(meant) => finding.meant(Some(meant)),
            None => finding.help(format!("describe it: `{}`", title_of("directories", name))),
        };
        value.context.report(finding.absence());
    }
    Some((found?, name.to_owned()))
}

/// The index of the map of this name; what names it stands at `spot`.
pub(crate) fn map_named(value: &Value<'_>, name: &str, spot: Spot) -> Option<usize> {
    let known = value.context.maps.borrow();
    let found = known.iter().position(|known| known == name);
    if found.is_none() {
        let finding = problem(spot, format!("there is no map `{name}`"));
        let finding = match keys::nearest(name, known.iter().map(String::as_str)) {
            Some(meant) => finding.meant(Some(meant)),
            None => finding.help(format!("describe it: `{}`", title_of("maps", name))),
        };
        value.context.report(finding.absence());
    }
    found
}

/// `false`, or how much.
pub(crate) fn buffer_reply(value: &Value<'_>) -> Option<u64> {
    match value.as_flag() {
        Some(false) => Some(0),
        Some(true) => {
            let help = format!("as in `buffer_reply = {:?}`", units::size(8 << 20));
            value.report_help("`buffer_reply` must say how much", help);
            None
        }
        None => value.size(1, BUFFER_BYTES_MAX),
    }
}
