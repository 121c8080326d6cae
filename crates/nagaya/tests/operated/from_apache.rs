//! The guide for who comes from Apache: what each row says to write is a configuration, and the
//! virtual host is answered as Apache answers its own.

use std::net::SocketAddr;
use std::process::Child;

use testkit::client::{Body, reply};
use testkit::wait::free_port;
use testkit::{RawClient, Reply, ScriptedUpstream, Step};

use crate::access_log::{apache, end};
use crate::readme::{Machine, NAGAYA, blocks, read, root, run};

const GUIDE: &str = "docs/guide/from-apache.md";

/// A row: what Apache says, where it stands here, and what is to be written.
struct Row {
    apache: String,
    place: String,
    lines: Vec<String>,
}

/// The rows of the tables that say where what they say is to be written.
fn rows() -> Vec<Row> {
    let text = read(&root().join(GUIDE));
    let rows = text.lines().filter_map(|line| {
        let line = line.strip_prefix("| ")?.replace("\\|", "\u{0}");
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [apache, place, here, ""] = cells[..] else {
            panic!("a row of other than three cells: {line}");
        };
        let spans = here.split('`').skip(1).step_by(2);
        let lines = spans.filter(|span| span.contains(" = ")).map(str::to_owned);
        Some(Row {
            apache: apache.to_owned(),
            place: place.to_owned(),
            lines: lines.collect(),
        })
    });
    rows.filter(|row| row.place != "where").collect()
}

impl Row {
    /// A configuration that has what the row says.
    fn config(&self) -> String {
        let has = |key: &str| self.lines.iter().any(|line| line.starts_with(key));
        let mut lines = self.lines.join("\n");
        // What only matches is for whatever the rule is to do.
        if self.lines.len() == 1 && has("match") {
            lines += "\ndeny = \"all\"";
        }
        let unless = |key: &str, line: &'static str| if has(key) { "" } else { line };
        let listen = unless("listen", "[[listen]]\naddress = \"127.0.0.1:8080\"\n");
        let hosts = unless("hosts", "hosts = [\"example.jp\"]\n");
        let site = unless("root", "root = \"/srv/example/htdocs\"\n");
        match self.place.as_str() {
            "top" => format!("{lines}\n{listen}[[sites]]\n{hosts}{site}"),
            "site" => format!("{listen}[[sites]]\n{hosts}{site}{lines}\n"),
            "rule" => format!("{listen}[[sites]]\n{hosts}{site}[[sites.rules]]\n{lines}\n"),
            _ => panic!("where is {}: {}", self.place, self.apache),
        }
    }
}

/// What the row says that begins so.
fn of_row(apache: &str) -> String {
    let rows = rows();
    let row = rows.iter().find(|row| row.apache.starts_with(apache));
    row.expect(apache).lines.join("\n")
}

#[test]
fn what_each_row_says_is_a_configuration() {
    let (mut shown, mut wrong) = (0, Vec::new());
    for row in rows() {
        if row.place.is_empty() {
            assert!(row.lines.is_empty(), "{}: it says no place", row.apache);
            continue;
        }
        assert!(!row.lines.is_empty(), "{}: it says nothing", row.apache);
        let machine = Machine::new();
        let config = machine.write("nagaya.toml", &row.config());
        let output = run(NAGAYA, &["check", "-c", &config.display().to_string()]);
        if !output.0 {
            wrong.push(format!("{}\n{}\n{}", row.apache, row.config(), output.1));
        }
        shown += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(shown >= 60, "only {shown} rows found");
}

/// What both servers are asked, and the status both answer with.
const QUESTIONS: [(&str, &str, u16); 20] = [
    ("GET", "/", 200),
    ("HEAD", "/", 200),
    ("GET", "/style.css", 200),
    ("GET", "/images/cat.txt", 200),
    ("GET", "/linked.txt", 200),
    ("GET", "/images", 301),
    ("GET", "/old.html", 301),
    ("GET", "/gone.html", 410),
    ("GET", "/missing.html", 404),
    ("GET", "/dump.sql", 403),
    ("GET", "/images/x.log", 403),
    ("GET", "/vendor/a.txt", 403),
    ("GET", "/%76endor/a.txt", 403),
    ("GET", "/staff", 403),
    ("GET", "/staff/a.txt", 403),
    ("GET", "/api/list?of=all", 200),
    ("HEAD", "/api/list", 200),
    ("POST", "/api/list", 200),
    ("DELETE", "/api/list", 403),
    ("PUT", "/api/list", 403),
];

/// Files of the virtual host.
const FILES: [&str; 9] = [
    "images/index.html",
    "index.html",
    "style.css",
    "images/cat.txt",
    "images/x.log",
    "dump.sql",
    "vendor/a.txt",
    "staff/a.txt",
    "new.html",
];

/// What Apache has to load for its virtual host, and what Debian says of types.
fn apache_config(machine: &Machine, upstream: SocketAddr, port: u16) -> String {
    let here = machine.directory.path().display();
    let modules = [
        "mpm_event",
        "authz_core",
        "authz_host",
        "alias",
        "dir",
        "mime",
        "headers",
        "expires",
        "proxy",
        "proxy_http",
        "setenvif",
    ];
    let load = modules
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let host = blocks(GUIDE, "apache").remove(0);
    let host = host
        .replace("*:80", &format!("*:{port}"))
        .replace("/srv/", &format!("{here}/srv/"))
        .replace(
            "/var/log/apache2/",
            &format!("{here}/var/log/nagaya/apache-"),
        )
        .replace("127.0.0.1:9000", &upstream.to_string());
    format!(
        "ServerRoot {here}\nPidFile {here}/pid\nListen 127.0.0.1:{port}\n{}\
         LogFormat \"%h %>s\" combined\nErrorLog {here}/error.log\nTypesConfig /dev/null\n\
         AddType text/html .html\nAddType text/css .css\nAddType text/plain .txt\n{host}",
        load.concat()
    )
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

fn ask(address: SocketAddr, method: &str, path: &str) -> Reply {
    let mut client = RawClient::connect(address);
    let head = format!("{method} {path} HTTP/1.1\r\nHost: www.example.jp\r\nConnection: close\r\n");
    let body = if method == "POST" {
        "Content-Length: 2\r\n\r\nhi"
    } else {
        "\r\n"
    };
    client.send(format!("{head}{body}").as_bytes());
    reply(client.read_reply(if method == "HEAD" {
        Body::Never
    } else {
        Body::Framed
    }))
}

/// What of a reply is the same whoever gives it.
fn seen(reply: &Reply) -> (u16, Vec<String>, String) {
    let field = |name: &str| reply.head.field(name).unwrap_or_default().to_owned();
    let mut fields = vec![field("Location").replace("http://www.example.jp", "")];
    // Apache sets none of these where it answers with an error or a redirect.
    if reply.status == 200 {
        // AddDefaultCharset holds for plain text and HTML alone.
        let type_of = field("Content-Type");
        let type_of = type_of.split(';').next().unwrap_or_default();
        let names = ["X-Frame-Options", "X-Content-Type-Options", "Cache-Control"];
        fields.extend(names.map(field));
        fields.push(type_of.to_owned());
    }
    let has_page = [200, 404].contains(&reply.status);
    let body = if has_page {
        reply.text()
    } else {
        String::new()
    };
    (reply.status, fields, body)
}

#[test]
fn the_virtual_host_is_answered_as_apache_answers_its_own() {
    let machine = Machine::new();
    let upstream = ScriptedUpstream::start(|seen| {
        let body = format!(
            "{} for {}",
            seen.head.line,
            seen.head.field("Host").unwrap()
        );
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\
             X-Content-Type-Options: its own\r\nContent-Length: {length}\r\n\r\n"
        );
        let body = if seen.head.line.starts_with("HEAD") {
            String::new()
        } else {
            body
        };
        vec![Step::Send(format!("{head}{body}").into())]
    });
    for name in FILES {
        machine.write(
            &format!("srv/example/htdocs/{name}"),
            &format!("this is {name}\n"),
        );
    }
    machine.write("srv/example/htdocs/errors/404.html", "<p>not here</p>\n");
    let linked = machine
        .directory
        .path()
        .join("srv/example/htdocs/linked.txt");
    std::os::unix::fs::symlink("images/cat.txt", linked).unwrap();
    let port = free_port();
    let theirs = apache_config(&machine, upstream.address(), port);
    let theirs = apache(&machine.directory, &theirs, port).map(Ended);
    let config = blocks(GUIDE, "toml").remove(0);
    let config = config.replace("127.0.0.1:9000", &upstream.address().to_string());
    let gateway = machine.serve(&config, GUIDE);
    for (method, path, status) in QUESTIONS {
        let ours = seen(&ask(gateway.address(), method, path));
        assert_eq!(ours.0, status, "{method} {path}");
        if theirs.is_some() {
            let theirs = seen(&ask(([127, 0, 0, 1], port).into(), method, path));
            assert_eq!(ours, theirs, "{method} {path}");
        }
    }
    if theirs.is_none() {
        testkit::lacks_program("apache2");
    }
}

#[test]
fn what_takes_groups_does_what_its_row_says() {
    let machine = Machine::new();
    let config = format!(
        "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[sites]]\nhosts = [\"example.jp\"]\n\
         root = \"/srv/example/htdocs\"\n{}\n[[sites.rules]]\n{}\n\
         [[sites.rules]]\nmatch = {{ path = \"/article.php\" }}\n\
         handler = {{ respond = {{ body = \"$path $query\" }} }}\n",
        of_row("`RewriteRule ^article/"),
        of_row("`Redirect /old/ /new/`"),
    );
    let gateway = machine.serve(&config.replace("example.jp\"]", "www.example.jp\"]"), GUIDE);
    let moved = ask(gateway.address(), "GET", "/old/a/b.html");
    assert_eq!(
        (moved.status, moved.head.field("Location")),
        (301, Some("/new/a/b.html"))
    );
    let article = ask(gateway.address(), "GET", "/article/7");
    assert_eq!(
        (article.status, article.text()),
        (200, "/article.php id=7".to_owned())
    );
    assert_eq!(ask(gateway.address(), "GET", "/articles").status, 404);
}
