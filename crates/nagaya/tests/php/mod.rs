//! A site with PHP, php-fpm for it, and the gateway in front of both.
#![allow(dead_code, reason = "not every test asks in every way")]

use std::collections::BTreeMap;
use std::time::Duration;

use testkit::client::reply;
use testkit::gateway::Builder;
use testkit::php::Listen;
use testkit::{Gateway, PhpFpm, Reply, TempDir};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A site as many have it: what is no file is the front controller's.
const CONFIG: &str = r#"
workers = {workers}
[[listen]]
address = "127.0.0.1:{port}"
[control]
socket = "{dir}/control"
[log]
access = ""
level = "warn"
[timeouts]
upstream_read = "{silence}"
[upstreams.php]
protocol = "fastcgi"
servers = ["{php}"]
fails = 1000
{upstream}
[[sites]]
hosts = ["app.test"]
root = "{site}"
index = ["index.php", "index.html"]
try = ["$path", "$path/", "/index.php"]
{rules}
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { fastcgi = "php" }
"#;

/// Prints what a page is told: variables, then the body's length and sum.
pub(crate) const SHOW: &str = r#"<?php
header('Content-Type: text/plain');
foreach ($_SERVER as $name => $value) {
  if (is_string($value)) echo $name, '=', rawurlencode($value), "\n";
}
$body = file_get_contents('php://input');
echo '#length=', strlen($body), "\n#md5=", md5($body), "\n";
foreach ($_FILES as $file) echo '#file=', $file['size'], ' ', md5_file($file['tmp_name']), "\n";
"#;

/// A site, a php-fpm, and a gateway that knows both.
pub(crate) struct Bed {
    pub(crate) gateway: Gateway,
    pub(crate) php: PhpFpm,
    pub(crate) site: TempDir,
}

/// What a bed is to be like.
pub(crate) struct Wish<'a> {
    pub(crate) listen: Listen,
    pub(crate) processes: usize,
    pub(crate) workers: usize,
    pub(crate) settings: &'a str,
    /// The longest silence.
    pub(crate) silence: &'a str,
    /// Further keys of the upstream.
    pub(crate) upstream: &'a str,
    pub(crate) rules: &'a str,
    pub(crate) files: &'a [(&'a str, &'a str)],
}

impl Default for Wish<'_> {
    fn default() -> Self {
        Self {
            listen: Listen::Unix,
            processes: 2,
            workers: 1,
            settings: "",
            silence: "20s",
            upstream: "",
            rules: "",
            files: &[("index.php", SHOW)],
        }
    }
}

/// Makes a bed; `None` without php-fpm, which is said.
pub(crate) fn bed(wish: &Wish<'_>) -> Option<Bed> {
    let php = PhpFpm::start(wish.listen, wish.processes, wish.settings)?;
    let site = TempDir::new();
    for (name, content) in wish.files {
        site.write(name, content);
    }
    let gateway = builder(&php, &site, wish).start();
    Some(Bed { gateway, php, site })
}

fn builder(php: &PhpFpm, site: &TempDir, wish: &Wish<'_>) -> Builder {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("php", php.address())
        .with("site", site.path().display())
        .with("workers", wish.workers)
        .with("silence", wish.silence)
        .with("rules", wish.rules)
        .with("upstream", wish.upstream)
}

impl Bed {
    /// Asks for a path on a connection of its own.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        reply(self.gateway.ask(&get(path)))
    }
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n\r\n").into_bytes()
}

pub(crate) fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

/// What [`SHOW`] printed.
pub(crate) fn shown(reply: &Reply) -> BTreeMap<String, String> {
    let text = text(reply);
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
