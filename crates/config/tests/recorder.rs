//! What a configuration says of the recorder.

use config::model::{Recorder, SaltTime};
use config::{Sources, dump, load};

const SITE: &str =
    "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[sites]]\nhosts = [\"*\"]\nroot = \"/srv\"\n";

fn recorder(lines: &str) -> Recorder {
    let text =
        format!("{SITE}record = false\n[recorder]\ndirectory = \"/var/lib/figures\"\n{lines}");
    let loaded = |text: &str| {
        let sources = Sources::from_text("nagaya.toml", text);
        load(&sources).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
    };
    let model = loaded(&text);
    assert_eq!(loaded(&dump(&model)), model, "{}", dump(&model));
    assert!(!model.sites[0].record);
    model.recorder.expect("a recorder")
}

fn problem(lines: &str) -> String {
    let text = format!("{SITE}[recorder]\ndirectory = \"/var/lib/figures\"\n{lines}\n");
    let sources = Sources::from_text("nagaya.toml", &text);
    load(&sources).expect_err(lines).to_string()
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
         search = []\ngroups = { \"Example.org/press\" = \"Press\" }\nnice = 0\n",
    );
    assert_eq!(
        other.groups,
        [("example.org/press".to_owned(), "Press".to_owned())]
    );
    assert!(other.searches.is_empty() && other.do_not_track);
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
    ] {
        let problem = problem(lines);
        assert!(problem.contains(said), "{lines}: {problem}");
    }
}
