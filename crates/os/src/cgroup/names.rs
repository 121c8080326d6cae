//! Names of tenants and sites as names of directories.
//!
//! The idea: letters, digits, `.`, `-` and `_` stay; any other byte becomes `%` and two digits, so
//! that two names never become one. What would be too long keeps its beginning and gets a
//! checksum of the whole. Nothing here can be `.`, `..`, a path or a control file of the kernel's:
//! the kind stands before it.

/// Bytes of a name without a checksum; the kernel takes 255.
const NAME_BYTES_MAX: usize = 200;

/// A directory's name for something of this kind (`site`) and name (`example.jp`).
pub fn directory_name(kind: &str, name: &str) -> String {
    let mut out = format!("{kind}-");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b".-_".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
    }
    if out.len() > NAME_BYTES_MAX {
        out.truncate(NAME_BYTES_MAX);
        // Escaped bytes are never `+`: a short name cannot look like a long one.
        out.push_str(&format!("+{:016x}", checksum(name.as_bytes())));
    }
    out
}

/// What a directory of this kind was named after; of what was too long its beginning, and the
/// checksum. `None` for one of another kind.
pub(super) fn name_of(kind: &str, directory: &str) -> Option<String> {
    let mut rest = directory.strip_prefix(kind)?.strip_prefix('-')?;
    let mut name = Vec::with_capacity(rest.len());
    while let Some((plain, escaped)) = rest.split_once('%') {
        let (digits, after) = escaped.split_at_checked(2)?;
        name.extend_from_slice(plain.as_bytes());
        name.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    name.extend_from_slice(rest.as_bytes());
    String::from_utf8(name).ok()
}

/// FNV-1a: spreads names well enough that two long ones of one machine do not meet.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_become_safe_names_and_stay_apart() {
        let long = "x".repeat(300);
        let names = [
            "example.jp",
            "example/jp",
            "example%2fjp",
            "*.example.jp",
            "*",
            "..",
            ".",
            "",
            "長屋",
            "a b",
            "a\nb",
            "[::1]",
            &long,
            &format!("{long}y"),
        ];
        let mut seen = HashSet::new();
        for name in names {
            let safe = directory_name("site", name);
            assert!(safe.starts_with("site-") && safe.len() < 255, "{safe}");
            assert!(
                safe.bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'/'),
                "{safe}"
            );
            assert!(seen.insert(safe.clone()), "{name} becomes {safe}, too");
            if safe.len() <= NAME_BYTES_MAX {
                assert_eq!(name_of("site", &safe).as_deref(), Some(name));
            }
        }
        assert_eq!(directory_name("site", "example.jp"), "site-example.jp");
        assert_eq!(directory_name("tenant", "*"), "tenant-%2a");
        for other in [
            "tenant-a",
            "sitea",
            "site-%",
            "site-%2",
            "site-%ü1",
            "site-%ff",
        ] {
            assert_eq!(name_of("site", other), None, "{other}");
        }
    }
}
