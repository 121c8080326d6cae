//! Single looks at files and directories, on behalf of [`crate::Sources`].
//!
//! The idea: a look ends in what was found or in words for why not; nothing is remembered here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::clients::client_of_line;
use crate::keys;
use crate::reason::reason;

/// Largest file that workers read line by line: one of a map or of clients.
const LINES_BYTES_MAX: u64 = 16 << 20;
/// Names in a directory among which one that was meant is looked for.
const NAMES_MAX: usize = 1_000;

/// Where distributions and panels put php-fpm: a directory, what stands before the version in a name
/// there, and what behind it. Of one version in several places the first counts.
const PHPS: [(&str, &str, &str); 6] = [
    ("usr/sbin", "php-fpm", ""),
    ("opt/plesk/php", "", "/sbin/php-fpm"),
    ("opt/alt", "php", "/usr/sbin/php-fpm"),
    ("opt/alt", "php-fpm", "/usr/sbin/php-fpm"),
    ("opt/cpanel", "ea-php", "/root/usr/sbin/php-fpm"),
    ("opt/remi", "php", "/root/usr/sbin/php-fpm"),
];

/// Lines of a file that say nothing that could be meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BadLines {
    pub(crate) count: usize,
    /// The number of the first.
    pub(crate) first: usize,
}

/// What is known of directories that were not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existence {
    /// Every directory was looked at.
    Checked,
    /// The sources were made from text: any directory is taken to exist.
    Assumed,
}

/// The text of a regular file of at most so many bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String, String> {
    let bytes = read_bytes(path, most)?;
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error
            .as_bytes()
            .iter()
            .take(good)
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        format!("not UTF-8 on line {line}")
    })
}

/// The bytes of a regular file, of at most so many.
pub(crate) fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    read_of(open_regular(path, most)?, most)
}

/// The last bytes of a regular file of at most `most`, so many of them.
pub(crate) fn read_end(path: &Path, most: u64, bytes: u64) -> Result<Vec<u8>, String> {
    let mut file = open_regular(path, most)?;
    let length = file.metadata().map_or(0, |facts| facts.len());
    let begin = SeekFrom::Start(length.saturating_sub(bytes));
    file.seek(begin).map_err(|error| reason(&error))?;
    read_of(file, most)
}

/// Opens a regular file of at most so many bytes.
fn open_regular(path: &Path, most: u64) -> Result<File, String> {
    // What is opened for reading is looked at before: a pipe would be waited for.
    let looked = std::fs::metadata(path).map_err(|error| reason(&error))?;
    judge_regular(&looked, most)?;
    let file = File::open(path).map_err(|error| reason(&error))?;
    // Another file may have come to its place, or it has grown.
    let facts = file.metadata().map_err(|error| reason(&error))?;
    judge_regular(&facts, most)?;
    Ok(file)
}

fn judge_regular(facts: &Metadata, most: u64) -> Result<(), String> {
    if facts.is_dir() {
        return Err("a directory, not a file".to_owned());
    }
    if !facts.is_file() {
        return Err("not a regular file".to_owned());
    }
    match facts.len() > most {
        true => Err(too_large(most)),
        false => Ok(()),
    }
}

/// What is left of a file, which may grow meanwhile.
fn read_of(file: File, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| reason(&error))?;
    match u64::try_from(bytes.len()).is_ok_and(|read| read <= most) {
        true => Ok(bytes),
        false => Err(too_large(most)),
    }
}

fn too_large(most: u64) -> String {
    format!("larger than {} MiB", most >> 20)
}

/// Reads a map's file as a worker will, and keeps nothing of it: bad are keys without a value.
pub(crate) fn look_at_map(path: &Path) -> Result<BadLines, String> {
    look_at_lines(path, |line| {
        let is_entry = |first: &u8| *first != b'#' && !first.is_ascii_whitespace();
        let is_key_alone = !line.trim_ascii_end().iter().any(u8::is_ascii_whitespace);
        line.first().is_some_and(is_entry) && is_key_alone
    })
}

/// Reads a file that names clients, likewise.
pub(crate) fn look_at_clients(path: &Path) -> Result<BadLines, String> {
    look_at_lines(path, |line| client_of_line(line).is_err())
}

fn look_at_lines(path: &Path, is_bad: impl Fn(&[u8]) -> bool) -> Result<BadLines, String> {
    let bytes = read_bytes(path, LINES_BYTES_MAX)?;
    let mut bad = BadLines::default();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if is_bad(line) {
            if bad.count == 0 {
                bad.first = number;
            }
            bad.count += 1;
        }
    }
    Ok(bad)
}

/// Every php-fpm below `machine`, by its version.
pub(crate) fn find_phps(machine: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for (directory, before, behind) in PHPS {
        let directory = machine.join(directory);
        let entries = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        for name in names.collect::<BTreeSet<_>>() {
            let version = name.strip_prefix(before).and_then(php_version);
            let program = directory.join(format!("{name}{behind}"));
            if let Some(version) = version.filter(|_| program.is_file()) {
                found.entry(version).or_insert(program);
            }
        }
    }
    found
}

/// `8.2`, for which some write `82`.
fn php_version(text: &str) -> Option<String> {
    let (major, minor) = match text.split_once('.') {
        Some(parts) => parts,
        None => text.split_at_checked(1)?,
    };
    let is_number = |text: &str| {
        (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    (is_number(major) && is_number(minor)).then(|| format!("{major}.{minor}"))
}

/// Why there is no such directory, if there is none.
pub(crate) fn look_at_directory(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(facts) if facts.is_dir() => Ok(()),
        Ok(_) => Err("not a directory".to_owned()),
        Err(error) => Err(reason(&error) + &meant_name(path)),
    }
}

/// What to say of a path that is not there where another name was perhaps meant; else nothing.
pub(crate) fn meant_name(path: &Path) -> String {
    let meant = look_beside(path).map(|name| format!("; did you mean `{name}`?"));
    meant.unwrap_or_default()
}

/// The name, in the directory of a path that is not there, that is most like its last part.
fn look_beside(path: &Path) -> Option<String> {
    let entries = std::fs::read_dir(path.parent()?).ok()?;
    let entries = entries.take(NAMES_MAX).flatten();
    let names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let name = path.file_name()?.to_str()?;
    keys::nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_of_a_file_than_it_may_have() {
        let directory = testkit::TempDir::new();
        let path = directory.write("text", "0123456789");
        assert_eq!(read_bytes(&path, 10).as_deref(), Ok(&b"0123456789"[..]));
        assert_eq!(read_end(&path, 10, 3).as_deref(), Ok(&b"789"[..]));
        assert!(read_bytes(&path, 9).is_err());
        // Its size says that it is empty, and it never ends.
        let device = read_bytes("/dev/zero".as_ref(), 9);
        assert_eq!(device, Err("not a regular file".to_owned()));
        let file = File::open("/dev/zero").expect("it is there");
        assert_eq!(read_of(file, 9), Err("larger than 0 MiB".to_owned()));
    }

    #[test]
    fn php_is_found_where_distributions_and_panels_put_it() {
        let machine = testkit::TempDir::new();
        let places = [
            ("5.6", "opt/alt/php-fpm56/usr/sbin/php-fpm"),
            ("7.4", "opt/alt/php74/usr/sbin/php-fpm"),
            ("8.1", "opt/cpanel/ea-php81/root/usr/sbin/php-fpm"),
            ("8.2", "usr/sbin/php-fpm8.2"),
            ("8.3", "opt/plesk/php/8.3/sbin/php-fpm"),
            ("8.4", "opt/remi/php84/root/usr/sbin/php-fpm"),
        ];
        let others = ["opt/remi/php82/root/usr/sbin/php-fpm", "usr/sbin/php-fpm"];
        let names = places.iter().map(|(_, name)| *name).chain(others);
        for name in names {
            machine.write(name, "");
        }
        std::fs::create_dir_all(machine.path().join("opt/alt/php80/usr/sbin"))
            .expect("a directory");
        let expected =
            places.map(|(version, name)| (version.to_owned(), machine.path().join(name)));
        assert_eq!(find_phps(machine.path()), BTreeMap::from(expected));
    }

    #[test]
    fn versions_of_php_are_told_from_other_names() {
        for (name, version) in [
            ("8.2", Some("8.2")),
            ("82", Some("8.2")),
            ("56", Some("5.6")),
            ("810", Some("8.10")),
            ("8", None),
            ("", None),
            ("8.2.1", None),
            ("-8.2", None),
            ("8.x", None),
            ("é2", None),
        ] {
            assert_eq!(php_version(name).as_deref(), version, "{name:?}");
        }
    }
}
