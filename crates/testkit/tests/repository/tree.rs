//! The tree as it is: crates and what they depend on, files, and lines of files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Dependency {
    pub(crate) name: String,
    /// A comment stands right above it, or above the sibling whose name it extends (`clap_mangen`).
    pub(crate) explained: bool,
}

/// The `[dependencies]` of a crate, not those of its tests.
pub(crate) fn dependencies(name: &str) -> Vec<Dependency> {
    let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
    let mut found = Vec::new();
    let mut explained: Option<String> = None;
    let mut after_comment = false;
    for line in section(&manifest, "[dependencies]") {
        if let Some(end) = line
            .find([' ', '.', '='])
            .filter(|_| !line.starts_with('#'))
        {
            let name = line[..end].to_owned();
            let sibling = explained
                .as_ref()
                .is_some_and(|above| name.starts_with(above.as_str()));
            if after_comment {
                explained = Some(name.clone());
            }
            found.push(Dependency {
                name,
                explained: after_comment || sibling,
            });
        }
        after_comment = line.starts_with('#');
    }
    found
}

/// The lines below `heading`, up to the next table.
pub(crate) fn section<'a>(manifest: &'a str, heading: &str) -> impl Iterator<Item = &'a str> {
    let heading = heading.to_owned();
    manifest
        .lines()
        .skip_while(move |line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
}

/// Every crate that `name` is built from, itself included.
pub(crate) fn reached(name: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "tree",
            "--package",
            name,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--locked",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs, since it runs this test");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let found: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect();
    assert!(found.contains(name), "cargo tree knows {name}: {text}");
    found
}

/// What stands above code that is compiled for tests alone.
pub(crate) const TEST: &str = "#[cfg(test)]\n";

/// How many lines a module has, but for those of test modules that stand in it.
pub(crate) fn lines_without_tests(text: &str) -> usize {
    lines_but_tests(text).len()
}

/// The lines of a module, but for those of test modules that stand in it.
pub(crate) fn lines_but_tests(text: &str) -> Vec<String> {
    let mut lines = text.lines().peekable();
    let mut kept = Vec::new();
    while let Some(line) = lines.next() {
        let opens = |next: &&str| next.contains("mod ") && next.ends_with('{');
        if line == TEST.trim_end() && lines.next_if(opens).is_some() {
            lines
                .by_ref()
                .take_while(|line| *line != "}")
                .for_each(drop);
        } else {
            kept.push(line.to_owned());
        }
    }
    kept
}

pub(crate) fn set_of(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

pub(crate) fn crate_names() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("crates")).expect("crates/ is here");
    entries
        .flatten()
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

pub(crate) fn sources() -> Vec<PathBuf> {
    let files = text_files(&root().join("crates"), &["rs"]);
    assert!(files.len() > 20, "the sources are found");
    files
}

/// Files below `directory` with one of these extensions, but for what is built or measured.
pub(crate) fn text_files(directory: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)
            .expect("a directory of this project")
            .flatten()
        {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if !["target", ".git", "results", "corpus"]
                    .iter()
                    .any(|skipped| name == *skipped)
                {
                    open.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
            {
                found.push(path);
            }
        }
    }
    found
}

pub(crate) fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

pub(crate) fn shown(file: &Path) -> String {
    file.strip_prefix(root())
        .unwrap_or(file)
        .display()
        .to_string()
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/testkit is two levels deep")
        .to_owned()
}
