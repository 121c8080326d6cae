//! What a configuration says of maps, and of what is asked of them.

use config::model::{Condition, Handler, MapSource, Model, TemplatePart};
use config::{Sources, dump, load};

const BEFORE: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n\
    [maps.load]\nprogram = [\"perl\", \"load.pl\"]\n[maps.moved]\nfile = \"moved.txt\"\n";

fn with(rules: &str) -> String {
    format!("{BEFORE}[[sites]]\nhosts = [\"*\"]\n{rules}\n")
}

fn rule(conditions: &str) -> String {
    with(&format!(
        "[[sites.rules]]\nmatch = {{ {conditions} }}\nhandler = {{ redirect = \"/\" }}"
    ))
}

fn redirect(target: &str) -> String {
    with(&format!(
        "[[sites.rules]]\nhandler = {{ redirect = \"{target}\" }}"
    ))
}

fn map(lines: &str) -> String {
    format!(
        "user = \"www\"\n{}[maps.one]\n{lines}\n",
        with("root = \"/srv\"")
    )
}

fn sources(text: &str) -> Sources {
    Sources::from_text("/etc/nagaya/nagaya.toml", text)
}

fn model(text: &str) -> Model {
    let loaded =
        |text: &str| load(&sources(text)).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
    let model = loaded(text);
    let printed = dump(&model);
    assert_eq!(loaded(&printed), model, "{printed}");
    model
}

#[test]
fn a_program_is_the_servers_users_and_starts_beside_the_configuration() {
    let model = model(&map("program = [\"./a b\", \"\", \"$x\"]"));
    let MapSource::Program(program) = &model.maps[2].source else {
        panic!("a program");
    };
    assert_eq!(program.command, ["./a b", "", "$x"]);
    assert_eq!(program.directory.to_str(), Some("/etc/nagaya"));
    assert_eq!((&*program.user, program.has_own_user), ("www", false));
    assert_eq!((program.timeout_ms, program.processes), (2_000, 1));
    assert!(program.cache.is_none() && program.on_error.is_none());
}

#[test]
fn numbers_are_read_as_they_are_written() {
    let conditions = "map = \"load\", key = \"$host\", above = -3, below = 1_0.50";
    let model = model(&rule(conditions));
    let [Condition::Map(asked)] = &model.sites[0].rules[0].conditions[..] else {
        panic!("a condition");
    };
    assert_eq!((asked.above, asked.below), (Some(-3.0), Some(10.5)));
    assert_eq!((asked.map, asked.answered), (0, true));
}

#[test]
fn a_text_asks_with_a_key_and_a_default() {
    let model = model(&redirect("${moved:$host${path}|/lost/$query}#$$${load:}"));
    let Some(Handler::Redirect(redirect)) = &model.sites[0].rules[0].handler else {
        panic!("a redirect");
    };
    let [
        TemplatePart::Map(first),
        TemplatePart::Text(text),
        TemplatePart::Map(second),
    ] = &redirect.target.parts[..]
    else {
        panic!("three pieces: {:?}", redirect.target);
    };
    assert_eq!((first.map, text.as_str(), second.map), (1, "#$", 0));
    assert_eq!(first.key.parts, [TemplatePart::Host, TemplatePart::Path]);
    assert_eq!(first.default.parts.len(), 2);
    assert!(second.key.parts.is_empty() && second.default.parts.is_empty());
}

#[test]
fn what_makes_no_sense_is_told() {
    for (text, expected) in [
        (rule("map = \"lod\", above = 3"), "did you mean `load`?"),
        (rule("map = \"other\""), "describe it: `[maps.other]`"),
        (rule("above = 3"), "`above` says nothing without `map`"),
        (rule("map = \"load\", above = \"3\""), "write 3"),
        (rule("map = \"load\", above = nan"), "can be compared"),
        (
            rule("map = \"load\", answered = false, equals = \"x\""),
            "`answered = false` for none",
        ),
        (
            rule("map = \"load\", above = 3, below = 3"),
            "no number is above 3 and below 3",
        ),
        (
            rule("map = \"load\", key = \"a\\nb\""),
            "may not stand in `key`",
        ),
        (
            rule("map = \"load\", key = \"${moved:x}\""),
            "hold no other map",
        ),
        (redirect("/${lod:$path}"), "did you mean `load`?"),
        (redirect("/${load:${moved:x}}"), "hold no other map"),
        (redirect("/${load:$nothing}"), "unknown variable `$nothing`"),
        (redirect("/${load:$path"), "a `}` is missing"),
        (redirect("/${load:%{HTTP_HOST}}"), "did you mean `$host`?"),
        (redirect("/%{REQUEST_URI}"), "did you mean `$request_uri`?"),
        (
            rule("map = \"load\", key = \"%{HTTP:X-A}\""),
            "known are `$host`, `$path`",
        ),
        (redirect("/${load:$remote_addr}"), "did you mean `$client`?"),
        (map(""), "has neither `program` nor `file`"),
        (map("program = []"), "names no program"),
        (map("program = \"perl load.pl\""), "must be a list"),
        (
            map("program = \"prg:/etc/httpd/load.pl a  b\""),
            "write [\"/etc/httpd/load.pl\", \"a\", \"b\"]",
        ),
        (
            map("program = [\"prg:/etc/load.pl\", \"a\"]"),
            "leave out `prg:`: \"/etc/load.pl\"",
        ),
        (
            map("program = [\"perl load.pl\"]"),
            "[\"perl\", \"load.pl\"]",
        ),
        (map("program = [\"a\"]\nfile = \"b\""), "not both"),
        (
            map("file = \"b\"\ncache = \"1s\""),
            "says nothing of a `file`",
        ),
        (
            map("program = [\"a\"]\nuser = \"root\""),
            "must not run as root",
        ),
        (
            map("program = [\"a\"]\non_error = \"a\\nb\""),
            "a line of text",
        ),
        (
            format!("{}[maps.\"a b\"]\nfile = \"x\"\n", with("root = \"/srv\"")),
            "cannot be a map's name",
        ),
    ] {
        let problems = load(&sources(&text)).expect_err(&text).to_string();
        assert!(problems.contains(expected), "{text}\n{problems}");
    }
}
