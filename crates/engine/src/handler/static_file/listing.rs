//! A directory as a page: names in order, escaped, at most [`ENTRIES_MAX`] of them.
//!
//! Hidden names, programs' sources and what is no file or directory are left out, since they
//! would not be served either.

use std::fmt::Write;

use os::file::{Entry, FileKind};

/// Entries read and shown.
pub(super) const ENTRIES_MAX: usize = 10_000;

const STYLE: &str = "body{font:16px/1.6 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}h1{font-size:1.3rem;font-weight:600}ul{list-style:none;padding:0}li{border-top:1px solid #ddd}a{display:block;padding:.2rem;color:#0645ad;text-decoration:none;overflow-wrap:anywhere}a:hover{background:#f3f5f8}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181a1b}li{border-color:#333}a{color:#8ab4f8}a:hover{background:#222}}";

/// Writes the page for the directory at `path`. `is_source` tells what is left out.
pub(super) fn page(
    path: &[u8],
    mut entries: Vec<Entry>,
    is_source: impl Fn(&[u8]) -> bool,
) -> String {
    let cut = entries.len() >= ENTRIES_MAX;
    entries.retain(|entry| {
        entry.kind != FileKind::Other
            && !entry.name.starts_with(b".")
            && (entry.kind == FileKind::Directory || !is_source(&entry.name))
    });
    entries.sort_by(|one, two| {
        let files_last = |entry: &Entry| entry.kind != FileKind::Directory;
        (files_last(one), &one.name).cmp(&(files_last(two), &two.name))
    });
    let title = escape(path);
    let mut page = format!(
        "<!doctype html>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n<ul>\n"
    );
    if path.iter().any(|byte| *byte != b'/') {
        page.push_str("<li><a href=\"../\">../</a>\n");
    }
    for entry in &entries {
        let slash = match entry.kind {
            FileKind::Directory => "/",
            _ => "",
        };
        let (link, name) = (link(&entry.name), escape(&entry.name));
        page.push_str(&format!(
            "<li><a href=\"./{link}{slash}\">{name}{slash}</a>\n"
        ));
    }
    page.push_str("</ul>\n");
    if cut {
        page.push_str("<p>There is more than is shown here.\n");
    }
    page
}

/// Text for HTML, inside elements and quoted attributes.
fn escape(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for char in String::from_utf8_lossy(text).chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters, and marks that turn the direction of text.
            '\u{0}'..='\u{1f}' | '\u{7f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}');
            }
            other => out.push(other),
        }
    }
    out
}

/// A name as one segment of a URL.
fn link(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(char::from(*byte));
        } else {
            // Writing to a String can't fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], kind: FileKind) -> Entry {
        Entry {
            name: name.to_vec(),
            kind,
        }
    }

    #[test]
    fn names_can_do_no_harm() {
        let entries = vec![
            entry(b"<script>alert(1)</script>", FileKind::Regular),
            entry(b"\"onmouseover='x'&", FileKind::Regular),
            entry(b"javascript:x", FileKind::Regular),
            entry(b"\xff\n", FileKind::Regular),
        ];
        let page = page(b"/<b>/", entries, |_| false);
        assert!(!page.contains("<script") && !page.contains("<b>"));
        assert!(page.contains(
            "<a href=\"./%3Cscript%3Ealert%281%29%3C%2Fscript%3E\">&lt;script&gt;alert(1)&lt;/script&gt;</a>"
        ));
        assert!(page.contains(
            "<a href=\"./%22onmouseover%3D%27x%27%26\">&quot;onmouseover=&#39;x&#39;&amp;</a>"
        ));
        assert!(page.contains("href=\"./javascript%3Ax\""));
        assert!(page.contains("<a href=\"./%FF%0A\">\u{fffd}\u{fffd}</a>"));
    }

    #[test]
    fn directories_come_first_and_hidden_names_not_at_all() {
        let entries = vec![
            entry(b"b.txt", FileKind::Regular),
            entry(b"a.txt", FileKind::Symlink),
            entry(b".htaccess", FileKind::Regular),
            entry(b"x.php", FileKind::Regular),
            entry(b"fifo", FileKind::Other),
            entry(b"z", FileKind::Directory),
        ];
        let page = page(b"/", entries, |name| name.ends_with(b".php"));
        let links: Vec<_> = page.split("href=\"").skip(1).collect();
        let links: Vec<_> = links
            .iter()
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert_eq!(links, ["./z/", "./a.txt", "./b.txt"]);
    }
}
