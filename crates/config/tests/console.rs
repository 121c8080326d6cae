//! What a configuration says of the console, and who could look at one that is refused.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use config::model::{Console, Handler};
use config::{Sources, dump, load};

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";
const RECORDED: &str = "[recorder]\ndirectory = \"/var/lib/figures\"\n";
const HERE: &str = "allow = [\"127.0.0.0/8\", \"::1\"]\n";
const SECRET: &[u8] = b"  0123456789abcdef0123456789abcdef\n";

fn sources(text: &str) -> Sources {
    Sources::from_text("/etc/nagaya/nagaya.toml", text)
        .with_file("/etc/nagaya/console.key", SECRET)
        .with_file("/etc/nagaya/short.key", b"secret\n")
        .with_file(
            "/etc/nagaya/users",
            b"alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n",
        )
}

/// A console on a site of its own, and a site of the tenant `example`.
fn site(lines: &str, rule: &str) -> String {
    format!(
        "{LISTEN}[[sites]]\nhosts = [\"www.example\"]\ntenant = \"example\"\nroot = \"/srv\"\n\
         [[sites]]\nhosts = [\"console.example\"]\n{lines}\n[[sites.rules]]\n{rule}\n{RECORDED}"
    )
}

fn console(lines: &str, rule: &str) -> Console {
    let text = site(lines, rule);
    let loaded =
        |text: &str| load(&sources(text)).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
    let model = loaded(&text);
    assert_eq!(loaded(&dump(&model)), model, "{}", dump(&model));
    let handler = model.sites[1].rules[0].handler.clone();
    match handler.expect("a handler") {
        Handler::Console(console) => *console,
        other => panic!("{other:?}"),
    }
}

fn problem(text: &str) -> String {
    load(&sources(text)).expect_err(text).to_string()
}

#[test]
fn a_file_of_passwords_that_is_missing_is_told_and_not_what_follows_from_it() {
    let auth = "auth = { file = \"/etc/nagaya/nobody\" }\n";
    let handler = "handler = { console = true }";
    for text in [site(auth, handler), site("", &format!("{auth}{handler}"))] {
        let told = problem(&text);
        assert!(told.contains("/etc/nagaya/nobody"), "{told}");
        assert!(!told.contains("everybody could look"), "{told}");
    }
    let told = problem(&site("", &format!("auth = false\n{handler}")));
    assert!(told.contains("everybody could look"), "{told}");
}

#[test]
fn a_console_shows_everything_or_what_is_some_tenants() {
    let all = console(HERE, "handler = { console = true }");
    assert_eq!(
        (all.base.as_str(), &all.tenants, &all.secret),
        ("/", &None, &None)
    );
    let own = console(HERE, "handler = { console = \"$tenant\" }");
    assert_eq!(own.tenants, Some(vec!["$tenant".to_owned()]));
    let some = console(
        HERE,
        "handler = { console = { tenants = [\"example\", \"$tenant\"] } }",
    );
    assert_eq!(some.tenants.map(|it| it.len()), Some(2));
}

#[test]
fn a_console_stands_below_the_path_of_its_rule() {
    for (paths, base) in [
        ("\"/console/*\"", "/console/"),
        ("[\"/a/b\", \"/a/b/*\"]", "/a/b/"),
        ("\"/*\"", "/"),
    ] {
        let rule = format!("match = {{ path = {paths} }}\nhandler = {{ console = true }}");
        assert_eq!(console(HERE, &rule).base, base);
    }
    for condition in [
        "path = \"/console*\"",
        "path = \"/console\"",
        "path = [\"/a/*\", \"/b/*\"]",
        "path = \"/a*/*\"",
        "path = \"/日本/*\"",
        "path_regex = \"^/c/\"",
    ] {
        let rule = format!("match = {{ {condition} }}\nhandler = {{ console = true }}");
        let said = problem(&site(HERE, &rule));
        assert!(
            said.contains("below which path it stands"),
            "{condition}: {said}"
        );
    }
}

#[test]
fn a_console_that_everybody_could_look_at_is_refused() {
    let (rule, open) = (
        "handler = { console = true }",
        "everybody could look at this console",
    );
    let auth = "auth = { file = \"users\" }";
    let earlier = |condition: &str| format!("{condition}\n{auth}\n[[sites.rules]]\n{rule}");
    for (lines, rule) in [
        (auth.to_owned(), rule.to_owned()),
        (String::new(), format!("{rule}\n{auth}")),
        (String::new(), format!("{rule}\nallow = [\"127.0.0.1\"]")),
        (
            String::new(),
            "handler = { console = { link_secret = \"console.key\" } }".to_owned(),
        ),
        (
            "tls = { client_ca = \"users\", redirect = true }".to_owned(),
            rule.to_owned(),
        ),
    ] {
        console(&lines, &rule);
    }
    load(&sources(&site("", &earlier("")))).expect("a rule for all asks");
    for (lines, rule) in [
        (String::new(), rule.to_owned()),
        (
            "allow = [\"127.0.0.1\", \"192.0.2.1\"]".to_owned(),
            rule.to_owned(),
        ),
        ("allow = [\"0.0.0.0/0\"]".to_owned(), rule.to_owned()),
        ("allow = [\"::/0\"]".to_owned(), rule.to_owned()),
        (
            "tls = { client_ca = \"users\" }".to_owned(),
            rule.to_owned(),
        ),
        (
            "tls = { client_ca = \"users\", client_auth = \"ask\", redirect = true }".to_owned(),
            rule.to_owned(),
        ),
        (String::new(), earlier("match = { path = \"/other\" }")),
    ] {
        let said = problem(&site(&lines, &rule));
        assert!(said.contains(open), "{lines}\n{rule}: {said}");
    }
}

#[test]
fn a_console_of_what_is_others_has_its_site_alone() {
    let rule = "match = { path = \"/console/*\" }\nhandler = { console = true }";
    let own = ["\"$tenant\"", "{ tenants = [\"console.example\"] }"];
    let own = own.map(|shown| rule.replace("true", shown));
    let of_others = rule.replace("true", "{ tenants = [\"$tenant\", \"example\"] }");
    for (lines, rest) in [
        ("root = \"/srv\"", ""),
        (
            "",
            "[[sites.rules]]\nhandler = { proxy = \"http://127.0.0.1:9000\" }",
        ),
        ("[[sites.mounts]]\npath = \"/own\"\nroot = \"/srv/own\"", ""),
    ] {
        let whole = |rule: &str| site(&format!("{HERE}{lines}"), &format!("{rule}\n{rest}"));
        for rule in [rule, &of_others] {
            let said = problem(&whole(rule));
            assert!(
                said.contains("their pages could read it"),
                "{lines}: {said}"
            );
        }
        for own in &own {
            load(&sources(&whole(own))).expect("a tenant's own eyes");
        }
    }
    let plain = format!("{rule}\n[[sites.rules]]\nhandler = {{ redirect = \"/console/\" }}");
    load(&sources(&site(HERE, &plain))).expect("a redirect reads nothing");
}

#[test]
fn what_a_console_could_not_show_is_refused() {
    let rule = "handler = { console = true }";
    let without = site(HERE, rule).replace(RECORDED, "");
    assert!(problem(&without).contains("there is no `[recorder]`"));
    for (console, said) in [
        ("false", "must be `true`, `\"$tenant\"` or a table"),
        ("\"example\"", "must be `true`, `\"$tenant\"` or a table"),
        ("{ tenants = [] }", "names nobody"),
        ("{ tenants = [\"exampel\"] }", "did you mean `example`?"),
        ("{ link_secret = \"short.key\" }", "holds 6 bytes"),
        ("{ link_secret = \"missing.key\" }", "missing.key"),
    ] {
        let problem = problem(&site(HERE, &format!("handler = {{ console = {console} }}")));
        assert!(problem.contains(said), "{console}: {problem}");
    }
}

#[test]
fn no_secret_of_a_console_is_served_or_printed() {
    let text = site(
        HERE,
        "handler = { console = { link_secret = \"console.key\" } }",
    );
    let model = load(&sources(&text)).expect("it loads");
    let mut guarded = model.guarded.iter();
    assert!(guarded.any(|it| it.path.ends_with("console.key")));
    assert!(!format!("{model:?}").contains("0123456789abcdef"));
}

#[test]
fn a_secret_that_everybody_may_read_is_warned_of() {
    let directory = testkit::TempDir::new();
    let key = directory.write("console.key", SECRET);
    let (shared, own) = (0o644, 0o600);
    for (mode, is_warned) in [(shared, true), (own, false)] {
        std::fs::set_permissions(&key, Permissions::from_mode(mode)).expect("ours");
        let console = format!("handler = {{ console = {{ link_secret = {key:?} }} }}");
        let text = site(HERE, &console)
            .replace("/var/lib/figures", &directory.path().display().to_string());
        let config = directory.write("nagaya.toml", &text);
        let sources = Sources::read(&config).map_err(|it| it.to_string());
        let sources = sources.expect("it is there");
        let (_, warnings) =
            config::load_and_warn(&sources).unwrap_or_else(|problems| panic!("{problems}"));
        let said = warnings.to_string();
        assert_eq!(
            said.contains("every user of this machine may read"),
            is_warned,
            "{said}"
        );
    }
}
