//! Digests of a configuration by part, so that machines that are to have the same can tell where they differ.
//!
//! The idea: what is printed with every default written out is told apart by its lines, and what is a machine's own is left
//! out: workers, listeners, the control socket, its name in the fleet, where it keeps what it changes itself. Left out: what is in the files that it names.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::dump;
use crate::model::Model;

/// Bytes of a digest that are told: it tells who differs, and keeps nobody from anything.
const BYTES: usize = 6;

/// The digest of each part: `limits`, `sites`, `tls`, and each other key or table of the first level by its name.
#[must_use]
pub fn digests(model: &Model) -> BTreeMap<String, String> {
    let mut hashes = BTreeMap::<String, Sha256>::new();
    let text = dump(model);
    // Where a line stands: the site by its hosts, the table in it by its place.
    let (mut title, mut site, mut place) = ("", "", 0_u32);
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.starts_with('[') {
            true if line.starts_with("[[sites.") || line.starts_with("[sites.") => {
                (title, place) = (line, place + 1);
            }
            true => (title, site, place) = (line, "", 0),
            false if title == "[[sites]]" && line.starts_with("hosts = ") => site = line,
            false => {}
        }
        if let Some(part) = part_of(title, line) {
            let hash = hashes.entry(part.to_owned()).or_default();
            hash.update(format!("{site}\n{place}\n{title}\n{line}\n"));
        }
    }
    let told = |(part, hash): (String, Sha256)| (part, shown(hash));
    hashes.into_iter().map(told).collect()
}

/// The digest of a text.
#[must_use]
pub fn digest(text: &str) -> String {
    shown(Sha256::new_with_prefix(text))
}

fn shown(hash: Sha256) -> String {
    let bytes = hash.finalize();
    bytes
        .iter()
        .take(BYTES)
        .map(|it| format!("{it:02x}"))
        .collect()
}

/// The part that a line below a title belongs to; none where it is a machine's own.
fn part_of<'a>(title: &'a str, line: &'a str) -> Option<&'a str> {
    const SITES: [&str; 7] = [
        "[[sites",
        "[sites.",
        "[upstreams.",
        "[maps.",
        "[pools]",
        "[php.",
        "[directories.",
    ];
    let key = line.split(" = ").next().unwrap_or_default();
    let is_below = |titles: &[&str]| titles.iter().any(|it| title.starts_with(it));
    match (title, key) {
        ("", "workers" | "limits_overrides" | "last_good")
        | ("[[listen]]" | "[control]", _)
        | ("[fleet]", "machine") => None,
        (_, "limits") => Some("limits"),
        _ if line.starts_with('#') || is_below(&["[tenants.", "[plans."]) => Some("limits"),
        (_, "tls") => Some("tls"),
        _ if is_below(&["[tls]", "[acme."]) => Some("tls"),
        _ if is_below(&SITES) => Some("sites"),
        ("", _) => Some(key),
        _ => title.trim_start_matches('[').split(['.', ']']).next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, load};

    const TEXT: &str = r#"
workers = 2
[[listen]]
address = "127.0.0.1:8080"
[fleet]
store = "redis://127.0.0.1/0"
machine = "web1"
[[sites]]
hosts = ["a.test"]
limits = [{ concurrent = 5, scope = "fleet" }]
rules = [{ match = { path = "/x" }, handler = { respond = { body = "x" } } }]
"#;

    fn differing(changes: &[(&str, &str)]) -> Vec<String> {
        let of = |text: &str| {
            let sources = Sources::from_text("nagaya.toml", text);
            digests(&load(&sources).expect("a configuration"))
        };
        let mut other = TEXT.to_owned();
        for (from, to) in changes {
            assert!(other.contains(from), "{from}");
            other = other.replace(from, to);
        }
        let (one, other) = (of(TEXT), of(&other));
        let mut parts: Vec<_> = one.keys().chain(other.keys()).cloned().collect();
        parts.retain(|part| one.get(part) != other.get(part));
        parts.sort();
        parts.dedup();
        parts
    }

    #[test]
    fn what_differs_is_told_by_part_and_what_is_a_machines_own_is_not() {
        let own = [
            ("workers = 2", "workers = 1"),
            ("127.0.0.1:8080", "127.0.0.2:9090"),
            ("machine = \"web1\"", "machine = \"web2\""),
            ("[fleet]", "[control]\nsocket = \"/tmp/control\"\n[fleet]"),
            (
                "workers",
                "limits_overrides = \"/tmp/overrides.toml\"\nworkers",
            ),
        ];
        assert!(differing(&own).is_empty(), "{:?}", differing(&own));
        assert_eq!(
            differing(&[("concurrent = 5", "concurrent = 6")]),
            ["limits"]
        );
        assert_eq!(differing(&[("\"x\"", "\"y\"")]), ["sites"]);
        assert_eq!(
            differing(&[("redis://127.0.0.1/0", "redis://127.0.0.1/1")]),
            ["fleet"]
        );
        let log = ("[[sites]]", "[log]\nlevel = \"warn\"\n[[sites]]");
        assert_eq!(differing(&[log]), ["log"]);
        let user = (
            "workers = 2",
            "workers = 2\ntrusted_proxies = [\"10.0.0.0/8\"]",
        );
        assert_eq!(differing(&[user]), ["trusted_proxies"]);
        let versions = ("[fleet]", "[tls]\nversions = [\"1.3\"]\n[fleet]");
        assert_eq!(differing(&[versions]), ["tls"]);
        let tenant = (
            "[[sites]]",
            "[tenants.a]\nweight = 3\n[[sites]]\ntenant = \"a\"",
        );
        assert_eq!(differing(&[tenant]), ["limits", "sites"]);
    }
}
