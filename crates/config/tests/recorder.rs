//! What a configuration says of the recorder.

use config::Sources;
use config::model::{Recorder, SaltTime};

use crate::written;

const SITE: &str =
    "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[sites]]\nhosts = [\"*\"]\nroot = \"/srv\"\n";

fn recorder(lines: &str) -> Recorder {
    let text =
        format!("{SITE}record = false\n[recorder]\ndirectory = \"/var/lib/figures\"\n{lines}");
    let model = written::model(&text);
    assert!(!model.sites[0].record);
    model.recorder.expect("a recorder")
}

fn problem(lines: &str) -> String {
    let text = format!("{SITE}[recorder]\ndirectory = \"/var/lib/figures\"\n{lines}\n");
    written::problems(&written::sources(&text))
}

#[test]
fn what_is_recorded_may_be_said_in_one_line() {
    let usual = recorder("");
    assert_eq!(
        (usual.salt, usual.nice, usual.user),
        (SaltTime::Day, 10, None)
    );
    assert_eq!(usual.searches, ["q", "s", "query", "search"]);
    let other = recorder(
        "salt = \"week\"\nexclude = [\"192.0.2.0/24\"]\nexclude_cookie = \"not-me\"\ndo_not_track = true\n\
         search = []\ngroups = { \"Example.org/press\" = \"Press\" }\nnice = 0\ncountries = \"a.mmdb\"\n",
    );
    assert_eq!(
        other.groups,
        [("example.org/press".to_owned(), "Press".to_owned())]
    );
    let countries = other.countries.expect("a file of countries");
    assert!(countries.is_absolute() && countries.ends_with("a.mmdb"));
    assert!(other.searches.is_empty() && other.do_not_track);
    assert_eq!((usual.send, other.send), (None, None));
    let url = "postgres://nagaya@10.0.0.5/history?password_file=/etc/nagaya/db&tls=on";
    let send = recorder(&format!("send = \"{url}\"\n")).send;
    let send = send.expect("a database");
    assert_eq!((&*send.database, send.tls), ("history", true));
}

#[test]
fn a_database_elsewhere_that_is_not_spoken_to_over_tls_is_warned_of() {
    for (url, is_warned) in [
        ("postgres://n@10.0.0.5/history", true),
        ("postgres://n@10.0.0.5/history?tls=on", false),
        ("postgres://n@127.0.0.1/history", false),
        (
            "postgres://n@/history?socket=/run/postgresql/.s.PGSQL.5432",
            false,
        ),
    ] {
        let text =
            format!("{SITE}[recorder]\ndirectory = \"/var/lib/figures\"\nsend = \"{url}\"\n");
        let warnings = written::warnings(&written::sources(&text));
        assert_eq!(
            warnings.contains("over TLS"),
            is_warned,
            "{url}: {warnings}"
        );
    }
}

#[test]
fn what_could_not_be_recorded_by_is_refused() {
    for (lines, said) in [
        ("exclude_cookie = \"a b\"", "cannot be a cookie's name"),
        ("exclude = [\"home\"]", "home"),
        ("groups = { \"a\" = \"\" }", "a text of 1 to 100 bytes"),
        ("user = \"root\"", "root"),
        ("nice = 20", "19"),
        ("salt = \"year\"", "`month`"),
        ("send = \"mysql://n@a/b\"", "is no PostgreSQL"),
        ("send = \"postgres://n:secret@a/b\"", "password_file="),
    ] {
        let problem = problem(lines);
        assert!(problem.contains(said), "{lines}: {problem}");
    }
}

#[test]
fn a_file_of_countries_that_cannot_be_read_is_a_warning_alone() {
    let directory = testkit::TempDir::new();
    let at = |name: &str| directory.path().join(name);
    let network = ([203, 0, 113, 0], 24, "JP");
    std::fs::write(
        at("good.mmdb"),
        testkit::countries::country_file(&[network]),
    )
    .expect("written");
    std::fs::write(at("bad.mmdb"), "<html>").expect("written");
    for (file, said) in [
        ("good.mmdb", None),
        ("bad.mmdb", Some("no database of countries")),
        ("none.mmdb", Some("none.mmdb")),
        (".", Some("a directory, not a file")),
    ] {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[sites]]\nhosts = [\"*\"]\nrules = [{{ handler = {{ respond = {{ status = 204 }} }} }}]\n\
             [recorder]\ndirectory = \"figures\"\ncountries = \"{file}\"\n"
        );
        std::fs::write(at("nagaya.toml"), text).expect("written");
        let sources = Sources::read(&at("nagaya.toml")).expect("a configuration");
        let (model, warnings) = config::load_and_warn(&sources).expect("a model");
        assert!(model.recorder.is_some_and(|it| it.countries.is_some()));
        let warnings = warnings.to_string();
        let is_said = warnings.contains("cannot tell countries by");
        assert_eq!(is_said, said.is_some(), "{file}: {warnings}");
        assert!(warnings.contains(said.unwrap_or_default()), "{warnings}");
    }
}
