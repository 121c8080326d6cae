//! What the documents show works: configurations are checked, commands are run, links lead
//! somewhere.
//!
//! Absolute paths of a real machine (`/srv`, `/etc/nagaya`, `/run`, `/var` and others) are moved
//! below a temporary directory, and addresses to free ports; nothing else is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::temp::copy;
use testkit::{Gateway, TempDir, free_port};

use crate::fixtures::tls::certificate;

pub(crate) const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");

/// Documents whose blocks are run.
const DOCUMENTS: [&str; 27] = [
    "README.md",
    "README.ja.md",
    "docs/guide/tour.md",
    "docs/guide/tour.ja.md",
    "docs/guide/getting-started.md",
    "docs/guide/static-files.md",
    "docs/guide/balancer.md",
    "docs/guide/compression.md",
    "docs/guide/proxy.md",
    "docs/guide/php.md",
    "docs/guide/htaccess.md",
    "docs/guide/pools.md",
    "docs/guide/cgi.md",
    "docs/guide/cgroups.md",
    "docs/guide/limits.md",
    "docs/guide/maps.md",
    "docs/guide/directory.md",
    "docs/guide/overload.md",
    "docs/guide/scripts.md",
    "docs/guide/from-mod-mruby-and-ngx-mruby.md",
    "docs/guide/from-apache.md",
    "docs/guide/from-nginx.md",
    "docs/guide/tls.md",
    "docs/guide/logs-and-status.md",
    "docs/guide/upgrade.md",
    "docs/guide/ab.md",
    "docs/guide/measuring.md",
];

/// Beginnings of lines that change the machine they run on; shown, not run.
const NOT_RUN: [&str; 4] = [
    "sudo apt install ",
    "sudo systemctl ",
    "sudo nagaya reload",
    "sudo nagaya upgrade",
];

#[test]
fn every_configuration_shown_is_right() {
    let mut shown = 0;
    for document in DOCUMENTS {
        for block in blocks(document, "toml") {
            let machine = Machine::new();
            let config = machine.write("nagaya.toml", &block);
            write_named_files(&machine.directory, &block, document);
            let output = run(NAGAYA, &["check", "-c", &config.display().to_string()]);
            assert!(output.0, "{document}:\n{block}\n{}", output.1);
            shown += 1;
        }
    }
    assert!(shown >= 10, "only {shown} configurations found");
}

#[test]
fn every_script_shown_is_ruby() {
    let mut shown = 0;
    for document in DOCUMENTS {
        for block in blocks(document, "ruby") {
            let directory = TempDir::new();
            let script = directory.write("shown.rb", &block).display().to_string();
            let output = run(NAGAYA, &["script", "check", &script]);
            assert!(output.0, "{document}:\n{block}\n{}", output.1);
            shown += 1;
        }
    }
    assert!(shown >= 5, "only {shown} scripts found");
}

#[test]
fn every_command_shown_works() {
    let demo = demo();
    let mut tried = 0;
    for document in DOCUMENTS {
        let machine = Machine::new();
        let served = blocks(document, "toml").into_iter().next().map(|first| {
            machine.write("site.toml", &first);
            machine.serve(&first, document)
        });
        for line in blocks(document, "sh")
            .iter()
            .flat_map(|block| block.lines())
        {
            let line = line.split("   #").next().unwrap_or(line).trim();
            if try_line(line, &demo, &machine, served.as_ref(), document) {
                tried += 1;
            }
        }
    }
    assert!(tried >= 15, "only {tried} commands found");
}

#[test]
fn the_diagnostics_shown_are_what_check_prints() {
    let guide = "docs/guide/getting-started.md";
    let config = blocks(guide, "toml").remove(0).replace("hosts", "hots");
    let directory = TempDir::new();
    directory.write("site.toml", config);
    let mut command = Command::new(NAGAYA);
    command
        .args(["check", "-c", "site.toml"])
        .current_dir(directory.path());
    let output = command.output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.trim(), blocks(guide, "text").remove(0).trim());
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = read(&document);
        let parts: Vec<&str> = text.split("](").collect();
        // Without a text it is the method `[]`.
        let links = parts
            .windows(2)
            .filter(|parts| !parts[0].ends_with('['))
            .filter_map(|parts| parts[1].split(')').next());
        for link in links {
            let path = link.split('#').next().unwrap_or_default();
            let directory = document.parent().expect("a file is in a directory");
            if !path.is_empty() && !path.contains("://") && !directory.join(path).exists() {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Runs a line of a `sh` block, or says that it is none to be run.
fn try_line(
    line: &str,
    demo: &Gateway,
    machine: &Machine,
    served: Option<&Gateway>,
    document: &str,
) -> bool {
    if let Some(target) = line.strip_prefix("make ") {
        let makefile = read(&root().join("Makefile"));
        let target = target.split(' ').next().unwrap_or(target);
        assert!(
            makefile.contains(&format!("\n{target}: ## ")),
            "{document}: no such target: {line}"
        );
        return true;
    }
    if NOT_RUN.iter().any(|beginning| line.starts_with(beginning))
        || line.starts_with("nagaya serve ")
        || line.is_empty()
        || line == "make"
    {
        return false;
    }
    let (command, directory) = on_this_machine(line, demo, machine, served, document);
    let output = Command::new("sh")
        .args(["-c", &command])
        .current_dir(directory)
        .output()
        .expect("sh runs");
    // A comparison or a search says by its status what it found.
    let finds = [" --vs ", " --until "]
        .iter()
        .any(|flag| command.contains(flag));
    let found = finds && matches!(output.status.code(), Some(1 | 3));
    // A search is interrupted where it takes long, and ends as one does that is, without a result.
    let is_interrupted = command.contains(" --until ") && output.status.code() == Some(130);
    assert!(
        output.status.success() || found || is_interrupted,
        "{document}: {command}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        is_interrupted || !output.stdout.is_empty(),
        "{document}: {command} says nothing"
    );
    true
}

/// The program of experiments, built beside the gateway.
pub(crate) fn nagaya_lab() -> String {
    let program = Path::new(NAGAYA).with_file_name("nagaya-lab");
    assert!(program.exists(), "first: cargo build -p lab");
    program.display().to_string()
}

/// The command of a line with paths and addresses of this machine, and where it is run.
fn on_this_machine(
    line: &str,
    demo: &Gateway,
    machine: &Machine,
    served: Option<&Gateway>,
    document: &str,
) -> (String, PathBuf) {
    if line.starts_with("curl ") {
        let directory = demo.directory().path().to_owned();
        let tls_port = read(&directory.join("tls_port"));
        let line = line
            .replace("127.0.0.1:8080", &demo.address().to_string())
            .replace("localhost:8443", &format!("localhost:{tls_port}"));
        (line, directory)
    } else if let Some(rest) = line.strip_prefix("nagaya bench ") {
        // A search that takes long is interrupted, and says what it has found.
        let bound = match rest.contains(" --until ") {
            true => "timeout --preserve-status --signal=INT --kill-after=60 30 ",
            false => "",
        };
        let rest = measure_shortly(rest, demo);
        (
            format!("{bound}'{NAGAYA}' bench {rest}"),
            machine.directory.path().to_owned(),
        )
    } else if let Some(rest) = line.strip_prefix("nagaya-lab run ") {
        let results = machine
            .directory
            .path()
            .join("results")
            .display()
            .to_string();
        let short = format!("--only '{rest} 13 B' --blocks 1 --requests 50 --output {results}");
        (format!("{} run {rest} {short}", nagaya_lab()), root())
    } else if line == "nagaya-lab list" {
        (format!("{} list", nagaya_lab()), root())
    } else if let Some(rest) = line.strip_prefix("nagaya ") {
        let config = served
            .expect("a document with commands has a configuration")
            .directory()
            .path()
            .join("nagaya.toml");
        let rest = rest.replace("/etc/nagaya/nagaya.toml", &config.display().to_string());
        (
            format!("'{NAGAYA}' {rest}"),
            machine.directory.path().to_owned(),
        )
    } else {
        panic!("{document}: a line nothing runs: {line}");
    }
}

/// What is shown of `nagaya bench`, with the demo for its servers and the times of a test.
fn measure_shortly(arguments: &str, demo: &Gateway) -> String {
    let port = demo.address().port().to_string();
    let tls_port = read(&demo.directory().path().join("tls_port"));
    let mut words: Vec<String> = Vec::new();
    for word in arguments.split(' ') {
        words.push(match words.last().map(String::as_str) {
            Some("--duration" | "--cooldown") => "300ms".to_owned(),
            Some("--listen") => port.clone(),
            _ => word
                .replace("127.0.0.1:8080", &format!("127.0.0.1:{port}"))
                .replace("127.0.0.1:8081", &format!("127.0.0.1:{port}"))
                .replace("localhost:8443", &format!("localhost:{tls_port}")),
        });
    }
    let shorter = match arguments {
        text if text.contains(" --vs ") => " --blocks 1 --block 100ms",
        text if text.contains(" --until ") => " --duration 200ms --connections 4",
        text if text.contains("-n ") => "",
        // A machine that stands still through the warm-up records something all the same.
        text if text.contains("--duration ") => " --warm-up none",
        _ => " --duration 300ms --warm-up none",
    };
    words.join(" ") + shorter
}

/// The gateway that `make run` starts, on free ports.
fn demo() -> Gateway {
    let config = read(&root().join("nagaya.toml"))
        .replace("127.0.0.1:8080", "127.0.0.1:{port}")
        .replace("127.0.0.1:8443", "127.0.0.1:{tls}");
    let tls_port = free_port();
    let demo = Gateway::with_config(NAGAYA, &config).with("tls", tls_port);
    let directory = demo.directory();
    copy(&root().join("examples"), &directory.path().join("examples"));
    directory.write("tls_port", tls_port.to_string());
    demo.start()
}

/// A stand-in for the machine the documents speak of.
pub(crate) struct Machine {
    pub(crate) directory: TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new();
        directory.write("srv/example/htdocs/index.html", "<p>hello</p>\n");
        directory.write("srv/example/current/htdocs/index.html", "<p>hello</p>\n");
        for page in ["404.html", "broken.html", "busy.html"] {
            directory.write(&format!("srv/example/errors/{page}"), "<p>not here</p>\n");
        }
        directory.write(
            "etc/nagaya/htpasswd",
            read(&root().join("examples/demo/htpasswd")),
        );
        directory.write("etc/nagaya/denied", "# nobody\n");
        directory.write("etc/nagaya/groups", "staff: alice\nboard: bob\n");
        for place in [
            "etc/ssl/customers",
            "run/nagaya",
            "srv/cgi-bin",
            "srv/pictures",
            "srv/shops",
            "srv/tools",
            "srv/wiki/htdocs",
            "var/www/html",
            "var/log/nagaya",
            "var/lib/nagaya/cache",
            "var/lib/nagaya/customers",
            "sites.d",
        ] {
            fs::create_dir_all(directory.path().join(place))
                .expect("a fresh directory takes another");
        }
        Machine { directory }
    }

    pub(crate) fn write(&self, name: &str, config: &str) -> PathBuf {
        self.directory.write(name, self.moved(config))
    }

    pub(crate) fn serve(&self, config: &str, document: &str) -> Gateway {
        let mut config = self.moved(config);
        for address in ["0.0.0.0:80", "127.0.0.1:8080", "0.0.0.0:443"] {
            config = config.replacen(&format!("\"{address}\""), "\"127.0.0.1:{port}\"", 1);
        }
        // Whoever runs the tests need not know a web server's user.
        let config = config.replace("\"www-data\"", "\"daemon\"");
        // A busy machine takes its time over scripts, too.
        let config = match config.contains("[scripts]\n") {
            true => config.replacen("[scripts]\n", "[scripts]\ncpu = \"1s\"\n", 1),
            false => config + "\n[scripts]\ncpu = \"1s\"\n",
        };
        let gateway = Gateway::with_config(NAGAYA, &config);
        let sites = gateway.directory().path().join("sites.d");
        fs::create_dir(sites).expect("a fresh directory takes another");
        write_named_files(gateway.directory(), &config, document);
        gateway.start()
    }

    fn moved(&self, config: &str) -> String {
        let here = self.directory.path().display();
        let mut config = config.to_owned();
        for place in [
            "/srv/",
            "/etc/nagaya/",
            "/etc/letsencrypt/",
            "/etc/ssl/",
            "/run/nagaya/",
            "/var/",
        ] {
            config = config.replace(&format!("\"{place}"), &format!("\"{here}{place}"));
        }
        config
    }
}

/// Writes the scripts that a configuration names: as the document shows them, below their names, or
/// ones that do nothing; the maps, with a line; and a certificate.
pub(crate) fn write_named_files(directory: &TempDir, config: &str, document: &str) {
    let shown = blocks(document, "ruby");
    for name in config.split('"').filter(|word| word.starts_with("hooks/")) {
        let heading = format!("# {name}\n");
        let script = shown.iter().find(|block| block.starts_with(&heading));
        directory.write(name, script.map_or("nil\n", String::as_str));
    }
    for name in config.split('"').filter(|word| word.starts_with("maps/")) {
        directory.write(name, "a.example 127.0.0.1:8081\n");
    }
    if config.contains("\"certs/*.pem\"") {
        let place = directory.path().join("certs");
        fs::create_dir(&place).expect("a fresh directory takes another");
        certificate(&place.join("www.pem"), &["www.example.jp"]);
    }
    if config.contains("lib = [\"lib\"]") {
        directory.write("lib/shop/cart.rb", "nil\n");
    }
}

/// The fenced blocks of a document in one language.
pub(crate) fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = read(&root().join(document));
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(fence) = line.strip_prefix("```").filter(|fence| !fence.is_empty()) {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if fence == language {
                found.push(block.join("\n") + "\n");
            }
        }
    }
    found
}

/// Every Markdown file at the top, below docs/ and of the examples.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in [
        ".",
        "docs",
        "docs/guide",
        "docs/architecture",
        "docs/reference",
        "examples/scripts",
    ] {
        let entries = fs::read_dir(root().join(directory)).expect("a directory of this project");
        found.extend(
            entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|e| e == "md")),
        );
    }
    assert!(found.len() > 10, "the documents are found");
    found
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("the binary runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/nagaya is two levels deep")
        .to_owned()
}
