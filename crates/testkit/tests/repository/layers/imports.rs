//! Which file of a crate imports which, read from its `use` declarations and qualified paths, and
//! the circles among them.
//!
//! An arrow goes to the file of the longest module that a path names, a re-export being the file it
//! stands in. Tests within are no part of a file. Macros are not expanded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tree::{read, root, text_files};

/// A module's path within its crate.
type Module = Vec<String>;

/// The files of one crate, named from its `src`, and whom each imports.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// Reads the imports of a crate.
pub(crate) fn of_crate(name: &str) -> Imports {
    let source = root().join("crates").join(name).join("src");
    let files = text_files(&source, &["rs"]).into_iter();
    let files = files.filter_map(|file| name_of(&source, &file).map(|name| (name, file)));
    let files: BTreeMap<String, String> = files.map(|(name, file)| (name, read(&file))).collect();
    let modules: BTreeMap<Module, &String> =
        files.keys().map(|name| (module_of(name), name)).collect();
    let of = |(name, text): (&String, &String)| {
        let own = module_of(name);
        let paths = paths(&code(text)).into_iter();
        let targets = paths.filter_map(|path| target(&path, &own, &modules));
        let targets = targets.filter(|target| target != name).collect();
        (name.clone(), targets)
    };
    files.iter().map(of).collect()
}

/// The circles of files that import each other, largest first.
pub(crate) fn circles(imports: &Imports) -> Vec<Vec<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|from| (from.as_str(), reached(imports, from)))
        .collect();
    let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
    for (from, seen) in &reach {
        let back = |to: &&str| reach.get(to).is_some_and(|seen| seen.contains(from));
        let circle: Vec<&str> = seen.iter().copied().filter(back).collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Every file that `from` imports, straight or through others; itself, where they come back to it.
fn reached<'a>(imports: &'a Imports, from: &str) -> BTreeSet<&'a str> {
    let next = |file: &str| imports.get(file).into_iter().flatten().map(String::as_str);
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = next(from).collect();
    while let Some(file) = open.pop() {
        if seen.insert(file) {
            open.extend(next(file));
        }
    }
    seen
}

/// A file's name below `source`; `None` for tests.
fn name_of(source: &Path, file: &Path) -> Option<String> {
    let name = file.strip_prefix(source).ok()?.to_str()?;
    let is_test = name.ends_with("tests.rs") || name.contains("tests/") || name == "fixture.rs";
    (!is_test).then(|| name.to_owned())
}

fn module_of(name: &str) -> Module {
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    let mut module: Module = stem.split('/').map(str::to_owned).collect();
    if matches!(
        module.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        module.pop();
    }
    module
}

/// A file's text without comments and without what is compiled for tests alone.
fn code(text: &str) -> String {
    let mut lines = text.lines();
    let mut code = String::new();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let item = lines.next().unwrap_or_default();
            let indent = item.len() - item.trim_start().len();
            if item.ends_with('{') {
                let end = format!("{}}}", &item[..indent]);
                lines
                    .by_ref()
                    .take_while(|line| *line != end)
                    .for_each(drop);
            }
            continue;
        }
        code.push_str(line.split("//").next().unwrap_or(line));
        code.push('\n');
    }
    code
}

/// Every path of more than one name, in `use` declarations and elsewhere.
fn paths(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("::") {
        let start = rest[..at]
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
            .map_or(0, |before| before + 1);
        let (before, path) = rest.split_at(start);
        let length = path_length(path);
        let (path, after) = path.split_at(length);
        // `pub(in …)` says who may see, and imports nothing.
        if !before.ends_with("(in ") {
            expand(path, &[], &mut found);
        }
        rest = after;
    }
    found
}

/// How far a path reaches, its braces included.
fn path_length(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' if depth > 0 || text[..at].ends_with("::") => depth += 1,
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ if depth > 0 || c.is_alphanumeric() || c == '_' || c == ':' => {}
            _ => return at,
        }
    }
    text.len()
}

/// Takes `a::{b, c::{d, e}}` apart.
fn expand(tree: &str, above: &[String], found: &mut Vec<Module>) {
    let tree = tree.trim();
    let (path, branches) = match tree.split_once('{') {
        Some((path, inner)) => (path, inner.strip_suffix('}')),
        None => (tree.split(" as ").next().unwrap_or(tree), None),
    };
    let names = path.split("::").map(str::trim).filter(|it| !it.is_empty());
    let mut whole = above.to_vec();
    whole.extend(
        names
            .filter(|name| above.is_empty() || *name != "self")
            .map(str::to_owned),
    );
    let Some(branches) = branches else {
        return found.push(whole);
    };
    let (mut depth, mut from) = (0, 0);
    for (at, c) in branches.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&branches[from..at], &whole, found);
                from = at + 1;
            }
            _ => {}
        }
    }
    if !branches[from..].trim().is_empty() {
        expand(&branches[from..], &whole, found);
    }
}

/// The file of the longest module that a path names.
fn target(path: &[String], own: &[String], modules: &BTreeMap<Module, &String>) -> Option<String> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let whole: Module = match path.first()?.as_str() {
        "crate" => path.get(1..)?.to_vec(),
        "self" => [own, path.get(1..)?].concat(),
        "super" => [
            own.get(..own.len().checked_sub(supers)?)?,
            path.get(supers..)?,
        ]
        .concat(),
        child => {
            modules.get(&[own, &[child.to_owned()]].concat())?;
            [own, path].concat()
        }
    };
    let longest = (0..=whole.len()).rev();
    let found = longest
        .filter_map(|length| modules.get(whole.get(..length)?))
        .next()?;
    Some((*found).clone())
}

#[test]
fn paths_are_taken_apart() {
    let text = "use crate::{a, b::{self, C}, d as e};\npub(in super::super) use super::x::Y;\nfn f() { self::g::h(); }\n";
    let found: Vec<String> = paths(&code(text))
        .iter()
        .map(|path| path.join("::"))
        .collect();
    assert_eq!(
        found,
        [
            "crate::a",
            "crate::b",
            "crate::b::C",
            "crate::d",
            "super::x::Y",
            "self::g::h"
        ]
    );
}

#[test]
fn a_circle_is_found_with_all_who_are_in_it() {
    let imports = |pairs: &[(&str, &[&str])]| -> Imports {
        let set = |to: &&[&str]| to.iter().map(|to| (*to).to_owned()).collect();
        pairs
            .iter()
            .map(|(from, to)| ((*from).to_owned(), set(to)))
            .collect()
    };
    let imports = imports(&[
        ("a", &["b"]),
        ("b", &["c"]),
        ("c", &["a"]),
        ("d", &["a", "e"]),
        ("e", &["d"]),
    ]);
    assert_eq!(circles(&imports), [vec!["a", "b", "c"], vec!["d", "e"]]);
}
