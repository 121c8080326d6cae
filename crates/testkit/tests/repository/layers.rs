//! The rules of ARCHITECTURE.md that a compiler does not check: who may depend on whom, where
//! `unsafe` may stand, how a module begins and how long it may be.
//!
//! Every rule reads the tree as it is and reports all breaches at once.

mod imports;
mod names;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::tree::{
    TEST, crate_names, dependencies, lines_without_tests, reached, read, root, section, set_of,
    shown, sources, text_files,
};

/// Own crates each crate may depend on. Nothing depends on the test tools but tests.
const ARROWS: [(&str, &[&str]); 26] = [
    (
        "nagaya",
        &[
            "bench",
            "config",
            "control",
            "directory",
            "engine",
            "error_log",
            "import",
            "ipc",
            "keeper",
            "limits",
            "os",
            "recorder",
            "report",
            "script",
            "spawner",
            "supervisor",
            "wire",
        ],
    ),
    ("directory", &["config", "error_log", "ipc", "os", "stores"]),
    ("supervisor", &["config", "error_log", "ipc", "os"]),
    ("spawner", &["config", "error_log", "ipc", "os"]),
    ("keeper", &["config", "error_log", "ipc", "os", "stores"]),
    (
        "engine",
        &[
            "config",
            "control",
            "error_log",
            "fastcgi",
            "htaccess",
            "ipc",
            "limits",
            "os",
            "pattern",
            "script",
            "wire",
        ],
    ),
    ("ipc", &["config", "os"]),
    ("error_log", &["config"]),
    ("script", &["mruby", "os", "pattern", "stores"]),
    ("stores", &["os"]),
    ("mruby", &[]),
    ("bench", &["load", "os", "report"]),
    ("lab", &["load", "os", "report"]),
    ("load", &["os", "report"]),
    (
        "recorder",
        &["config", "control", "error_log", "ipc", "os", "report"],
    ),
    ("report", &["os"]),
    ("config", &["htaccess", "pattern"]),
    ("control", &[]),
    ("limits", &[]),
    ("os", &[]),
    ("pattern", &[]),
    ("testkit", &[]),
    ("fastcgi", &["wire"]),
    ("htaccess", &["pattern"]),
    ("import", &["config", "htaccess", "pattern"]),
    ("wire", &[]),
];

/// The most files that may import each other in a circle, by crate.
const CIRCLE_FILES_MAX: [(&str, usize); 3] = [("config", 5), ("engine", 8), ("script", 5)];

/// The floors of the engine, lowest first, by how the names of their files begin; the longest
/// beginning counts. What is named nowhere is ground: what lies there knows nothing above it.
const FLOORS: [(&str, &[&str]); 8] = [
    (
        "ground",
        &[
            "exchange/request.rs",
            "htaccess/applied.rs",
            "htaccess/cache.rs",
            "htaccess/facts.rs",
            "htaccess/proofs.rs",
            "htaccess/walk.rs",
            "rewrite/compiled.rs",
            "rewrite/told.rs",
            "scripts/lifecycle.rs",
            "scripts/plan.rs",
            "scripts/reader.rs",
            "scripts/tried.rs",
            "scripts/vms.rs",
            "scripts/vms/",
            "worker/commands.rs",
            "worker/peers.rs",
            "worker/resources.rs",
            "worker/serving.rs",
            "worker/shared.rs",
        ],
    ),
    (
        "an exchange and its worker",
        &["exchange/", "worker.rs", "scripts/scripted.rs"],
    ),
    ("stages", &["stage.rs"]),
    (
        "phases",
        &[
            "access_log/format.rs",
            "access_log/mod.rs",
            "admission/mod.rs",
            "agents/asking.rs",
            "bounds.rs",
            "causes.rs",
            "client.rs",
            "compression/negotiation.rs",
            "control.rs",
            "directory/eyes.rs",
            "directory/find.rs",
            "directory/row.rs",
            "error_reply.rs",
            "expiry.rs",
            "fields.rs",
            "figures/",
            "fleet.rs",
            "fleet/report.rs",
            "htaccess/",
            "intake.rs",
            "maps/mod.rs",
            "maps/process.rs",
            "permits/handshake.rs",
            "permits/holders.rs",
            "permits/mod.rs",
            "permits/prepared.rs",
            "permits/questions.rs",
            "permits/refuse.rs",
            "permits/rows.rs",
            "permits/set.rs",
            "permits/wants.rs",
            "recording/incidents.rs",
            "recording/mod.rs",
            "recording/teller.rs",
            "reply_head.rs",
            "resolve/mod.rs",
            "rewrite/",
            "rules.rs",
            "scripts/",
            "sensors/advice.rs",
            "sensors/sampling.rs",
            "sensors/view.rs",
            "shedding/mod.rs",
            "shedding/reply.rs",
            "shedding/rows.rs",
            "shedding/stepping.rs",
            "tls/accept.rs",
            "tls/accept/",
            "tls/obtain.rs",
            "tls/site.rs",
        ],
    ),
    ("handlers", &["handler/"]),
    ("the pipeline", &["pipeline"]),
    (
        "connections",
        &[
            "listener/accept.rs",
            "listener/connection.rs",
            "listener/h2/",
            "listener/mod.rs",
            "listener/proxy_protocol.rs",
        ],
    ),
    (
        "the process",
        &["lib.rs", "server", "thread.rs", "warden.rs"],
    ),
];

/// Crates without a runtime: time, files and sockets are their callers' business.
const WITHOUT_RUNTIME: [&str; 6] = ["wire", "fastcgi", "htaccess", "import", "limits", "config"];

/// Crates that link nothing they could measure.
const MEASURING: [&str; 4] = ["bench", "lab", "load", "report"];

/// The only crates where `unsafe` may stand.
const UNSAFE: [&str; 2] = ["mruby", "os"];

/// Bytes of all that git tracks but code: what experiments measured is kept as summaries.
const BESIDE_CODE_BYTES_MAX: u64 = 3_200_000;

/// Endings of files that are code; how long those may be is tested by itself.
const CODE: [&str; 4] = [".rs", ".c", ".h", ".rb"];

/// Lines of a module without its tests.
const MODULE_LINES_MAX: usize = 600;

/// Names that say nothing about what a module is.
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "helpers", "common", "manager"];

#[test]
fn every_crate_is_known_to_this_test() {
    let known: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(crate_names(), known);
}

#[test]
fn crates_depend_only_downwards() {
    let own: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let mut breaches = Vec::new();
    for (name, allowed) in ARROWS {
        for dependency in dependencies(name) {
            if own.contains(dependency.name.as_str())
                && !allowed.contains(&dependency.name.as_str())
            {
                breaches.push(format!("{name} depends on {}", dependency.name));
            }
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn few_files_import_each_other_in_a_circle() {
    for (name, most) in CIRCLE_FILES_MAX {
        let imports = imports::of_crate(name);
        let large: Vec<_> = imports::circles(&imports)
            .into_iter()
            .filter(|circle| circle.len() > most)
            .collect();
        assert!(large.is_empty(), "{name}: {large:#?}");
    }
}

#[test]
fn arrows_in_the_engine_go_down() {
    let floor = |file: &str| {
        let floors = FLOORS.iter().enumerate();
        let begun =
            floors.flat_map(|(floor, (_, starts))| starts.iter().map(move |it| (it, floor)));
        let begun = begun.filter(|(start, _)| file.starts_with(**start));
        begun
            .max_by_key(|(start, _)| start.len())
            .map_or(0, |(_, floor)| floor)
    };
    let mut breaches = Vec::new();
    for (from, to) in imports::of_crate("engine") {
        let up = to.iter().filter(|to| floor(to) > floor(&from));
        breaches.extend(up.map(|to| {
            let name = |file: &str| FLOORS.get(floor(file)).map_or("", |(name, _)| name);
            format!("{from} ({}) imports {to} ({})", name(&from), name(to))
        }));
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn pure_crates_reach_no_runtime_and_what_measures_no_engine() {
    let mut breaches = Vec::new();
    for name in WITHOUT_RUNTIME {
        breaches.extend(
            reached(name)
                .intersection(&set_of(&["tokio", "mio"]))
                .map(|found| format!("{name} reaches {found}")),
        );
    }
    for name in MEASURING {
        breaches.extend(
            reached(name)
                .intersection(&set_of(&["engine", "nagaya", "config", "wire"]))
                .map(|found| format!("{name} reaches {found}")),
        );
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn every_dependency_says_what_it_is_for() {
    let own = crate_names();
    let mut breaches = Vec::new();
    for name in &own {
        for dependency in dependencies(name) {
            if !dependency.explained && !own.contains(&dependency.name) {
                breaches.push(format!(
                    "crates/{name}/Cargo.toml: {} has no comment",
                    dependency.name
                ));
            }
        }
    }
    let workspace = read(&root().join("Cargo.toml"));
    for line in section(&workspace, "[workspace.dependencies]") {
        if line.contains(" = ")
            && !line.contains("path = ")
            && !line.contains("default-features = false")
        {
            breaches.push(format!("Cargo.toml: default features of {line}"));
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn unsafe_code_is_forbidden_but_in_mruby_and_os() {
    let mut breaches = Vec::new();
    for name in crate_names() {
        let source = root().join("crates").join(&name).join("src");
        let roots = ["lib.rs", "main.rs"].map(|file| source.join(file));
        for file in roots.iter().filter(|file| file.exists()) {
            if !UNSAFE.contains(&name.as_str()) && !read(file).contains("#![forbid(unsafe_code)]") {
                breaches.push(format!("{}: no #![forbid(unsafe_code)]", shown(file)));
            }
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn modules_say_what_they_are_and_stay_short() {
    let mut breaches = Vec::new();
    for file in sources() {
        let text = read(&file);
        if !text.starts_with("//! ") {
            breaches.push(format!("{}: its first line is no //! header", shown(&file)));
        }
        let lines = lines_without_tests(&text);
        if lines > MODULE_LINES_MAX && file.components().any(|part| part.as_os_str() == "src") {
            breaches.push(format!(
                "{}: {lines} lines without tests, at most {MODULE_LINES_MAX}",
                shown(&file)
            ));
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        if EMPTY_NAMES.contains(&stem.as_ref()) {
            breaches.push(format!("{}: a name that says nothing", shown(&file)));
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn a_module_is_measured_to_its_end_less_the_tests_within() {
    let [tests, more] = [&format!("{TEST}mod tests;\n"), "fn a() {\n}\n"];
    let within = format!("{TEST}mod tests {{\n    fn b() {{\n    }}\n}}\n");
    for (text, lines) in [
        (format!("{more}{within}"), 2),
        (format!("{within}{more}"), 2),
        (format!("{tests}{more}{within}{more}"), 6),
        (format!("{TEST}fn a() {{\n}}\n"), 3),
    ] {
        assert_eq!(lines_without_tests(&text), lines, "{text}");
    }
}

#[test]
fn the_code_map_has_every_crate_its_directories_and_all_modules_of_the_engine() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    let (_, map) = architecture
        .split_once("\n## Code map\n")
        .expect("there is a code map");
    let map = map.split("\n## ").next().unwrap_or(map);
    let mut missing = Vec::new();
    for name in crate_names() {
        let Some((_, rest)) = map.split_once(&format!("\n**`{name}`** — ")) else {
            missing.push(name);
            continue;
        };
        let told = rest.split("\n**`").next().unwrap_or(rest);
        for module in top_modules(&name) {
            let is_told =
                told.contains(&format!("`{module}/")) || told.contains(&format!("`{module}.rs`"));
            if !is_told {
                missing.push(format!("{name}: {module}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The directories right below a crate's source; of the engine the files, too.
fn top_modules(name: &str) -> BTreeSet<String> {
    let source = root().join("crates").join(name).join("src");
    let entries = fs::read_dir(source)
        .expect("a crate has a source")
        .flatten();
    let entries = entries.filter(|entry| name == "engine" || entry.path().is_dir());
    let stems = entries.filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()));
    stems.filter(|stem| stem != "lib").collect()
}

#[test]
fn what_a_test_lacks_is_said_in_one_place() {
    let words = [
        concat!("eprintln!(\"skip", "ped"),
        concat!("eprintln!(\"not r", "un"),
    ];
    let said = |file: &&PathBuf| {
        let text = read(file);
        words.iter().any(|word| text.contains(word))
    };
    let files = sources();
    let found: Vec<String> = files.iter().filter(said).map(|file| shown(file)).collect();
    assert_eq!(found, ["crates/testkit/src/skip.rs"]);
}

#[test]
fn what_the_repository_keeps_beside_code_is_bounded() {
    let mut git = std::process::Command::new("git");
    let listed = git.args(["ls-files", "-z"]).current_dir(root()).output();
    let Some(listed) = listed.ok().filter(|listed| listed.status.success()) else {
        return testkit::lacks("git's list", "what is unpacked from an archive has none");
    };
    let names = String::from_utf8(listed.stdout).expect("names are text");
    let files = names
        .split('\0')
        .filter(|name| !CODE.iter().any(|ending| name.ends_with(ending)))
        .filter_map(|name| fs::symlink_metadata(root().join(name)).ok());
    let bytes: u64 = files
        .filter(|file| file.is_file())
        .map(|file| file.len())
        .sum();
    assert!(bytes <= BESIDE_CODE_BYTES_MAX, "{bytes} bytes");
}

#[test]
fn globs_are_preludes_tests_or_a_modules_own_parts() {
    let mut breaches = Vec::new();
    for file in sources() {
        for (number, line) in read(&file).lines().enumerate() {
            let imports = line.trim_start();
            let is_glob = imports.starts_with("use ") && imports.ends_with("::*;");
            if is_glob
                && !["prelude::*", "super::"]
                    .iter()
                    .any(|fine| imports.contains(fine))
            {
                breaches.push(format!("{}:{}: {imports}", shown(&file), number + 1));
            }
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn files_that_the_architecture_names_are_there() {
    let known: Vec<String> = text_files(&root(), &["rs", "c", "sh", "md", "toml"])
        .iter()
        .map(|file| format!("/{}", shown(file)))
        .collect();
    let mut documents = text_files(&root().join("docs/architecture"), &["md"]);
    documents
        .extend(["ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md"].map(|name| root().join(name)));
    let mut missing = Vec::new();
    for document in documents {
        let text = read(&document);
        for name in text.split('`').skip(1).step_by(2) {
            let is_file = [".rs", ".c", ".sh", ".md"]
                .iter()
                .any(|end| name.ends_with(end));
            let end = format!("/{name}");
            if is_file && !known.iter().any(|file| file.ends_with(&end)) {
                missing.push(format!("{}: {name}", shown(&document)));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn nothing_is_left_to_do_or_tied_to_a_machine() {
    // Written in two halves, so that this file does not find itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
    ];
    let mut breaches = Vec::new();
    let documents = text_files(
        &root(),
        &["rs", "toml", "md", "sh", "html", "css", "service"],
    );
    for file in documents {
        // A panel's customers do have their homes there.
        if shown(&file).contains("hestiacp") {
            continue;
        }
        for (number, line) in read(&file).lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                breaches.push(format!("{}:{}: {word}", shown(&file), number + 1));
            }
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn documentation_holds_no_code_that_nothing_runs() {
    // Of no crate are tests of documentation built: `doctest = false`.
    let is_fence = |line: &str| line.trim_start().starts_with("//") && line.contains("```");
    let breaches: Vec<String> = sources()
        .into_iter()
        .filter(|file| read(file).lines().any(is_fence))
        .map(|file| shown(&file))
        .collect();
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn an_ignored_test_says_why() {
    let bare = concat!("#[igno", "re]");
    let breaches: Vec<String> = sources()
        .into_iter()
        .filter(|file| read(file).contains(bare))
        .map(|file| shown(&file))
        .collect();
    assert!(breaches.is_empty(), "{breaches:#?}");
}
