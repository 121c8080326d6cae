//! Lines about what files are and what directories show.

use super::Wrong;
use super::lines::{switch, text};
use crate::settings::{PathInfo, Settings, UNLISTED_MAX};
use crate::types::{Aspect, ENDINGS_MAX, is_handler};

/// Names of a directory's page.
const PAGES_MAX: usize = 64;
/// The longest pattern of names that lists leave out, in bytes.
const UNLISTED_BYTES_MAX: usize = 255;

pub(super) fn types(name: &str, words: &[Vec<u8>], settings: &mut Settings) -> Result<(), Wrong> {
    let (first, rest) = words.split_first().ok_or("it lacks what it says")?;
    let is = |word: &str| first.eq_ignore_ascii_case(word.as_bytes());
    let unless_none = || (!is("none")).then(|| first.clone());
    match name {
        "SetHandler" => settings.handler = Some(handler(first)?),
        "ForceType" => settings.media_type = Some(unless_none()),
        "AddDefaultCharset" => {
            let charset = if is("on") {
                b"iso-8859-1".to_vec()
            } else {
                first.clone()
            };
            settings.default_charset = Some(Some(charset).filter(|_| !is("off")));
        }
        "DefaultLanguage" => settings.default_language = Some(first.clone()),
        "AcceptPathInfo" => {
            settings.path_info = Some(match () {
                () if is("default") => PathInfo::Default,
                () => match switch(words)? {
                    true => PathInfo::Taken,
                    false => PathInfo::Refused,
                },
            });
        }
        "RemoveHandler" | "RemoveType" | "RemoveCharset" | "RemoveEncoding" | "RemoveLanguage" => {
            for ending in words {
                settings.endings.add(aspect(name), ending, None);
            }
        }
        _ => {
            if rest.is_empty() {
                return Err("it names endings after what they mean".into());
            }
            let value = match name {
                "AddHandler" => handler(first)?,
                _ => Some(first.clone()),
            };
            for ending in rest {
                settings.endings.add(aspect(name), ending, value.clone());
            }
        }
    }
    match settings.endings.len() > ENDINGS_MAX {
        true => Err(format!("there are more than {ENDINGS_MAX} endings").into()),
        false => Ok(()),
    }
}

fn aspect(name: &str) -> Aspect {
    match name {
        "AddHandler" | "RemoveHandler" => Aspect::Handler,
        "AddCharset" | "RemoveCharset" => Aspect::Charset,
        "AddEncoding" | "RemoveEncoding" => Aspect::Encoding,
        "AddLanguage" | "RemoveLanguage" => Aspect::Language,
        _ => Aspect::Type,
    }
}

/// A handler that can be had; none of `none`.
fn handler(name: &[u8]) -> Result<Option<Vec<u8>>, Wrong> {
    let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
    if is_handler(&lower) {
        return Ok((lower != "none").then(|| lower.into_bytes()));
    }
    if lower.starts_with("proxy:") || lower == "server-status" || lower == "server-info" {
        let reason = "handlers that forward or tell of the server stand in the configuration";
        return Err(Wrong::Refused(reason));
    }
    Err(Wrong::Unsupported(format!("there is no handler {lower}")))
}

pub(super) fn directory(
    name: &str,
    words: &[Vec<u8>],
    settings: &mut Settings,
) -> Result<(), Wrong> {
    match name {
        "DirectoryIndex" => {
            let is_off = words.len() == 1 && text(words, 0)?.eq_ignore_ascii_case("disabled");
            if is_off {
                settings.index = Some(Vec::new());
            } else if words.is_empty() {
                return Err("it names files".into());
            } else {
                // Lines of one place come one after the other.
                let pages = settings.index.get_or_insert_default();
                pages.extend(words.iter().cloned());
                if pages.len() > PAGES_MAX {
                    return Err(format!("it names more than {PAGES_MAX} files").into());
                }
            }
        }
        "DirectorySlash" => settings.slash = Some(switch(words)?),
        "FallbackResource" => match words {
            [path] if path.eq_ignore_ascii_case(b"disabled") => settings.fallback = Some(None),
            [path] if path.starts_with(b"/") => settings.fallback = Some(Some(path.clone())),
            _ => return Err("it is a path of the site, or `disabled`".into()),
        },
        _ if words.iter().any(|word| word.len() > UNLISTED_BYTES_MAX) => {
            return Err(Wrong::Refused("no file has so long a name"));
        }
        _ => {
            settings.index_ignore.extend(words.iter().cloned());
            if settings.index_ignore.len() > UNLISTED_MAX {
                settings.index_ignore.truncate(UNLISTED_MAX);
                return Err(Wrong::Refused("so many names are not left out"));
            }
        }
    }
    Ok(())
}
