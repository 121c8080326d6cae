//! A page that is open takes what changes, in a real browser under the page's own policy.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::sample::plainly;
use super::{Colours, ConsoleScope, Eyes, OWNERS, SITES, chromium, sample};

const PATIENCE: Duration = Duration::from_secs(60);
/// Looks into the page until it has what came later; the picture keeps this one from being done.
const WATCHER: &str = r#"<!doctype html><title>watcher</title><iframe src="/console/now"></iframe><img src="/held">
<script>
const frame = document.querySelector("iframe");
const timer = setInterval(() => {
  const page = frame.contentDocument;
  if (!page || !page.body || !page.body.textContent.includes("later.example")) return;
  clearInterval(timer);
  const told = document.createElement("pre");
  told.className = "probe";
  told.textContent = JSON.stringify({
    frame: "0",
    headings: page.querySelectorAll("h1").length,
    scripts: page.querySelectorAll("[data-events] script").length,
    has_first: page.body.textContent.includes("tea.example"),
  });
  document.body.append(told);
  fetch("/seen");
}, 20);
</script>"#;

#[test]
fn an_open_page_takes_what_changes() {
    let Some(browser) = chromium::installed() else {
        testkit::lacks("Chromium", "scripts/bootstrap.sh test");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (is_seen, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (listener, is_seen, is_over) = (&listener, &is_seen, &is_over);
        scope.spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let stream = stream.unwrap();
                // A browser that goes away in between asks for nothing more.
                scope.spawn(move || drop(served(stream, is_seen)));
            }
        });
        let url = format!("http://{address}/watcher");
        let told = chromium::visited(&browser, &url, 1, Colours::Light);
        is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(address));
        let expected = json!({ "frame": "0", "headings": 1, "scripts": 0, "has_first": false });
        assert_eq!(told, [expected]);
    });
}

fn served(mut stream: TcpStream, is_seen: &AtomicBool) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let target = lines.next().transpose()?.unwrap_or_default();
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let target = target.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut reply = |fields: &str, body: &str| {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes())
    };
    match target.split('?').next().unwrap_or_default() {
        "/watcher" => reply("Content-Type: text/html; charset=utf-8\r\n", WATCHER),
        "/console/now" => {
            let answer = seen_by(&OWNERS[..1], |eyes| eyes.see("now"));
            let mut fields = format!("Content-Type: {}\r\n", answer.content_type);
            for (name, value) in &answer.fields {
                // The watcher holds the page in a frame.
                let value = value.replace("; frame-ancestors 'none'", "");
                fields += &format!("{name}: {value}\r\n");
            }
            reply(&fields, &answer.body)
        }
        "/console/events" => {
            let later = [("later", "later.example")];
            let answer = seen_by(&later, |eyes| eyes.see("events?page=now&lang=en"));
            let fields = format!("Content-Type: {}\r\n", answer.content_type);
            reply(&fields, &answer.body)
        }
        "/held" => {
            testkit::eventually(PATIENCE, "the page has changed", || {
                is_seen.load(Ordering::Relaxed).then_some(())
            });
            reply("Content-Type: image/png\r\n", "")
        }
        "/seen" => {
            is_seen.store(true, Ordering::Relaxed);
            reply("Content-Type: text/plain\r\n", "")
        }
        _ => reply("Content-Type: text/plain\r\n", ""),
    }
}

fn seen_by<T>(owners: &[(&str, &str)], see: impl FnOnce(&Eyes<'_>) -> T) -> T {
    let (_directory, store) = sample::store(&SITES[..1], plainly);
    let said = sample::said(owners, plainly);
    see(&Eyes {
        store: &store,
        said: Some(&said),
        scope: ConsoleScope::All,
    })
}
