//! A page that is open takes what changes, in a real browser under the page's own policy.

use serde_json::json;
use testkit::chromium::{self, Colours, PageReply, PageServer};

use super::sample::plainly;
use super::{ConsoleScope, Eyes, OWNERS, SITES, sample};

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
    let server = PageServer::start(served);
    let url = format!("http://{}/watcher", server.address());
    let told = chromium::visited(&browser, &url, 1, Colours::Light);
    let expected = json!({ "frame": "0", "headings": 1, "scripts": 0, "has_first": false });
    assert_eq!(told, [expected]);
}

fn served(path: &str) -> Option<PageReply> {
    let answer = match path {
        "/watcher" => {
            let fields = "Content-Type: text/html; charset=utf-8\r\n";
            return Some((fields.to_owned(), WATCHER.to_owned()));
        }
        "/console/now" => seen_by(&OWNERS[..1], |eyes| eyes.see("now")),
        "/console/events" => {
            let later = [("later", "later.example")];
            seen_by(&later, |eyes| eyes.see("events?page=now&lang=en"))
        }
        _ => return None,
    };
    let mut fields = format!("Content-Type: {}\r\n", answer.content_type);
    for (name, value) in &answer.fields {
        // The watcher holds the page in a frame.
        let value = value.replace("; frame-ancestors 'none'", "");
        fields += &format!("{name}: {value}\r\n");
    }
    Some((fields, answer.body))
}

fn seen_by<T>(owners: &[(&str, &str)], see: impl FnOnce(&Eyes<'_>) -> T) -> T {
    let (_directory, store) = sample::store(&SITES[..1], plainly);
    let said = sample::said(owners, plainly);
    see(&Eyes::of(&store, Some(&said), ConsoleScope::All))
}
