//! Names of copies: what compressors, editors and packages leave beside a file.
//!
//! A copy of what is not served is not served either, so its name is traced back to the original's.

use crate::resolve::file::SIBLINGS;

/// What editors, version control and careful people put behind the name of a copy.
const BACKUPS: [&str; 11] = [
    "~", ".bak", ".old", ".orig", ".save", ".swp", ".swo", ".tmp", ".rej", ",v", "#",
];
/// How the last extension begins of what Debian's tools for packages set aside.
const PACKAGED: [&[u8]; 2] = [b".dpkg-", b".ucf-"];
/// What names a source whatever follows.
const AMID: [&[u8]; 2] = [b".php.", b".phtml."];

/// Whether a file of this name is what an editor or a package has left behind.
pub(crate) fn is_backup(name: &[u8]) -> bool {
    without_suffix(name, &BACKUPS)
        .or_else(|| without_package(name))
        .is_some()
}

/// What a file of this name is a copy of, as compressors, editors and packages name copies, in
/// upper or lower case; also what stands before the rest of a name such as `a.php.1`.
pub(crate) fn original(name: &[u8]) -> Option<&[u8]> {
    without_suffix(name, &SIBLINGS)
        .or_else(|| without_suffix(name, &BACKUPS))
        .or_else(|| without_package(name))
        .or_else(|| AMID.iter().find_map(|amid| up_to(name, amid)))
}

fn without_suffix<'a>(name: &'a [u8], suffixes: &[&str]) -> Option<&'a [u8]> {
    suffixes.iter().find_map(|suffix| {
        let (stem, end) = name.split_at_checked(name.len().checked_sub(suffix.len())?)?;
        end.eq_ignore_ascii_case(suffix.as_bytes()).then_some(stem)
    })
}

pub(crate) fn without_package(name: &[u8]) -> Option<&[u8]> {
    let (stem, tail) = name.split_at_checked(name.iter().rposition(|byte| *byte == b'.')?)?;
    let begins = |start: &[u8]| {
        tail.get(..start.len())
            .is_some_and(|tail| tail.eq_ignore_ascii_case(start))
    };
    let is_packaged = !tail.contains(&b'/') && PACKAGED.iter().any(|start| begins(start));
    is_packaged.then_some(stem)
}

/// The name up to the extension that stands amid its last component.
fn up_to<'a>(name: &'a [u8], amid: &[u8]) -> Option<&'a [u8]> {
    let slash = name.iter().rposition(|byte| *byte == b'/');
    let base = slash.map_or(0, |slash| slash + 1);
    let mut places = name.get(base..)?.windows(amid.len());
    let at = places.position(|part| part.eq_ignore_ascii_case(amid))?;
    name.get(..base + at + amid.len() - 1)
}
