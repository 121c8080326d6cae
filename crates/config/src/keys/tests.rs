//! The table of keys is complete and true: examples load and do something, defaults are the
//! defaults, and whatever loads is printed so that it loads again.

use proptest::prelude::*;

use super::{Fallback, Key, SECTIONS, Section};
use crate::model::Model;
use crate::{Sources, dump, load};

const HTPASSWD: &[u8] = b"alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n";
const GROUPS: &[u8] = b"staff: alice\nothers: bob\n";

/// Keys whose example the model does not show: `include` and what it says act before it.
const SILENT: &[&str] = &["include", "broken"];

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";
const SITE: &str = "[[sites]]\nhosts = [\"*\"]\nroot = \"/var/www\"\n";

/// What a limit limits, and what other keys of it say nothing without.
const LIMITING: &[&str] = &["concurrent = 2", "rate = \"5/s\""];

/// Keys that take the place of another.
const INSTEAD: &[(&str, &str)] = &[
    ("code", "file"),
    ("script", "upstream"),
    ("sensor", "enter"),
    ("page", "redirect"),
    ("file", "program"),
    ("file", "cache"),
    ("below", "above"),
];

const ACME: &str = "[acme.le]\ndirectory = \"https://ca.example/\"\n[acme.other]\ndirectory = \"https://b.example/\"\n";

const CONSOLE_SITE: &str = "[[sites]]\nhosts = [\"*\"]\nallow = [\"127.0.0.1\"]\n[[sites.rules]]\n";

const RECORDED: &str = "[recorder]\ndirectory = \"/srv/figures\"\n";

const MAPS: &str = "[maps.ldavg]\nprogram = [\"true\"]\n[maps.load]\nfile = \"load.txt\"\n";

/// What stands around a section's keys to make a configuration that loads.
struct Frame {
    before: String,
    /// Lines of the section itself, unless an example sets the same key.
    own: &'static [&'static str],
    after: String,
}

fn frame(section: &Section) -> Frame {
    let frame = |before: &str, own, after: &str| Frame {
        before: before.to_owned(),
        own,
        after: after.to_owned(),
    };
    let table = |title: &str, own| frame(&format!("{LISTEN}{SITE}{title}\n"), own, "\n");
    let within =
        |before: &str, own, after: &str| frame(&format!("{LISTEN}{SITE}{before}"), own, after);
    match section.title {
        "top level" => {
            let own = &[
                "listen = [{ address = \"127.0.0.1:8080\" }]",
                "sites = [{ hosts = [\"*\"], root = \"/var/www\", cgroup = { pids = 5 }, rules = [{ handler = { php = true } }] }]",
            ];
            frame("", own, "\n")
        }
        "include = [{ … }]" => {
            let own = &["files = \"sites.d/*.toml\""];
            frame("include = [{ ", own, &format!(" }}]\n{LISTEN}{SITE}"))
        }
        "[control]" => table(section.title, &["socket = \"/run/other.sock\""]),
        "[[listen]]" => {
            let own = &["address = \"unix:/run/front.sock\""];
            frame("[[listen]]\n", own, &format!("\n{SITE}"))
        }
        "proxy_protocol = { … }" => {
            let before = format!("{LISTEN}proxy_protocol = {{ ");
            frame(
                &before,
                &["from = [\"192.0.2.1\"]"],
                &format!(" }}\n{SITE}"),
            )
        }
        "[upstreams.NAME]" => table("[upstreams.app]", &["servers = [\"127.0.0.1:9001\"]"]),
        "tls = { … } of [upstreams.NAME]" => {
            let before = "[upstreams.app]\nservers = [\"127.0.0.1:9001\"]\ntls = { ";
            within(before, &["certificate = \"certs/own.pem\""], " }\n")
        }
        "servers = [{ … }]" => {
            let own = &["address = \"127.0.0.1:9001\""];
            within("[upstreams.app]\nservers = [{ ", own, " }]\n")
        }
        "[[sites]]" => {
            let own = &[
                "hosts = [\"*\"]",
                "root = \"/var/www/html\"",
                "cgroup = { pids = 5 }",
            ];
            frame(&format!("{LISTEN}[[sites]]\n"), own, "\n")
        }
        "tls = { … } of [[listen]]" => {
            let before = "[[listen]]\naddress = \"127.0.0.1:8080\"\ntls = { ";
            frame(before, &[], &format!(" }}\n{SITE}"))
        }
        "tls = { … } of [[sites]]" => {
            let own = &[
                "certificate = \"certs/a.pem\"",
                "client_ca = \"certs/staff.pem\"",
            ];
            within("tls = { ", own, &format!(" }}\n{ACME}"))
        }
        "[recorder]" => {
            let own = &["directory = \"/srv/figures\""];
            frame(&format!("{LISTEN}{SITE}[recorder]\n"), own, "")
        }
        "[directories.NAME]" => {
            let own = &[
                "source = \"postgres://nagaya@db.internal/hosting\"",
                "query = \"SELECT tenant FROM domains WHERE host = $host\"",
                "memcached = \"cache.internal:11211\"",
            ];
            frame(&format!("{LISTEN}{SITE}[directories.customers]\n"), own, "")
        }
        "[acme.NAME]" => {
            let own = &[
                "directory = \"https://ca.example/directory\"",
                "dns = { program = [\"true\"] }",
            ];
            let other = "\n[acme.other]\ndirectory = \"https://b.example/\"\n[maps.customers]\nfile = \"customers.txt\"\n";
            frame(&format!("{LISTEN}{SITE}[acme.le]\n"), own, other)
        }
        "eab = { … }" => {
            let own = &["id = \"kid-2\"", "key = \"other.key\""];
            let before = "[acme.le]\ndirectory = \"https://ca.example/\"\neab = { ";
            within(before, own, " }\n")
        }
        "on_demand = { … }" => {
            let before = format!(
                "{MAPS}[maps.customers]\nfile = \"customers.txt\"\n[acme.le]\ndirectory = \"https://ca.example/\"\non_demand = {{ "
            );
            within(&before, &["map = \"load\""], " }\n")
        }
        "dns = { … } of [acme.NAME]" => {
            let before = "[acme.le]\ndirectory = \"https://ca.example/\"\nchallenges = [\"dns-01\"]\ndns = { ";
            within(before, &["program = [\"true\"]"], " }\n")
        }
        "export = { … } of [acme.NAME]" => {
            let before = "[acme.le]\ndirectory = \"https://ca.example/\"\nexport = { ";
            let own = &["directory = \"/srv/own\"", "owner = \"daemon\""];
            within(before, own, " }\n")
        }
        "auth = { … }" => {
            let own = &[
                "file = \"/etc/nagaya/htpasswd\"",
                "group_file = \"/etc/nagaya/other-groups\"",
                "require = [\"others\"]",
            ];
            within("auth = { ", own, " }\n")
        }
        "[[sites.mounts]]" => table(section.title, &["path = \"/own\"", "root = \"/srv/own\""]),
        "htaccess = { … }" => {
            let own = &["override = [\"All\"]"];
            let rest = " }\n[[sites.rules]]\nhandler = { php = true }\n[php.\"8.2\"]\nprogram = \"/opt/php/sbin/php-fpm\"\n";
            within("htaccess = { ", own, rest)
        }
        "directories = [{ … }]" => {
            let own = &["path = \"/srv/own\"", "override = []"];
            within(
                "htaccess = { override = [], directories = [{ ",
                own,
                " }] }\n",
            )
        }
        "deny = { … }" => within("deny = { ", &["file = \"/etc/nagaya/others\""], " }\n"),
        "compress = { … }" => within("compress = { ", &[], " }\n"),
        "request_headers, reply_headers" => within("reply_headers = { ", &[], " }\n"),
        "[tenants.NAME]" => table("[tenants.example]", &["cgroup = { pids = 5 }"]),
        "[[shed]]" => table(section.title, &["sensor = \"load1\"", "enter = 3.5"]),
        "[[alerts]]" => {
            let own = &["figure = \"load1\"", "above = 3.5", "run = [\"true\"]"];
            let before = "[recorder]\ndirectory = \"/srv\"\n[tenants.example]\n[[alerts]]";
            table(before, own)
        }
        "respond = { … } of [[shed]]" => {
            let before = "[[shed]]\nsensor = \"load1\"\nenter = 3.5\nrespond = { ";
            within(before, &["redirect = \"/busy\""], " }\n")
        }
        "[maps.NAME]" => table("[maps.ldavg]", &["program = [\"true\"]", "cache = \"1s\""]),
        "[php.VERSION]" => {
            let rule = "[[sites.rules]]\nhandler = { php = true }\n[php.\"8.2\"]\n";
            within(rule, &[], "\n")
        }
        "pool = { … }" => {
            let rest = " }\n[[sites.rules]]\nhandler = { php = true }\n[php.\"8.3\"]\nprogram = \"/opt/php/sbin/php-fpm\"\n";
            within("pool = { ", &["php = \"8.2\""], rest)
        }
        "cgroup = { … }" => within("cgroup = { ", &["cpu = \"50%\""], " }\n"),
        "io = { … }" => {
            let own = &["device = \"/dev/vdb\"", "read_ops = 5"];
            within("cgroup = { io = { ", own, " } }\n")
        }
        "limits = [{ … }]" => within("limits = [{ ", LIMITING, " }]\n"),
        "class = [{ … }]" => {
            let own = &["match = { method = \"POST\" }"];
            within("[tenants.a]\nclass = [{ ", own, " }]\n")
        }
        "env.NAME = { … }" => within("env = { A = { ", &["value = \"1\""], " } }\n"),
        "rewrite = [{ … }]" => {
            let own = &["from = \"^/(b)([0-9]*)\"", "to = \"/c\""];
            within("rewrite = [{ ", own, " }]\n")
        }
        "[[sites.rules]]" => {
            let own = &["handler = { static = true }", "cgroup = { pids = 5 }"];
            table(section.title, own)
        }
        title => frame_of_rule(section).unwrap_or_else(|| table(title, &[])),
    }
}

/// The frame of what stands within a rule, if it does.
fn frame_of_rule(section: &Section) -> Option<Frame> {
    let within = |before: &str, own, after: &str| Frame {
        before: format!("{LISTEN}{SITE}{before}"),
        own,
        after: after.to_owned(),
    };
    Some(match section.title {
        "match = { … }" => within(
            "[[sites.rules]]\nhandler = { static = true }\nmatch = { ",
            &["map = \"ldavg\""],
            &format!(" }}\n{MAPS}"),
        ),
        "match.header.NAME = { … }" => within(
            "[[sites.rules]]\nhandler = { static = true }\nmatch = { header = { A = { ",
            &["regex = \"x\""],
            " } } }\n",
        ),
        "handler = { … }" => within("[[sites.rules]]\nhandler = { ", &[], " }\n"),
        "log = { … } of a rule" => within(
            "[[sites.rules]]\nhandler = { static = true }\nlog = { ",
            &[],
            " }\n",
        ),
        "proxy = { … }" => {
            let own = &["upstream = \"http://127.0.0.1:9000\""];
            within("[[sites.rules]]\nhandler = { proxy = { ", own, " } }\n")
        }
        "proxy_redirect = { … }" => {
            let before = "[[sites.rules]]\nhandler = { proxy = { upstream = \"http://a\", \
                          proxy_redirect = { ";
            within(before, &[], " } } }\n")
        }
        "fastcgi = { … }" => {
            let own = &["address = \"127.0.0.1:9000\""];
            within("[[sites.rules]]\nhandler = { fastcgi = { ", own, " } }\n")
        }
        "php = { … }" => within("[[sites.rules]]\nhandler = { php = { ", &[], " } }\n"),
        "app = { … }" => {
            let own = &["command = [\"./serve\"]", "directory = \"/srv/other\""];
            within("[[sites.rules]]\nhandler = { app = { ", own, " } }\n")
        }
        "cgi = { … }" => within("[[sites.rules]]\nhandler = { cgi = { ", &[], " } }\n"),
        "params = { … }" => {
            let before = "[[sites.rules]]\nhandler = { cgi = { params = { ";
            within(before, &[], " } } }\n")
        }
        "scripts = { … }" => within("scripts = { ", &[], " }\n"),
        "caps = { … }" => within("caps = { ", &[], " }\n"),
        "timeouts = { … }" => within("timeouts = { ", &[], " }\n"),
        "script = { … }" => {
            let own = &["file = \"hooks/other.rb\""];
            within("scripts = { access = { ", own, " } }\n")
        }
        "console = { … }" => Frame {
            before: format!("{LISTEN}{CONSOLE_SITE}handler = {{ console = {{ "),
            own: &["link_secret = \"other.key\""],
            after: format!(" }} }}\n{RECORDED}"),
        },
        "respond = { … }" => within("[[sites.rules]]\nhandler = { respond = { ", &[], " } }\n"),
        _ => return None,
    })
}

/// A configuration in which the section holds `lines`.
fn framed(section: &Section, lines: &[&str]) -> String {
    let frame = match lines {
        // It stands alone on its site, and somebody asks who comes.
        ["console = true"] => Frame {
            before: format!("{LISTEN}{CONSOLE_SITE}handler = {{ "),
            own: &[],
            after: format!(" }}\n{RECORDED}"),
        },
        // It is of limits that tenants share.
        ["reserve = { shop = 2 }"] => Frame {
            before: "limits = [{ ".to_owned(),
            own: LIMITING,
            after: format!(" }}]\n{LISTEN}{SITE}tenant = \"shop\"\n"),
        },
        // Without one nobody would look at them.
        [line] if line.starts_with("alerts = [{") => Frame {
            after: "\n[recorder]\ndirectory = \"/srv/figures\"\n".to_owned(),
            ..frame(section)
        },
        _ => frame(section),
    };
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let set: Vec<String> = lines.iter().map(|line| name(line)).collect();
    let displaced = INSTEAD
        .iter()
        .filter(|(one, _)| set.contains(&(*one).to_owned()));
    let displaced: Vec<&str> = displaced.map(|(_, other)| *other).collect();
    let stays = |own: &str| !set.contains(&own.to_owned()) && !displaced.contains(&own);
    let own = frame.own.iter().filter(|line| stays(&name(line)));
    let all: Vec<&str> = own.chain(lines).copied().collect();
    frame.around(&all)
}

impl Frame {
    fn around(&self, lines: &[&str]) -> String {
        let separator = if self.before.ends_with("{ ") {
            ", "
        } else {
            "\n"
        };
        format!("{}{}{}", self.before, lines.join(separator), self.after)
    }
}

fn sources(text: &str) -> Sources {
    Sources::from_text("/etc/nagaya/nagaya.toml", text)
        .with_file("/etc/nagaya/htpasswd", HTPASSWD)
        .with_file("/etc/nagaya/groups", GROUPS)
        .with_file("/etc/nagaya/console.key", &[b'k'; 32])
        .with_file("/etc/nagaya/other.key", &[b'o'; 64])
        .with_file("/etc/nagaya/other-groups", GROUPS)
        .with_php("8.2", "/usr/sbin/php-fpm8.2")
        .with_file("/etc/ssl/certs/ca-certificates.crt", b"PEM")
        .with_file("/etc/nagaya/certs/internal.pem", b"PEM")
        .with_file("/etc/nagaya/hooks/init.rb", b"p 1")
        .with_file("/etc/nagaya/certs/staff.pem", b"authorities")
        .with_file("/etc/nagaya/certs/other.pem", b"others")
        .with_file("/etc/nagaya/pages/404.html", b"gone")
        .with_file("/etc/nagaya/pages/busy.html", b"busy")
}

fn model(text: &str) -> Model {
    load(&sources(text)).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

fn every_key() -> impl Iterator<Item = (&'static Section, &'static Key)> {
    SECTIONS
        .iter()
        .flat_map(|section| section.keys.iter().map(move |key| (*section, key)))
}

#[test]
fn every_key_is_described() {
    for (section, key) in every_key() {
        let name = format!("{} {}", section.title, key.name);
        assert!(key.about.ends_with('.'), "{name}: description");
        assert!(key.example.contains(key.name), "{name}: example");
        let default = match key.default {
            Fallback::Required => "required",
            Fallback::Value(text) | Fallback::Absent(text) => text,
        };
        let empty_text =
            matches!(key.default, Fallback::Value("")) && matches!(key.kind, super::Kind::Text);
        assert!(!default.is_empty() || empty_text, "{name}: default");
        assert_eq!(
            section
                .keys
                .iter()
                .filter(|other| other.name == key.name)
                .count(),
            1,
            "{name}: twice"
        );
        assert!(
            !section.later.contains(&key.name),
            "{name}: both now and later"
        );
    }
}

#[test]
fn every_example_loads_and_does_something() {
    for (section, key) in every_key() {
        let with = model(&framed(section, &[key.example]));
        assert_eq!(
            model(&dump(&with)),
            with,
            "{} is printed otherwise",
            key.example
        );
        if matches!(key.default, Fallback::Required) || SILENT.contains(&key.name) {
            continue;
        }
        let bare = match section.title {
            // Without an example there would be no handler or condition at all.
            "handler = { … }" => framed(section, &["redirect = \"/other\""]),
            "match = { … }" => framed(section, &["path = \"/other\""]),
            _ => framed(section, &[]),
        };
        assert_ne!(
            with,
            model(&bare),
            "{} {} does nothing",
            section.title,
            key.name
        );
    }
}

#[test]
fn every_default_is_what_leaving_the_key_out_means() {
    for (section, key) in every_key() {
        let Fallback::Value(value) = key.default else {
            continue;
        };
        let line = format!("{} = {}", key.name, key.kind.quoted(value));
        let (with, bare) = match (section.title, key.name) {
            ("handler = { … }", _) => (
                vec!["redirect = \"/\"".to_owned(), line],
                vec!["redirect = \"/\""],
            ),
            _ => (vec![line], vec![]),
        };
        let with: Vec<&str> = with.iter().map(String::as_str).collect();
        let with = model(&framed(section, &with));
        assert_eq!(
            with,
            model(&framed(section, &bare)),
            "{} {}",
            section.title,
            key.name
        );
    }
}

#[test]
fn every_required_key_is_missed() {
    for (section, key) in every_key().filter(|(_, key)| matches!(key.default, Fallback::Required)) {
        let frame = frame(section);
        let own = frame.own.iter().filter(|line| !line.starts_with(key.name));
        let own: Vec<&str> = own.copied().collect();
        let text = frame.around(&own);
        let problems = load(&sources(&text)).expect_err(&text).to_string();
        let missing = format!("`{}` is missing in `{}`", key.name, section.title);
        let nothing = format!("there is no `[[{}]]`", key.name);
        assert!(
            problems.contains(&missing) || problems.contains(&nothing),
            "{text}\n{problems}"
        );
    }
}

#[test]
fn a_choice_lists_the_words_that_are_read() {
    for (section, key) in every_key() {
        let super::Kind::Choice(words) = key.kind else {
            continue;
        };
        for word in words {
            model(&framed(section, &[&format!("{} = {word:?}", key.name)]));
        }
        let wrong = framed(section, &[&format!("{} = \"{}\"", key.name, "zzzzzz")]);
        let problems = load(&sources(&wrong)).expect_err(&wrong).to_string();
        for word in words {
            assert!(
                problems.contains(&format!("`{word}`")),
                "{word}: {problems}"
            );
        }
    }
}

#[test]
fn keys_of_later_work_are_refused_as_such() {
    for section in SECTIONS {
        for name in section.later {
            let text = framed(section, &[&format!("{name} = true")]);
            let problems = load(&sources(&text)).expect_err(&text).to_string();
            assert!(
                problems.contains("is not supported by this build"),
                "{name}: {problems}"
            );
            assert!(!problems.contains("unknown key"), "{name}: {problems}");
        }
    }
}

#[test]
fn a_letter_too_few_is_understood() {
    for (section, key) in every_key().filter(|(_, key)| key.name.len() > 3) {
        let misspelt = &key.name[..key.name.len() - 1];
        if section.key(misspelt).is_some() || section.later.contains(&misspelt) {
            continue;
        }
        let text = framed(section, &[&format!("{misspelt} = true")]);
        let problems = load(&sources(&text)).expect_err(&text).to_string();
        let unknown = format!("unknown key `{misspelt}`");
        assert!(problems.contains(&unknown), "{problems}");
        assert!(
            problems.contains(&format!("did you mean `{}`?", key.name)),
            "{problems}"
        );
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/config.md"
    );
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == crate::reference(),
        "run `cargo run -p config --example reference > docs/reference/config.md`"
    );
}

#[test]
fn the_page_of_sensors_is_up_to_date() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/sensors.md"
    );
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == crate::sensor_reference(),
        "run `cargo run -p config --example sensors > docs/reference/sensors.md`"
    );
}

/// Examples of the section, some taken, as lines of one table.
fn some_examples(section: &'static Section) -> impl Strategy<Value = Vec<&'static str>> {
    let examples: Vec<&str> = section.keys.iter().map(|key| key.example).collect();
    let count = examples.len();
    proptest::sample::subsequence(examples, 0..=count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_printed_loads_to_the_same(
        (section, lines) in proptest::sample::select(SECTIONS.to_vec())
            .prop_flat_map(|section| (Just(section), some_examples(section)))
    ) {
        // Some subsets say too little or too much (two handlers): they are the broken table's.
        if let Ok(model) = load(&sources(&framed(section, &lines))) {
            let printed = dump(&model);
            let again = load(&sources(&printed));
            let again = again.map_err(|problems| TestCaseError::fail(format!("{printed}\n{problems}")))?;
            prop_assert_eq!(&again, &model, "{}", printed);
            prop_assert_eq!(dump(&again), printed);
        }
    }

    #[test]
    fn broken_examples_never_panic(
        (section, lines) in proptest::sample::select(SECTIONS.to_vec())
            .prop_flat_map(|section| (Just(section), some_examples(section))),
        cut in any::<proptest::sample::Index>(),
        put in ".{0,3}",
    ) {
        let mut text = framed(section, &lines);
        let mut at = cut.index(text.len());
        while !text.is_char_boundary(at) { at -= 1; }
        let next = text[at..].chars().next().map_or(0, char::len_utf8);
        text.replace_range(at..at + next, &put);
        if let Err(problems) = load(&sources(&text)) {
            prop_assert!(problems.count() > 0);
            prop_assert!(!problems.to_string().is_empty());
        }
    }

    #[test]
    fn any_text_is_refused_or_loaded(text in "\\PC{0,200}|([\\[\\]{}=\"',.#\n a-z0-9]|sites|hosts|match|\"\"\"){0,80}") {
        let _ = load(&sources(&text)).map_err(|problems| problems.to_string());
    }

    #[test]
    fn sources_survive_packing(text in "\\PC{0,80}", cut in any::<proptest::sample::Index>()) {
        let sources = sources(&text).with_include("sites.d/a.toml", &text);
        let bytes = sources.to_bytes();
        let unpacked = Sources::from_bytes(&bytes);
        prop_assert_eq!(unpacked.as_ref(), Ok(&sources));
        let short = bytes.get(..cut.index(bytes.len())).unwrap_or_default();
        prop_assert!(Sources::from_bytes(short).is_err());
    }
}
