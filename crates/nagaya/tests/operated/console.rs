//! The console as people have it: by a password or not at all, each tenant its own, live, and back again
//! when the recorder was away.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::{Timestamp, ToSpan};
use rustix::process::{Pid, Signal, kill_process};
use testkit::chromium::{self, PageServer};
use testkit::client::{Body, RawClient, Reply, reply};
use testkit::{Gateway, TempDir, eventually, processes};

use super::readme::{Machine, blocks};

const GUIDE: &str = "docs/guide/console.md";
const PATIENCE: Duration = Duration::from_secs(90);
/// What clients send that is shown.
const MARK: &str = "<script>alert(1)</script>";
const PARTS: [&str; 8] = [
    "visits", "pages", "sources", "visitors", "devices", "bots", "errors", "speed",
];
/// Of everybody: the others are the machine's.
const LIVE: [&str; 4] = ["now", "limits", "programs", "certificates"];
const MACHINE: [&str; 4] = ["machine", "back-ends", "directories", "alerts"];

const CONFIG: &str = r#"
workers = 2
[recorder]
directory = "{dir}/figures"
[[sites]]
hosts = ["tea.example"]
tenant = "tea"
  [[sites.rules]]
  match = { path = ["/console", "/console/*"] }
  auth = { file = "{dir}/users" }
  handler = { console = "$tenant" }
  [[sites.rules]]
  handler = { respond = { body = "tea" } }
[[sites]]
hosts = ["other.example"]
tenant = "other"
rules = [{ handler = { respond = { body = "other" } } }]
[[sites]]
hosts = ["console.example"]
auth = { file = "{dir}/users" }
limits = [{ concurrent = 1 }]
record = false
rules = [{ handler = { console = true } }]
[[sites]]
hosts = ["127.0.0.1"]
allow = ["127.0.0.1"]
record = false
{edits}
  [[sites.rules]]
  match = { path = "/watcher" }
  handler = { respond = { body = '''{watcher}''', content_type = "text/html; charset=utf-8" } }
  [[sites.rules]]
  match = { path = "/console/*" }
  handler = { console = { link_secret = "{dir}/console.key" } }
"#;

fn gateway() -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    directory.write("users", "alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n");
    directory.write("console.key", "k".repeat(32));
    let gateway = builder.with("edits", "").with("watcher", "").start();
    eventually(PATIENCE, "a recorder that is heard", || {
        let shown = seen(&gateway, "console.example", "now");
        (shown.status == 200).then_some(())
    });
    gateway
}

fn asked(gateway: &Gateway, host: &str, target: &str, lines: &str) -> Reply {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
    let mut client = gateway.client().with_deadline(PATIENCE);
    reply(client.ask(request.as_bytes()))
}

const PASSWORD: &str = "Authorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\n";

/// A page of the console of a host, as somebody with a password sees it.
fn seen(gateway: &Gateway, host: &str, page: &str) -> Reply {
    asked(gateway, host, &target(host, page), PASSWORD)
}

fn target(host: &str, page: &str) -> String {
    match host {
        "console.example" => format!("/{page}"),
        _ => format!("/console/{page}"),
    }
}

/// Has both sites visited by somebody who sends markup wherever there is room for it.
fn visit(gateway: &Gateway) {
    for host in ["tea.example", "other.example"] {
        let lines =
            format!("Referer: https://search.example/{MARK}\r\nUser-Agent: Mozilla/5.0 {MARK}\r\n");
        for number in 0..20 {
            let path = format!("/of-{host}/{number}?q=%3Cscript%3Ealert(1)%3C/script%3E");
            assert_eq!(asked(gateway, host, &path, &lines).status, 200);
        }
        let path = "/%3Cscript%3Ealert(1)%3C/script%3E";
        assert_eq!(asked(gateway, host, path, &lines).status, 200);
    }
    let pages = ["tea", "other"].map(|name| format!("site/{name}.example/pages"));
    eventually(PATIENCE, "figures of both sites", || {
        let shown = pages.iter().map(|it| seen(gateway, "console.example", it));
        shown
            .map(|page| page.text())
            .all(|page| page.contains("/of-"))
            .then_some(())
    });
}

fn pages(site: &str) -> Vec<String> {
    let mut pages = vec![String::new(), "history".to_owned()];
    pages.extend(PARTS.map(|part| format!("site/{site}/{part}")));
    pages.extend(LIVE.map(str::to_owned));
    pages
}

#[test]
fn every_page_is_shown_to_who_has_a_password_and_what_clients_send_stays_text() {
    let gateway = gateway();
    visit(&gateway);
    let machine = MACHINE.map(str::to_owned);
    let of_all = pages("tea.example").into_iter().chain(machine);
    let of_tea = pages("tea.example").into_iter();
    let all = of_all.map(|page| ("console.example", page));
    for (host, page) in all.chain(of_tea.map(|page| ("tea.example", page))) {
        for language in ["en", "ja"] {
            let page = format!("{page}?lang={language}");
            let closed = asked(&gateway, host, &target(host, &page), "");
            assert_eq!(closed.status, 401, "{host} {page}");
            assert!(!closed.text().contains("tea.example"), "{host} {page}");
            let open = seen(&gateway, host, &page);
            assert_eq!(open.status, 200, "{host} {page}: {}", open.text());
            let text = open.text();
            assert!(
                text.contains(&format!("<html lang=\"{language}\"")),
                "{host} {page}"
            );
            assert!(!text.contains("<script>alert"), "{host} {page}: {text}");
            let policies = open.head.count("content-security-policy");
            assert_eq!(policies, 2, "ours, and the recorder's");
            assert_eq!(open.head.field("cache-control"), Some("no-store"));
            assert_eq!(open.head.field("x-content-type-options"), Some("nosniff"));
        }
    }
    let text = seen(&gateway, "console.example", "site/tea.example/pages").text();
    assert!(text.contains("&lt;script&gt;alert(1)"), "{text}");
    let list = seen(&gateway, "tea.example", "site/tea.example/pages?format=csv");
    let head = &list.head;
    assert_eq!(head.field("content-type"), Some("text/csv; charset=utf-8"));
    let disposition = head.field("content-disposition").unwrap();
    assert!(disposition.starts_with("attachment;"), "{disposition}");
    let home = asked(&gateway, "tea.example", "/console", PASSWORD);
    assert_eq!(
        (home.status, home.head.field("location")),
        (301, Some("/console/"))
    );
}

#[test]
fn a_tenant_sees_of_others_what_there_is_of_nobody() {
    let gateway = gateway();
    visit(&gateway);
    let shown = |page: &str| {
        let page = seen(&gateway, "tea.example", page);
        // Figures of this moment are the gateway's own, and not of any name.
        (
            page.status,
            page.head.field("content-type").map(str::to_owned),
            page.text(),
        )
    };
    for page in pages("other.example") {
        for query in [
            "",
            "format=csv",
            "format=json",
            "tenant=other&site=other.example",
            "filter=other.example",
            "page=/of-other.example/1",
            "list=other.example",
        ] {
            let address = format!("{page}?{query}");
            let (status, kind, text) = shown(&address);
            let is_others = page.starts_with("site/");
            let unknown = address.replace("other", "nobody");
            if is_others {
                assert_eq!(status, 404, "{address}");
                assert_eq!((status, kind, text.clone()), shown(&unknown), "{address}");
            }
            // What was asked for may be said back, as in the form.
            let is_echoed = query.contains("other");
            assert!(
                is_echoed || !text.contains("other.example"),
                "{address}: {text}"
            );
            assert!(
                !text.contains("of-other.example") || query.contains("of-other"),
                "{address}"
            );
        }
    }
    for page in MACHINE {
        assert_eq!(shown(page), shown("nothing"), "{page}");
        let event = shown(&format!("events?page={page}"));
        assert_eq!(event, shown("events?page=nothing"), "{page}");
        assert_eq!(event.0, 404, "{page}");
    }
    let own = seen(&gateway, "tea.example", "site/tea.example/pages").text();
    assert!(own.contains("/of-tea.example/1"), "{own}");
}

/// Reads the next event of a stream in chunks; its text.
fn event(client: &mut RawClient) -> String {
    client.await_bytes(b"\n\n");
    let mut text = String::new();
    while !text.ends_with("\n\n") {
        let byte = client.read_exactly(1);
        assert!(!byte.is_empty(), "it ended: {text}");
        text.push(char::from(byte[0]));
    }
    text
}

#[test]
fn events_come_one_after_the_other_and_end_with_the_server() {
    let mut gateway = gateway();
    let mut client = gateway.client().with_deadline(PATIENCE);
    let request = format!(
        "GET /events?page=now HTTP/1.1\r\nHost: console.example\r\nAccept-Encoding: gzip\r\n{PASSWORD}\r\n"
    );
    client.send(request.as_bytes());
    let first = event(&mut client);
    assert!(first.contains("Content-Type: text/event-stream"), "{first}");
    assert!(!first.contains("Content-Encoding"), "{first}");
    asked(&gateway, "tea.example", "/", "");
    let mut last = first.split_once("data: ").unwrap().1.to_owned();
    for _ in 0..2 {
        // Somebody came meanwhile, if only this.
        let next = event(&mut client);
        let next = next.split_once("data: ").unwrap().1.to_owned();
        assert_ne!(last, next);
        last = next;
    }
    let page = seen(&gateway, "console.example", "now");
    assert_eq!(page.status, 200, "who watches holds no place");
    let anew = "<noscript><meta http-equiv=\"refresh\"";
    assert!(
        page.text().contains(anew),
        "without scripts it comes anew, too"
    );
    gateway.signal(Signal::TERM);
    let (rest, _) = client.read_to_end();
    assert!(rest.ends_with(b"0\r\n\r\n"), "{}", rest.escape_ascii());
    assert!(gateway.wait().success());
}

#[test]
fn without_a_recorder_pages_are_refused_and_they_come_back_with_it() {
    let gateway = gateway();
    let kill = |signal| {
        let pid = gateway.child_called("recorder");
        kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
        pid
    };
    eventually(PATIENCE, "a page that is refused", || {
        processes::await_ended(kill(Signal::KILL));
        let page = seen(&gateway, "console.example", "now");
        (page.status == 503).then_some(())
    });
    assert_eq!(asked(&gateway, "tea.example", "/", "").text(), "tea");
    eventually(PATIENCE, "pages again", || {
        let page = seen(&gateway, "console.example", "now");
        (page.status == 200).then_some(())
    });
}

#[test]
fn figures_without_a_service_are_looked_at_on_this_machine() {
    let directory = TempDir::new();
    let (figures, log) = (
        directory.path().join("figures"),
        directory.path().join("a.log"),
    );
    let at = (Timestamp::now() - 1.hour())
        .strftime("%d/%b/%Y:%H:%M:%S +0000")
        .to_string();
    let line = format!(
        "a.example:80 192.0.2.1 - - [{at}] \"GET /menu HTTP/1.1\" 200 10 \"-\" \"Mozilla/5.0\"\n"
    );
    fs::write(&log, line).unwrap();
    let nagaya = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
        command
            .arg("recorder")
            .args(words)
            .arg("--directory")
            .arg(&figures);
        command.env("TMPDIR", directory.path()).stdin(Stdio::null());
        command
    };
    let none = nagaya(&["serve"]).output().unwrap();
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        !none.status.success() && said.contains("recorder import"),
        "{said}"
    );
    let read = nagaya(&["import", log.to_str().unwrap()]).status().unwrap();
    assert!(read.success());
    let everywhere = nagaya(&["serve", "--listen", "0.0.0.0:8617"])
        .output()
        .unwrap();
    assert_eq!(everywhere.status.code(), Some(2));
    if os::process::is_root() {
        let roots = nagaya(&["serve"]).output().unwrap();
        let said = String::from_utf8_lossy(&roots.stderr).into_owned();
        assert!(said.contains("chown -R daemon"), "{said}");
        chown(directory.path(), Some(1), Some(1)).unwrap();
        chown(&figures, Some(1), Some(1)).unwrap();
        for file in fs::read_dir(&figures).unwrap() {
            chown(file.unwrap().path(), Some(1), Some(1)).unwrap();
        }
    }
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut serving = nagaya(&["serve", "--listen", &free.to_string()])
        .spawn()
        .unwrap();
    let page = eventually(PATIENCE, "the console", || {
        let mut client = RawClient::try_connect(free).ok()?.with_deadline(PATIENCE);
        let request = format!("GET /site/a.example/pages HTTP/1.1\r\nHost: {free}\r\n\r\n");
        client.send(request.as_bytes());
        let page = reply(client.read_reply(Body::Framed));
        (page.status == 200).then_some(page)
    });
    assert!(page.text().contains("/menu"), "{}", page.text());
    let mut client = RawClient::connect(free);
    let rebound = reply(client.ask(b"GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n"));
    assert_eq!(
        rebound.status, 421,
        "a name of somebody else's that leads here"
    );
    kill_process(Pid::from_child(&serving), Signal::TERM).unwrap();
    assert!(serving.wait().unwrap().success());
    let left = fs::read_dir(directory.path()).unwrap();
    let mut left = left.map(|it| it.unwrap().file_name().into_string().unwrap());
    assert!(!left.any(|name| name.starts_with("nagaya-recorder")));
}

#[test]
fn the_guides_configurations_are_right() {
    let shown = blocks(GUIDE, "toml");
    assert_eq!(shown.len(), 3);
    for block in shown {
        let machine = Machine::new();
        machine
            .directory
            .write("etc/nagaya/console.key", "k".repeat(32));
        fs::create_dir_all(machine.directory.path().join("var/lib/nagaya")).unwrap();
        let config = machine.write("nagaya.toml", &block);
        let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
        let checked = command.arg("check").arg("-c").arg(config).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(checked.status.success(), "{block}\n{said}");
    }
}

#[test]
fn a_panels_link_lets_its_customer_in_once_to_what_is_its_own() {
    let gateway = gateway();
    visit(&gateway);
    let host = "127.0.0.1";
    assert_eq!(asked(&gateway, host, "/console/", "").status, 403);
    let (target, come) = holding_link(&gateway, host, "tea");
    let cookie = come.head.field("set-cookie").unwrap();
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(asked(&gateway, host, &target, "").status, 403, "again");
    let sites = asked(&gateway, host, "/console/", &cookie);
    assert!(sites.text().contains("tea.example") && !sites.text().contains("other.example"));
    let others = asked(&gateway, host, "/console/site/other.example/pages", &cookie);
    assert_eq!(others.status, 404);
}

/// Looks into the page until what it shows has changed; the picture keeps this one from being done.
const WATCHER: &str = r#"<!doctype html><title>watcher</title><iframe src="/console/{link}"></iframe><img src="{other}/held">
<script>
const frame = document.querySelector("iframe");
let first = null;
const timer = setInterval(() => {
  const part = frame.contentDocument?.querySelector("[data-events]");
  if (!part) {
    if (frame.contentDocument?.title === "Sites · Nagaya") frame.src = "/console/now?lang=en";
    return;
  }
  first ??= part.innerHTML;
  if (part.innerHTML === first) return;
  clearInterval(timer);
  const told = document.createElement("pre");
  told.className = "probe";
  told.textContent = JSON.stringify({
    frame: "0",
    headings: frame.contentDocument.querySelectorAll("h1").length,
    scripts: part.querySelectorAll("script").length,
  });
  document.body.append(told);
  fetch("{other}/seen", { mode: "no-cors" });
}, 20);
</script>"#;

#[test]
fn a_real_browser_comes_by_a_link_and_an_open_page_takes_what_changes() {
    let Some(browser) = chromium::installed() else {
        testkit::lacks("Chromium", "scripts/bootstrap.sh test");
        return;
    };
    let mut gateway = gateway();
    let server = PageServer::start(|_| None);
    let other = server.address();
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src '{hash}'; connect-src 'self'; \
                  form-action 'self'; base-uri 'none'";
    let policy = policy.replace("{hash}", ipc::console::SCRIPT_HASH);
    // The watcher holds pages in a frame; all else of their policy is in force.
    let edits = format!(
        "[[sites.rules]]\nmatch = {{ path = \"/console/*\" }}\n\
         reply_headers = {{ set = {{ \"Content-Security-Policy\" = \"{policy}\" }} }}\n"
    );
    holding_link(&gateway, "127.0.0.1", "*");
    let watcher = WATCHER
        .replace("{link}", &link(&gateway, "127.0.0.1", "*"))
        .replace("{other}", &format!("http://{other}"));
    let users = gateway.directory().path().display().to_string();
    let config = CONFIG
        .replace("{edits}", &edits)
        .replace("{watcher}", &watcher.replace('$', "$$"))
        .replace("{dir}", &users);
    gateway.reload(&config);
    let url = format!("http://{}/watcher", gateway.address());
    let told = chromium::visited(&browser, &url, 1, chromium::Colours::Light);
    let expected = serde_json::json!({ "frame": "0", "headings": 1, "scripts": 0 });
    assert_eq!(told, [expected]);
}

/// A link that lets in, and what came of it. Of the gateway's first second none does: it may be from before.
fn holding_link(gateway: &Gateway, host: &str, tenant: &str) -> (String, Reply) {
    eventually(PATIENCE, "a link lets in", || {
        let target = format!("/console/{}", link(gateway, host, tenant));
        let come = asked(gateway, host, &target, "");
        (come.status == 200).then_some((target, come))
    })
}

/// What a panel signs, by the lines of the guide: for whom, and a minute.
pub(super) fn link(gateway: &Gateway, host: &str, tenant: &str) -> String {
    let key = gateway.directory().path().join("console.key");
    let blocks = blocks(GUIDE, "sh");
    let lines = blocks.iter().find(|block| block.contains("-hmac")).unwrap();
    let (_, lines) = lines.split_once('\n').unwrap();
    let lines = lines
        .replace("/etc/nagaya/console.key", &key.display().to_string())
        .replace("host=stats.example.jp", &format!("host={host}"))
        .replace("path=/ ", "path=/console/ ")
        .replace("tenant=example", &format!("tenant={tenant}"));
    let output = Command::new("sh").args(["-c", &lines]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let url = said
        .trim()
        .strip_prefix(&format!("https://{host}/console/"));
    url.expect(&said).to_owned()
}
