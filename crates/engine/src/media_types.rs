//! Media types by file name extension.
//!
//! A site's own types come first, then this table of what the web is made of. Text is said to be
//! UTF-8. Contents are never looked at.

use std::borrow::Cow;

use config::model::{Compress, Files};

/// Longest extension looked up.
const EXTENSION_BYTES_MAX: usize = 16;

/// Extensions and types, sorted by extension.
const TYPES: [(&str, &str); 94] = [
    ("3gp", "video/3gpp"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("appcache", "text/cache-manifest"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("cer", "application/pkix-cert"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("deb", "application/vnd.debian.binary-package"),
    ("doc", "application/msword"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gz", "application/gzip"),
    ("heic", "image/heic"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("log", "text/plain"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/x-m4v"),
    ("map", "application/json"),
    ("md", "text/markdown"),
    ("mid", "audio/midi"),
    ("mjs", "text/javascript"),
    ("mkv", "video/x-matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("pem", "application/x-pem-file"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    ("ps", "application/postscript"),
    ("rar", "application/vnd.rar"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("svg", "image/svg+xml"),
    ("svgz", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain"),
    ("vtt", "text/vtt"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    ("xml", "application/xml"),
    ("xsl", "application/xml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The type of a file of this name on this site.
pub(crate) fn of<'a>(files: &'a Files, name: &[u8]) -> Cow<'a, str> {
    let found = known(files, name).unwrap_or(&files.default_type);
    if found.starts_with("text/") && !found.contains(';') {
        Cow::Owned(format!("{found}; charset=utf-8"))
    } else {
        Cow::Borrowed(found)
    }
}

/// The type that the site's table or ours has for the name.
pub(crate) fn known<'a>(files: &'a Files, name: &[u8]) -> Option<&'a str> {
    let extension = extension(name)?;
    let own = files.types.get(&extension).map(String::as_str);
    own.or_else(|| built_in(&extension))
}

/// Whether content of this type is to be compressed.
pub(crate) fn is_compressed(compress: &Compress, content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next();
    let Ok(essence) = str::from_utf8(essence.unwrap_or_default()) else {
        return false;
    };
    let essence = essence.trim_ascii();
    match &compress.types {
        None => is_text(essence),
        Some(types) => types.iter().any(|known| match known.strip_suffix('*') {
            Some(kind) => starts_with(essence, kind),
            None => essence.eq_ignore_ascii_case(known),
        }),
    }
}

/// Whether content of this type gets clearly smaller by compression, and its reader has no reason
/// to want each byte at once.
fn is_text(essence: &str) -> bool {
    const TEXTS: [&str; 10] = [
        "application/json",
        "application/javascript",
        "application/xml",
        "application/wasm",
        "application/rtf",
        "application/postscript",
        "application/vnd.ms-fontobject",
        "application/x-pem-file",
        "font/otf",
        "font/ttf",
    ];
    let is = |known: &str| essence.eq_ignore_ascii_case(known);
    let ends_with = |end: &str| {
        let at = essence.len().checked_sub(end.len());
        at.and_then(|at| essence.get(at..))
            .is_some_and(|it| it.eq_ignore_ascii_case(end))
    };
    starts_with(essence, "text/") && !is("text/event-stream")
        || ends_with("+xml")
        || ends_with("+json")
        || TEXTS.into_iter().any(is)
}

fn starts_with(essence: &str, kind: &str) -> bool {
    let start = essence.get(..kind.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(kind))
}

fn built_in(extension: &str) -> Option<&'static str> {
    let at = TYPES.binary_search_by_key(&extension, |(extension, _)| extension);
    TYPES.get(at.ok()?).map(|(_, found)| *found)
}

/// The extension in lower case, of the last component.
fn extension(name: &[u8]) -> Option<String> {
    let base = name.rsplit(|byte| *byte == b'/').next()?;
    let dot = base.iter().rposition(|byte| *byte == b'.')?;
    let extension = base.get(dot + 1..)?;
    if extension.len() > EXTENSION_BYTES_MAX {
        return None;
    }
    Some(str::from_utf8(extension).ok()?.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn files() -> Files {
        Files {
            sources: Vec::new(),
            listing: false,
            types: BTreeMap::from([
                ("x".into(), "text/x".into()),
                ("png".into(), "own/png".into()),
            ]),
            default_type: "application/octet-stream".into(),
            precompressed: true,
            compress: true,
            compress_min_bytes: 1,
            compress_max_bytes: 1,
        }
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(TYPES.is_sorted_by(|one, two| one.0 < two.0));
    }

    #[test]
    fn types_go_by_the_last_extension() {
        for (name, expected) in [
            ("/a/b.html", "text/html; charset=utf-8"),
            ("/a/b.HTML", "text/html; charset=utf-8"),
            ("/a/b.tar.gz", "application/gzip"),
            ("/a.js/b", "application/octet-stream"),
            ("/a/b", "application/octet-stream"),
            ("/a/b.", "application/octet-stream"),
            ("/a/b.unknown", "application/octet-stream"),
            ("/a/b.x", "text/x; charset=utf-8"),
            ("/a/b.png", "own/png"),
            ("/a/b.svg", "image/svg+xml"),
            ("/a/b.zst", "application/zstd"),
            ("/a/b.3gp", "video/3gpp"),
        ] {
            assert_eq!(of(&files(), name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn text_is_compressed_and_pictures_are_not() {
        let compress = |types: Option<&[&str]>| Compress {
            types: types.map(|types| types.iter().map(|it| (*it).to_owned()).collect()),
            min_bytes: 0,
            level: 1,
            programs: true,
        };
        let named = compress(Some(&["text/html", "application/*"]));
        for (content_type, by_default, by_name) in [
            ("text/html; charset=utf-8", true, true),
            ("Text/HTML ;charset=utf-8", true, true),
            ("text/htm", true, false),
            ("text/event-stream", false, false),
            ("Text/Event-Stream; charset=utf-8", false, false),
            ("image/svg+xml", true, false),
            ("application/json", true, true),
            ("application/LD+JSON", true, true),
            ("font/ttf", true, false),
            ("font/woff2", false, false),
            ("image/png", false, false),
            ("video/mp4", false, false),
            ("application/octet-stream", false, true),
            ("text", false, false),
            ("", false, false),
        ] {
            let is = |compress| is_compressed(compress, content_type.as_bytes());
            let found = (is(&compress(None)), is(&named));
            assert_eq!(found, (by_default, by_name), "{content_type}");
        }
        assert!(!is_compressed(&compress(None), b"text/\xff"));
    }
}
