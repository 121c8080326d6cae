//! Digests of a configuration by part, so that machines that are to have the same can tell where they differ.
//!
//! The idea: what is printed with every default written out is told apart by its lines, and what is a machine's own is left
//! out: workers, listeners, the control socket, its name in the fleet, where it keeps what it changes itself. Left out: what is in the files that it names.

use sha2::{Digest, Sha256};

use crate::dump;
use crate::model::Model;

/// The parts there are.
pub const DIGEST_PARTS: [&str; 4] = ["limits", "sites", "tls", "rest"];
/// Bytes of a digest that are told: it tells who differs, and keeps nobody from anything.
const BYTES: usize = 6;

/// The digest of each part.
#[must_use]
pub fn digests(model: &Model) -> [(&'static str, String); DIGEST_PARTS.len()] {
    let mut hashes = DIGEST_PARTS.map(|_| Sha256::new());
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
        let hash = part_of(title, line).and_then(|part| hashes.get_mut(part));
        if let Some(hash) = hash {
            hash.update(format!("{site}\n{place}\n{title}\n{line}\n"));
        }
    }
    let mut hashes = hashes.into_iter();
    DIGEST_PARTS.map(|part| {
        let hash = hashes.next().map(Digest::finalize);
        let bytes = hash.iter().flatten().take(BYTES);
        (part, bytes.map(|byte| format!("{byte:02x}")).collect())
    })
}

/// The part that a line below a title belongs to; none where it is a machine's own.
fn part_of(title: &str, line: &str) -> Option<usize> {
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
        (_, "limits") => Some(0),
        _ if line.starts_with('#') || is_below(&["[tenants.", "[plans."]) => Some(0),
        (_, "tls") => Some(2),
        _ if is_below(&["[tls]", "[acme."]) => Some(2),
        _ if is_below(&SITES) => Some(1),
        _ => Some(3),
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

    fn differing(changes: &[(&str, &str)]) -> Vec<&'static str> {
        let of = |text: &str| {
            let sources = Sources::from_text("nagaya.toml", text);
            digests(&load(&sources).expect("a configuration"))
        };
        let mut other = TEXT.to_owned();
        for (from, to) in changes {
            assert!(other.contains(from), "{from}");
            other = other.replace(from, to);
        }
        let both = of(TEXT).into_iter().zip(of(&other));
        let differing = both.filter(|(one, other)| one != other);
        differing.map(|((part, _), _)| part).collect()
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
            ["rest"]
        );
        let versions = ("[fleet]", "[tls]\nversions = [\"1.3\"]\n[fleet]");
        assert_eq!(differing(&[versions]), ["tls"]);
        let tenant = (
            "[[sites]]",
            "[tenants.a]\nweight = 3\n[[sites]]\ntenant = \"a\"",
        );
        assert_eq!(differing(&[tenant]), ["limits", "sites"]);
    }
}
