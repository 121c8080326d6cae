//! TLS before those who know it well: testssl.sh, tlslite-ng, Chromium, and clients that come while certificates change.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use testkit::skip::{lacks, lacks_program};
use testkit::{Gateway, Peer, ScriptedUpstream, TempDir, eventually, free_port};

use crate::fixtures::tls::{self, PATIENCE, TlsClient};
use crate::tls::{FINE, gateway, gateway_with};

/// Certificates that are changed where nobody says otherwise, and the variable that does.
const CHANGES: (u32, &str) = (4, "NAGAYA_CERTIFICATE_CHANGES");

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|place| place.join(program).is_file())
}

fn one_site() -> String {
    format!("[[sites]]\nhosts = [\"a.example\"]\n{FINE}tls = {{ hsts = \"365d\" }}\n")
}

#[test]
fn testssl_finds_nothing_above_low() {
    if !is_installed("testssl") {
        return lacks_program("testssl");
    }
    let (gateway, to) = gateway("{ default = \"a.example\" }", &one_site());
    let found = gateway.directory().path().join("found.csv");
    let output = Command::new("testssl")
        .args([
            "--quiet",
            "--color",
            "0",
            "--warnings",
            "batch",
            "--ip",
            "127.0.0.1",
        ])
        .args([
            "--protocols",
            "--std",
            "--pfs",
            "--server-preference",
            "--server-defaults",
        ])
        .args(["--headers", "--vulnerable", "--csvfile"])
        .arg(&found)
        .arg(format!("a.example:{}", to.port()))
        .output()
        .expect("it runs");
    let text = std::fs::read_to_string(&found).expect("findings");
    let lines = text
        .lines()
        .map(|line| line.trim_matches('"').split("\",\"").collect::<Vec<_>>());
    let findings: Vec<_> = lines.filter(|line| line.len() > 4).collect();
    let ids: Vec<_> = findings.iter().map(|line| line[0]).collect();
    assert!(
        ids.contains(&"heartbleed") && ids.contains(&"cipher_order"),
        "{output:?}"
    );
    // The certificate is of nobody's making, its name is in no DNS, and the site says nothing of frames and scripts.
    let is_ours =
        |id: &str| !(id.starts_with("cert_") || id.starts_with("DNS_") || id == "security_headers");
    let above_low = |line: &&Vec<&str>| ["MEDIUM", "HIGH", "CRITICAL"].contains(&line[3]);
    let bad: Vec<_> = findings
        .iter()
        .filter(above_low)
        .filter(|line| is_ours(line[0]))
        .collect();
    assert!(bad.is_empty(), "{bad:?}");
}

/// What a client may be told that does not keep to the protocol.
const REFUSALS: [&str; 7] = [
    "closed",
    "unexpected_message",
    "no_renegotiation",
    "decode_error",
    "record_overflow",
    "bad_record_mac",
    "handshake_failure",
];

#[test]
fn clients_that_mean_harm_are_refused_one_by_one() {
    let built = Path::new(env!("CARGO_BIN_EXE_nagaya")).ancestors().nth(2);
    let packages = built.expect("a directory").join("test-python");
    if !packages.join("tlslite").is_dir() {
        return lacks("tlslite-ng", "scripts/bootstrap.sh test installs it");
    }
    let (gateway, to) = gateway("true", &one_site());
    let output = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/hostile.py"))
        .args([&to.port().to_string(), "a.example"])
        .env("PYTHONPATH", &packages)
        .output()
        .expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let results: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    assert_eq!(results.len(), 14, "{output:?}");
    for (what, result) in results {
        assert!(REFUSALS.contains(&result), "{what}: {result}");
    }
    let client = TlsClient::connect(&tls::credulous(), [127, 6, 0, 1], to, "a.example");
    assert_eq!(
        client.expect("a handshake").get("/").expect("a reply").0,
        200
    );
    assert!(!gateway.stderr().contains("panic"), "{}", gateway.stderr());
}

/// What the browser is called here; says so where there is none.
pub(crate) fn chromium() -> Option<&'static str> {
    let mut names = ["chromium", "chromium-browser"].into_iter();
    let found = names.find(|name| is_installed(name));
    if found.is_none() {
        lacks_program("chromium");
    }
    found
}

/// A page as Chromium has it in the end.
pub(crate) fn shown_by(browser: &str, to: SocketAddr, host: &str) -> String {
    let profile = TempDir::new();
    let shown = (0..3).find_map(|turn| {
        let output = Command::new("timeout")
            .args([
                "90",
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .args([
                "--ignore-certificate-errors",
                "--virtual-time-budget=5000",
                "--dump-dom",
            ])
            .arg(format!(
                "--host-resolver-rules=MAP {host} 127.0.0.1:{}",
                to.port()
            ))
            .arg(format!(
                "--user-data-dir={}",
                profile.path().join(turn.to_string()).display()
            ))
            .arg(format!("https://{host}/"))
            .output()
            .expect("it runs");
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        // A browser on a busy machine may hang at its start.
        (!dom.is_empty()).then_some(dom)
    });
    shown.expect("a page")
}

#[test]
fn chromium_loads_a_page_and_what_it_asks_for_over_https() {
    let Some(browser) = chromium() else {
        return;
    };
    let sites = "[[sites]]\nhosts = [\"a.example\"]\nroot = \"{dir}/www\"\n";
    let (_gateway, to) = gateway_with("true", sites, |directory| {
        let page = "<!doctype html><p>begun<script>fetch('/told.txt').then(it => it.text()).then(it => \
            { document.body.textContent = it + location.protocol + isSecureContext })</script>";
        std::fs::create_dir(directory.join("www")).expect("a directory");
        std::fs::write(directory.join("www/index.html"), page).expect("a file");
        std::fs::write(directory.join("www/told.txt"), "told over ").expect("a file");
    });
    let shown = shown_by(browser, to, "a.example");
    assert!(shown.contains("told over https:true"), "{shown}");
}

#[test]
fn certificates_change_under_load_and_nobody_is_refused() {
    let (gateway, to) = gateway("true", &one_site());
    let file = gateway.directory().path().join("all.pem");
    let config = tls::credulous();
    let changes = std::env::var(CHANGES.1).ok().and_then(|it| it.parse().ok());
    let is_over = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let clients = [1, 2].map(|number| {
            let (is_over, config) = (&is_over, &config);
            scope.spawn(move || {
                let connect = || TlsClient::connect(config, [127, 6, 1, number], to, "a.example");
                let mut kept = connect().expect("a handshake");
                let mut asked = 0_u32;
                while !is_over.load(Relaxed) {
                    // A connection carries only so many requests.
                    if asked.is_multiple_of(400) {
                        kept = connect().expect("a handshake");
                    }
                    assert_eq!(kept.get("/").expect("a reply").0, 200);
                    let mut fresh = connect().expect("a handshake");
                    assert_eq!(fresh.get("/").expect("a reply").0, 200);
                    asked += 2;
                }
                asked
            })
        });
        for _ in 0..changes.unwrap_or(CHANGES.0) {
            let shown = || {
                let client = TlsClient::connect(&config, [127, 6, 1, 3], to, "a.example");
                client.expect("a handshake").shown()
            };
            let before = shown();
            let next = file.with_extension("next");
            tls::certificate(&next, &["*.example"]);
            std::fs::rename(&next, &file).expect("changed");
            eventually(PATIENCE, "the next certificate", || {
                (shown() != before).then_some(())
            });
        }
        is_over.store(true, Relaxed);
        let asked = clients.map(|client| client.join().expect("every request was answered"));
        asked.into_iter().sum::<u32>()
    });
    assert!(asked > 100, "{asked}");
    println!("{asked} requests, none failed");
}

/// Files as certbot has them, the `number`th time.
fn renewed_by_certbot(etc: &Path, number: u32) {
    let (live, archive) = (
        etc.join("live/www.example.jp"),
        etc.join("archive/www.example.jp"),
    );
    for directory in [&live, &archive] {
        std::fs::create_dir_all(directory).expect("a directory");
    }
    for directory in ["live", "archive"] {
        use std::os::unix::fs::PermissionsExt;
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(etc.join(directory), closed).expect("closed");
    }
    std::fs::write(etc.join("live/README"), "about these links").expect("a file");
    let both = archive.join("both.pem");
    tls::certificate(&both, &["www.example.jp"]);
    let text = std::fs::read_to_string(&both).expect("a file");
    let (chain, key) = text.split_at(text.find("-----BEGIN PRIVATE").expect("a key"));
    std::fs::remove_file(&both).expect("a file");
    for (name, content) in [("fullchain", chain), ("privkey", key)] {
        std::fs::write(archive.join(format!("{name}{number}.pem")), content).expect("a file");
        let link = live.join(format!("{name}.pem"));
        let _ = std::fs::remove_file(&link);
        let to = format!("../../archive/www.example.jp/{name}{number}.pem");
        std::os::unix::fs::symlink(to, link).expect("a link");
    }
}

/// What curl is answered for a page of the guide's site; behind it the status, and where it is sent to.
fn asked(scheme: &str, port: u16, path: &str) -> String {
    let output = Command::new("curl")
        .args(["-sk", "--max-time", "25"])
        .args(["-w", " %{http_code} %{redirect_url}"])
        .args(["--resolve", &format!("www.example.jp:{port}:127.0.0.1")])
        .arg(format!("{scheme}://www.example.jp:{port}{path}"))
        .output()
        .expect("curl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_guides_way_from_certbot_and_nginx_leads_to_the_same_answers() {
    let back_end = ScriptedUpstream::fixed("of the back end");
    let place = TempDir::new();
    let etc = place.path().join("letsencrypt");
    renewed_by_certbot(&etc, 1);
    let challenge = "www/.well-known/acme-challenge/token";
    place.write("www/index.html", "the page");
    place.write(challenge, "of certbot");
    let moved = |text: String| {
        text.replace("/etc/letsencrypt", &etc.display().to_string())
            .replace(
                "/var/www/html",
                &place.path().join("www").display().to_string(),
            )
            .replace("127.0.0.1:3000", &back_end.address().to_string())
    };
    let sealed = free_port();
    let config = moved(tls::of_the_guide("From certbot and nginx", "toml"))
        .replace("0.0.0.0:80", "127.0.0.1:{port}")
        .replace("0.0.0.0:443", "127.0.0.1:{tls}");
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("tls", sealed)
        .start();
    let of_nginx = free_port();
    let nginx = moved(tls::of_the_guide("From certbot and nginx", "nginx"))
        .replace("listen 80", "listen 127.0.0.1:{port}")
        .replace("listen 443", &format!("listen 127.0.0.1:{of_nginx}"));
    let Some(nginx) = Peer::nginx(&nginx) else {
        return;
    };
    for path in ["/", "/api/it?a=b", "/nothing"] {
        let told = [sealed, of_nginx].map(|port| asked("https", port, path));
        let ends = told
            .each_ref()
            .map(|told| told.rsplit(' ').nth(1).map(str::to_owned));
        assert_eq!(ends[0], ends[1], "{path}: {told:?}");
        assert!(path == "/nothing" || told[0] == told[1], "{path}: {told:?}");
    }
    let plain = [gateway.address().port(), nginx.address().port()];
    let sent = plain.map(|port| asked("http", port, "/a?b"));
    assert!(
        sent[0].ends_with(" 308 https://www.example.jp/a?b"),
        "{sent:?}"
    );
    assert!(
        sent[1].ends_with(" 301 https://www.example.jp/a?b"),
        "{sent:?}"
    );
    let token = asked("http", plain[0], "/.well-known/acme-challenge/token");
    assert_eq!(token, "of certbot 200 ");
    let shown = || {
        let to = ([127, 0, 0, 1], sealed).into();
        let client = TlsClient::connect(&tls::credulous(), [127, 6, 2, 1], to, "www.example.jp");
        client.expect("a handshake").shown()
    };
    let before = shown();
    renewed_by_certbot(&etc, 2);
    eventually(PATIENCE, "what certbot renewed", || {
        (shown() != before).then_some(())
    });
}
