//! Broken configurations and what is said of them.
//!
//! Two tables in `tests/vectors/config`: `messages`, short ones checked for their message, and
//! whole files whose full text of problems is kept beside them. `NAGAYA_BLESS=1` rewrites the latter.

use std::path::PathBuf;

use config::{Sources, load};

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";
const SITE: &str = "[[sites]]\nhosts = [\"*\"]\nroot = \"/var/www\"\n";
const RULE: &str = "[[sites.rules]]\nhandler = { static = true }\n";
/// A mistake put into every configuration, to see that one problem does not hide another.
const SECOND: &str = "[log]\nlevel = \"inffo\"\n";

fn vectors() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/config"
    ))
}

/// A configuration whose only mistakes are `broken` and the second one.
fn configuration(place: &str, broken: &str) -> String {
    let text = match place {
        "top" => format!("{broken}\n{LISTEN}{SITE}"),
        "listen" => format!("{SITE}[[listen]]\n{broken}"),
        "upstream" => format!("{LISTEN}{SITE}[upstreams.app]\n{broken}"),
        "site" => format!("{LISTEN}[[sites]]\n{broken}"),
        "rooted site" => format!("{LISTEN}{SITE}{broken}"),
        "rule" => format!("{LISTEN}{SITE}[[sites.rules]]\n{broken}"),
        "match" => format!("{LISTEN}{SITE}{RULE}match = {{ {broken} }}"),
        "handler" => format!("{LISTEN}{SITE}[[sites.rules]]\nhandler = {{ {broken} }}"),
        "proxy" => {
            let proxy = format!("proxy = {{ upstream = \"http://a:1\", {broken} }}");
            return configuration("handler", &proxy);
        }
        other => panic!("no such place: {other}"),
    };
    format!("{text}\n{SECOND}")
}

fn check(place: &str, broken: &str, expected: &[&str]) {
    let text = configuration(place, broken);
    let problems = load(&Sources::from_text("nagaya.toml", &text)).expect_err(&text);
    let told = problems.to_string();
    for message in expected {
        assert!(
            told.contains(message),
            "expected: {message}\n{text}\n{told}"
        );
    }
    assert!(
        told.contains("`level` must be `error`, `warn`, `info`, `debug` or `trace`"),
        "{told}"
    );
    assert!(told.contains("did you mean `info`?"), "{told}");
    assert_eq!(problems.count(), 1 + expected.len(), "{text}\n{told}");
}

#[test]
fn every_mistake_has_its_message_and_hides_no_other() {
    let table = std::fs::read_to_string(vectors().join("messages")).unwrap();
    let mut place = "";
    let mut count = 0;
    for line in table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let mut parts = line.split(" => ");
        let broken = parts.next().unwrap_or_default().replace('⏎', "\n");
        let expected: Vec<&str> = parts.collect();
        if expected.is_empty() {
            place = line.trim_matches(['[', ']']);
        } else {
            check(place, &broken, &expected);
            count += 1;
        }
    }
    assert!(count >= 150, "{count} rows");
}

#[test]
fn what_is_too_long_or_too_deep_is_refused() {
    let long = format!("address = \"unix:/{}\"", "x".repeat(107));
    check(
        "listen",
        &long,
        &["the path of a Unix socket has at most 107 bytes, not 108"],
    );
    let deep = format!("{}path = \"/\"{}", "not = { ".repeat(10), " }".repeat(10));
    check("match", &deep, &["`not` stands in `not` more than 8 times"]);
}

#[test]
fn an_upstream_is_suggested() {
    let upstream = "[upstreams.application]\nservers = [\"a:1\"]\n";
    let text = format!(
        "{upstream}{}",
        configuration("handler", "proxy = \"aplication\"")
    );
    let told = load(&Sources::from_text("nagaya.toml", &text))
        .expect_err(&text)
        .to_string();
    assert!(told.contains("did you mean `application`?"), "{told}");
}

#[test]
fn a_bad_line_of_a_password_file_is_named() {
    let sha = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=";
    let neither = "the hash of `alice` is none that is read: bcrypt ($2y$), ";
    let dear = "the hash of `alice` takes too long to compare: ";
    let digest = "c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";
    let forty_three = "0123456789abcdefghijklmnopqrstuvwxyz./ABCDE";
    for (line, expected) in [
        ("alice", "no `:` between user and hash"),
        (":x", "no user before the `:`"),
        ("alice:secret", neither),
        ("alice:rl.3StKT.4T8M", neither),
        ("alice:$1$saltsalt$0123456789abcdefghijkl", neither),
        ("alice:$2y$05$tooshort", neither),
        (&format!("alice:$2y$31${digest}"), dear),
        (&format!("alice:$2y$03${digest}"), neither),
        (&format!("alice:$2x$05${digest}"), neither),
        ("alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g", neither),
        ("alice:$apr1$$x", neither),
        ("alice:$5$salt$short", neither),
        (&format!("alice:$5$a:b${forty_three}"), neither),
        (&format!("alice:$5$rounds=999$salt${forty_three}"), neither),
        (&format!("alice:$5$rounds=500001$salt${forty_three}"), dear),
        (
            &format!("alice:$5$rounds=99999999999$salt${forty_three}"),
            dear,
        ),
        (&format!("alice:$6$salt${forty_three}"), neither),
        (&format!("alice:$y$j9T$${forty_three}"), neither),
        (&format!("alice:$y$j9T.0$salt${forty_three}"), neither),
        (&format!("alice:$y$jCT$salt${forty_three}"), dear),
        (&format!("alice:$y$jjj$salt${forty_three}"), dear),
        (&format!("alice:$y$jz9$salt${forty_three}"), neither),
        (&format!("a:{sha}\na:{sha}"), "user `a` stands there twice"),
    ] {
        let text = configuration("rooted site", "auth = { file = \"/passwords\" }");
        let fine = format!(
            "ok:$2y$05${digest}\nsha:$5$rounds=500000$salt${forty_three}\nyes:$y$jBT$salt${forty_three}"
        );
        let content = format!("# users\n{fine}\n{line}\n");
        let sources = Sources::from_text("nagaya.toml", &text);
        let sources = sources.with_file("/passwords", content.as_bytes());
        let told = load(&sources).expect_err(line).to_string();
        let number = content.lines().count();
        let expected = format!("password file `/passwords:{number}`: {expected}");
        assert!(told.contains(&expected), "{expected}\n{told}");
    }
}

#[test]
fn what_is_wrong_with_groups_is_told_with_the_passwords() {
    let files = "file = \"/passwords\", group_file = \"/groups\"";
    for (auth, groups, expected) in [
        (
            files,
            "staff: a",
            "`group_file` says nothing without `require`",
        ),
        (
            "file = \"/passwords\", require = [\"staff\"]",
            "",
            "`require` says nothing without `group_file`",
        ),
        (
            &format!("{files}, require = []"),
            "staff: a",
            "`require` is empty: nobody is let in",
        ),
        (
            &format!("{files}, require = [\"stuff\"]"),
            "staff: a",
            "did you mean `staff`?",
        ),
        (
            &format!("{files}, require = [\"staff\"]"),
            "#\nstaff: a\nb c\n",
            "group file `/groups:3`: no `:` behind the group",
        ),
        (
            &format!("{files}, require = [\"a b\"]"),
            "a b: c\n",
            "group file `/groups:1`: no group before the `:`",
        ),
    ] {
        let text = configuration("rooted site", &format!("auth = {{ {auth} }}"));
        let sources = Sources::from_text("nagaya.toml", &text)
            .with_file("/passwords", b"x\n")
            .with_file("/groups", groups.as_bytes());
        let told = load(&sources).expect_err(auth).to_string();
        assert!(told.contains(expected), "{expected}\n{told}");
        assert!(told.contains("password file `/passwords:1`"), "{told}");
    }
}

#[test]
fn a_file_wrong_for_many_sites_is_told_once() {
    let auth = "auth = { file = \"/passwords\" }";
    let site = |number| format!("[[sites]]\nhosts = [\"h{number}\"]\nroot = \"/\"\n{auth}\n");
    let sites: String = (0..50).map(site).collect();
    let sources = Sources::from_text("nagaya.toml", &format!("{LISTEN}{sites}"));
    let sources = sources.with_file("/passwords", b"x\n");
    assert_eq!(load(&sources).expect_err("x").count(), 1);
}

#[test]
fn the_first_hundred_of_many_problems_are_shown() {
    let keys: String = (0..500)
        .map(|number| format!("key{number} = 1\n"))
        .collect();
    let sources = Sources::from_text("nagaya.toml", &format!("{keys}{LISTEN}{SITE}"));
    let problems = load(&sources).expect_err("keys");
    assert_eq!((problems.count(), problems.problems().len()), (500, 100));
    assert!(
        problems
            .to_string()
            .ends_with("500 problems, 400 of them not shown\n")
    );
}

#[test]
fn colours_are_escapes_around_the_same_text() {
    let sources = Sources::from_text("nagaya.toml", &configuration("top", "workers = 0"));
    let problems = load(&sources).expect_err("workers");
    let plain = problems.render(config::Colour::Never);
    let mut painted = problems.render(config::Colour::Always);
    assert!(!plain.contains('\x1b'));
    for escape in ["\x1b[31;1m", "\x1b[34;1m", "\x1b[1m", "\x1b[0m"] {
        assert!(painted.contains(escape));
        painted = painted.replace(escape, "");
    }
    assert_eq!(painted, plain);
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let sources = Sources::from_text("nagaya.toml", "\"a\\u001b[31m\" = 1 # \x1b[32m\n");
    let told = load(&sources).expect_err("a key").to_string();
    assert!(!told.contains('\x1b'), "{told:?}");
}

#[test]
fn whole_files_are_answered_word_for_word() {
    let bless = std::env::var_os("NAGAYA_BLESS").is_some();
    let entries = std::fs::read_dir(vectors()).unwrap();
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    names.sort();
    assert!(names.len() >= 12, "{} files", names.len());
    for path in names {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let problems = load(&Sources::from_text(&name, &text)).expect_err(&name);
        assert!(problems.count() > 1, "{name} has one problem only");
        let told = problems.to_string();
        let expected = path.with_extension("txt");
        if bless {
            std::fs::write(&expected, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&expected).unwrap_or_default();
        assert!(told == expected, "{name}:\n{told}\ninstead of\n{expected}");
    }
}
