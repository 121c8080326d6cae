//! What stands around the keys of a section in a configuration, for tests of the table.

use super::Section;

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";
const ROWS: &str = "[directories.customers]\nsource = \"sqlite:/srv/rows.db\"\nquery = \"SELECT tenant FROM domains WHERE host = $host\"\n";
const ROW_SITE: &str = "tenant = \"$row.tenant\"\nrules = [{ handler = { redirect = \"/\" } }]\n";
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
pub(super) struct Frame {
    before: String,
    /// Lines of the section itself, unless an example sets the same key.
    pub(super) own: &'static [&'static str],
    after: String,
}

pub(super) fn frame(section: &Section) -> Frame {
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
        "[fleet]" => {
            let own = &["store = \"redis://127.0.0.1\""];
            frame(
                &format!(
                    "{LISTEN}{SITE}limits = [{{ concurrent = 2, scope = \"fleet\" }}]\n[fleet]\n"
                ),
                own,
                "",
            )
        }
        "[directories.NAME]" => {
            let own = &[
                "source = \"postgres://nagaya@db.internal/hosting\"",
                "query = \"SELECT tenant FROM domains WHERE host = $host\"",
                "memcached = \"cache.internal:11211\"",
            ];
            frame(&format!("{LISTEN}{SITE}[directories.customers]\n"), own, "")
        }
        "hosts = { … }" => {
            let before = format!("{LISTEN}{ROWS}[[sites]]\nhosts = {{ ");
            let after = format!(" }}\n{ROW_SITE}");
            frame(&before, &["directory = \"customers\""], &after)
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
        "pool = { … } of [plans.NAME]" => within("[plans.small]\npool = { ", &[], " }\n"),
        "[plans.NAME]" => table("[plans.small]", &["cgroup = { pids = 5 }"]),
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

/// The frame of what stands on a site that rows make.
fn frame_of_rows(section: &Section) -> Frame {
    let before = format!("{LISTEN}{ROWS}[[sites]]\nhosts = {{ directory = \"customers\" }}\n");
    let rule = "[[sites.rules]]\n";
    let (before, own, after): (_, &'static [&'static str], _) = match section.title {
        "handler = { … }" => (
            format!("{before}tenant = \"$row.tenant\"\n{rule}handler = {{ "),
            &[],
            " }\n".to_owned(),
        ),
        "match = { … }" => (
            format!(
                "{before}tenant = \"$row.tenant\"\n{rule}handler = {{ redirect = \"/\" }}\nmatch = {{ "
            ),
            &[],
            " }\n".to_owned(),
        ),
        _ => (before, &[], format!("\n{ROW_SITE}")),
    };
    Frame { before, own, after }
}

/// A configuration in which the section holds `lines`.
pub(super) fn framed(section: &Section, lines: &[&str]) -> String {
    let frame = match lines {
        // It stands alone on its site, and somebody asks who comes.
        ["console = true"] if section.title == "handler = { … }" => Frame {
            before: format!("{LISTEN}{CONSOLE_SITE}handler = {{ "),
            own: &[],
            after: format!(" }}\n{RECORDED}"),
        },
        // It stands in the place of a map.
        ["directory = \"customers\""] if section.title == "on_demand = { … }" => Frame {
            own: &[],
            before: format!("{ROWS}{}", self::frame(section).before),
            ..self::frame(section)
        },
        [line] if line.contains("$row.") || line.starts_with("row =") => frame_of_rows(section),
        ["plan = \"small\""] => Frame {
            after: "\n[plans.small]\nweight = 3\n".to_owned(),
            ..frame(section)
        },
        // It is of limits that tenants share.
        ["reserve = { shop = 2 }"] => Frame {
            before: "limits = [{ ".to_owned(),
            own: LIMITING,
            after: format!(" }}]\n{LISTEN}{SITE}tenant = \"shop\"\n"),
        },
        // It is of machines that share a store.
        ["scope = \"fleet\"" | "on_loss = \"closed\""] => Frame {
            before: format!("{LISTEN}{SITE}limits = [{{ "),
            own: &["concurrent = 2", "scope = \"fleet\""],
            after: " }]\n[fleet]\nstore = \"redis://127.0.0.1\"\n".to_owned(),
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
    /// The configuration in which the section holds `lines`.
    pub(super) fn around(&self, lines: &[&str]) -> String {
        let separator = if self.before.ends_with("{ ") {
            ", "
        } else {
            "\n"
        };
        format!("{}{}{}", self.before, lines.join(separator), self.after)
    }
}
