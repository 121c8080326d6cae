//! `nagaya import`: what it writes, what it leaves alone when run again, and that it is served.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use testkit::client::{Body, reply};
use testkit::{Gateway, RawClient, TempDir};

use crate::readme::NAGAYA;

/// Runs `nagaya import` with a file that holds this.
fn import(kind: &str, directory: &TempDir, text: &str, more: &[&str]) -> Output {
    let source = directory.write("source.conf", text);
    let mut command = Command::new(NAGAYA);
    command.args(["import", kind, source.to_str().unwrap()]);
    command.args(more).current_dir(directory.path());
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8(both).unwrap()
}

fn nginx(root: &Path, names: &[&str]) -> String {
    let root = root.display();
    let server = |name: &&str| {
        format!(
            "server {{\n listen 127.0.0.1:8080;\n server_name {name};\n root {root};\n location /in/ {{ deny all; }}\n}}\n"
        )
    };
    names.iter().map(server).collect()
}

#[test]
fn what_is_imported_is_served() {
    let directory = TempDir::new();
    directory.write("htdocs/index.html", "<p>imported</p>");
    directory.write("htdocs/in/a.html", "<p>secret</p>");
    let text = nginx(&directory.path().join("htdocs"), &["a.example"]);
    let output = import("nginx", &directory, &text, &["--listen", "none"]);
    // That the first server answers no strangers wants a look.
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("sites.d: 1 written, 0 as they were, 0 removed"),
        "{}",
        said(&output)
    );
    let sites = directory.path().join("sites.d/*.toml");
    let config = format!(
        "include = [\"{}\"]\n[[listen]]\naddress = \"127.0.0.1:{{port}}\"\n",
        sites.display()
    );
    let gateway = Gateway::with_config(NAGAYA, &config).start();
    for (path, status) in [("/", 200), ("/in/a.html", 403)] {
        let mut client = RawClient::connect(gateway.address());
        let head = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        client.send(head.as_bytes());
        assert_eq!(
            reply(client.read_reply(Body::Framed)).status,
            status,
            "{path}"
        );
    }
}

#[test]
fn another_import_changes_and_removes_only_what_nobody_has_changed() {
    let directory = TempDir::new();
    directory.write("htdocs/index.html", "");
    let root = directory.path().join("htdocs");
    let at = |name: &str| directory.path().join("sites.d").join(name);
    let names = ["a.example", "b.example", "c.example"];
    let first = import("nginx", &directory, &nginx(&root, &names), &[]);
    assert!(
        said(&first).contains("sites.d: 4 written"),
        "{}",
        said(&first)
    );
    let again = import("nginx", &directory, &nginx(&root, &names), &[]);
    assert!(
        said(&again).contains("0 written, 4 as they were, 0 removed"),
        "{}",
        said(&again)
    );
    let by_hand = fs::read_to_string(at("b.example.toml")).unwrap() + "# mine\n";
    fs::write(at("b.example.toml"), &by_hand).unwrap();
    fs::write(at("own.toml"), "# mine as well\n").unwrap();
    let changed = nginx(&root, &["a.example", "b.example"]).replace("/in/", "/inner/");
    let output = import("nginx", &directory, &changed, &[]);
    assert!(
        said(&output).contains("1 written, 1 as they were, 1 removed"),
        "{}",
        said(&output)
    );
    assert!(
        said(&output).contains("b.example.toml was changed by hand and is left alone"),
        "{}",
        said(&output)
    );
    assert!(
        fs::read_to_string(at("a.example.toml"))
            .unwrap()
            .contains("/inner/*")
    );
    assert_eq!(fs::read_to_string(at("b.example.toml")).unwrap(), by_hand);
    assert!(
        fs::read_to_string(at("b.example.imported"))
            .unwrap()
            .contains("/inner/*")
    );
    assert!(!at("c.example.toml").exists() && at("own.toml").exists());
    let left = fs::read_dir(directory.path().join("sites.d")).unwrap();
    let hidden = left
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0, "nothing is left of trying");
}

#[test]
fn an_import_leaves_alone_what_another_source_was_imported_from() {
    let directory = TempDir::new();
    directory.write("htdocs/index.html", "");
    let root = directory.path().join("htdocs");
    let at = |name: &str| directory.path().join("sites.d").join(name);
    let none = ["--listen", "none"];
    import(
        "nginx",
        &directory,
        &nginx(&root, &["a.example", "b.example"]),
        &none,
    );
    let first = fs::read_to_string(at("a.example.toml")).unwrap();
    let host = |name: &str| {
        let root = root.display();
        format!("<VirtualHost *:80>\nServerName {name}\nDocumentRoot {root}\n</VirtualHost>\n")
    };
    let hosts = host("a.example") + &host("c.example");
    let output = import("apache", &directory, &hosts, &none);
    assert!(
        said(&output).contains("1 written, 0 as they were, 0 removed"),
        "{}",
        said(&output)
    );
    assert!(
        said(&output).contains("a.example.toml is of nginx"),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read_to_string(at("a.example.toml")).unwrap(), first);
    assert!(at("b.example.toml").exists() && at("c.example.toml").exists());
    assert!(at("a.example.imported").exists());
    // Somebody is at work on what lies beside it.
    fs::write(at("a.example.imported"), "# half done\n").unwrap();
    import("apache", &directory, &hosts, &none);
    let beside = fs::read_to_string(at("a.example.imported")).unwrap();
    assert_eq!(beside, "# half done\n");
}

#[test]
fn a_site_that_fails_today_keeps_its_file_of_yesterday() {
    let directory = TempDir::new();
    directory.write("htdocs/index.html", "");
    directory.write("other/index.html", "");
    let site = |place: &str, name: &str| nginx(&directory.path().join(place), &[name]);
    let both = site("htdocs", "a.example") + &site("other", "b.example");
    import("nginx", &directory, &both, &[]);
    let file = directory.path().join("sites.d/b.example.toml");
    let yesterday = fs::read_to_string(&file).unwrap();
    // As a disk that is not mounted for a moment.
    fs::remove_dir_all(directory.path().join("other")).unwrap();
    let output = import("nginx", &directory, &both, &[]);
    assert!(
        said(&output).contains("b.example is left out"),
        "{}",
        said(&output)
    );
    assert!(said(&output).contains("0 removed"), "{}", said(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), yesterday);
}

#[test]
fn a_site_that_this_machine_cannot_have_is_left_out_and_told() {
    let directory = TempDir::new();
    directory.write("htdocs/index.html", "");
    let fine = nginx(&directory.path().join("htdocs"), &["a.example"]);
    let lacking = nginx(&directory.path().join("gone"), &["b.example"]);
    let output = import(
        "nginx",
        &directory,
        &format!("{fine}{lacking}"),
        &["--report", "report.json"],
    );
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("b.example is left out"),
        "{}",
        said(&output)
    );
    let sites = directory.path().join("sites.d");
    assert!(sites.join("a.example.toml").exists() && !sites.join("b.example.toml").exists());
    let report = fs::read_to_string(directory.path().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let lines = report["lines"].as_array().unwrap();
    let root = lines
        .iter()
        .find(|line| line["text"].as_str().unwrap().ends_with("/gone"))
        .unwrap();
    assert_eq!(root["class"], "not carried");
}

#[test]
fn apaches_text_is_read_and_what_is_none_is_refused() {
    let directory = TempDir::new();
    directory.write("htdocs/index.html", "");
    let root = directory.path().join("htdocs");
    let host = format!(
        "<VirtualHost *:80>\nServerName a.example\nDocumentRoot {}\n</VirtualHost>\n",
        root.display()
    );
    let output = import("apache", &directory, &host, &["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["files"][0], "a.example", "{report}");
    let wrong = import("apache", &directory, "<VirtualHost *:80>\n", &[]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        said(&wrong).contains("source.conf:1: <VirtualHost> is not closed"),
        "{}",
        said(&wrong)
    );
    assert!(
        said(&wrong).contains("= help: give what `apache2ctl -t -D DUMP_CONFIG` prints"),
        "{}",
        said(&wrong)
    );
    let missing = Command::new(NAGAYA)
        .args(["import", "nginx", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn an_import_of_nothing_is_refused_and_leaves_what_is_there() {
    let directory = TempDir::new();
    directory.write("htdocs/index.html", "");
    let root = directory.path().join("htdocs").display().to_string();
    let host =
        format!("<VirtualHost *:80>\nServerName a.example\nDocumentRoot {root}\n</VirtualHost>\n");
    let at = |name: &str| directory.path().join("sites.d").join(name);
    import("apache", &directory, &host, &["--listen", "127.0.0.1:8080"]);
    let files = || ["00-import.toml", "a.example.toml"].map(|name| fs::read(at(name)).unwrap());
    let before = files();
    for (kind, text, told) in [
        ("apache", "", "a2enmod info"),
        ("apache", "Syntax OK\n", "a2enmod info"),
        ("nginx", "\n# nothing\n", "nginx -T"),
    ] {
        let output = import(kind, &directory, text, &[]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        for told in ["there is no line of configuration", told] {
            assert!(said(&output).contains(told), "{}", said(&output));
        }
        assert_eq!(files(), before);
    }
    // Lines without a site leave what is there as well.
    let output = import("apache", &directory, "ServerTokens Prod\n", &[]);
    assert!(
        said(&output).contains("no site was: it is left alone"),
        "{}",
        said(&output)
    );
    assert_eq!(files(), before);
}

#[test]
fn an_address_without_a_host_is_refused_before_anything_is_read() {
    let directory = TempDir::new();
    for flag in ["--listen", "--listen-tls"] {
        let output = import("apache", &directory, "Listen 80\n", &[flag, "21181"]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("such as 127.0.0.1:8080"),
            "{}",
            said(&output)
        );
        assert!(!directory.path().join("sites.d").exists());
    }
}
