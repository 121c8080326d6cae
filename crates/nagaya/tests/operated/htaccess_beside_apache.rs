//! `.htaccess` files that are made up, and addresses, beside Apache: the same status, place, file,
//! variables and fields.
//!
//! The idea: a file is some lines out of families that real files are made of, in one directory or
//! two; every round has its number as its seed, so that one that differs can be run alone, and of a
//! difference only the lines are told without which there is none. As many pairs as
//! `NAGAYA_HTACCESS_PAIRS` says, from the round `NAGAYA_HTACCESS_ROUND` on; of files alone that have
//! all the words of `NAGAYA_HTACCESS_ONLY`, where there are any, with `&` between them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;

use fastrand::Rng;
use testkit::client::Body;
use testkit::{Gateway, Outcome, RawClient, Reply, TempDir, free_port};

use crate::access_log::{apache, end};
use crate::made_up_htaccess::{FILES, lines, request};
use crate::readme::NAGAYA;

/// Pairs of a file and an address that are compared unless something else is said.
const PAIRS: usize = 1_000;
/// Addresses that are asked of one file.
const ADDRESSES: usize = 25;
/// Differences of a kind that are told in full.
const SHOWN_MAX: usize = 2;

const MODULES: [&str; 21] = [
    "mpm_event",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_host",
    "authz_user",
    "authz_groupfile",
    "access_compat",
    "auth_basic",
    "alias",
    "dir",
    "mime",
    "rewrite",
    "headers",
    "expires",
    "setenvif",
    "env",
    "autoindex",
    "cgid",
    "filter",
    "version",
];

/// What a program is told, each on a line.
const PROGRAM: &str = "#!/bin/sh\n\
    printf 'Content-Type: text/plain\\r\\n\\r\\ncgi\\nfile %s\\nname %s\\npath %s\\nquery %s\\n\
    uri %s\\nq %s\\nr %s\\nt %s\\nrq %s\\nrr %s\\nurl %s\\nstatus %s\\nrquery %s\\nuser %s\\n' \
    \"${SCRIPT_FILENAME##*/site/}\" \"$SCRIPT_NAME\" \"$PATH_INFO\" \"$QUERY_STRING\" \
    \"$REQUEST_URI\" \"$HTTP_Q\" \"$HTTP_R\" \"$HTTP_X_T $HTTP_COOKIE\" \"$REDIRECT_HTTP_Q\" \
    \"$REDIRECT_HTTP_R\" \"$REDIRECT_URL\" \"${REDIRECT_STATUS:-200}\" \"$REDIRECT_QUERY_STRING\" \
    \"$REMOTE_USER\"\n";

/// The types that the gateway knows itself.
const TYPES: &str = "text/html html\ntext/plain txt\ntext/css css\nimage/png png\n\
    text/javascript js\napplication/json json\napplication/octet-stream bak\napplication/gzip gz\n";

const CONFIG: &str = r#"
workers = 1
[[sites]]
hosts = ["*"]
root = "{at}/site"
within = "{at}"
htaccess = { override = ["All"] }
  [[sites.rules]]
  match = { file = "*.cgi" }
  handler = { cgi = {} }
"#;

/// A server that is asked over one connection as long as that lasts.
struct Asked {
    address: SocketAddr,
    client: Option<RawClient>,
}

impl Asked {
    fn ask(&mut self, request: &str) -> Reply {
        let whole = format!("{request}Host: a.test\r\n\r\n");
        let body = match request.starts_with("HEAD") {
            true => Body::Never,
            false => Body::Framed,
        };
        for _ in 0..3 {
            let connect = || RawClient::connect(self.address);
            let mut client = self.client.take().unwrap_or_else(connect);
            client.send(whole.as_bytes());
            match client.read_reply(body) {
                Outcome::Reply(reply) if reply.complete || body == Body::Never => {
                    let closes = reply.head.field("Connection") == Some("close");
                    self.client = (!closes).then_some(client);
                    return reply;
                }
                // It was closed between two requests.
                Outcome::Eof | Outcome::Reset => {}
                other => panic!("a reply expected to {whole}, got {other:?}"),
            }
        }
        panic!("no reply to {whole}");
    }
}

struct Both {
    directory: TempDir,
    site: PathBuf,
    _gateway: Gateway,
    apache: Child,
    theirs: Asked,
    ours: Asked,
}

impl Drop for Both {
    fn drop(&mut self) {
        end(&mut self.apache);
    }
}

/// A file's place, and its text.
type File = (&'static str, String);

impl Both {
    fn start() -> Option<Both> {
        let (directory, port) = (TempDir::new(), free_port());
        let at = directory.path().display();
        for name in FILES {
            directory.write(&format!("site/{name}"), format!("content of {name}"));
        }
        for name in ["info.cgi", "sub/info.cgi"] {
            let file = directory.write(&format!("site/{name}"), PROGRAM);
            fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let secret = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
        directory.write("users", format!("ann:{secret}\nbob:{secret}\n"));
        directory.write("groups", "staff: ann\nothers: bob\n");
        directory.write("mime.types", TYPES);
        let mut config = String::new();
        for name in MODULES {
            let file = format!("/usr/lib/apache2/modules/mod_{name}.so");
            if Path::new(&file).exists() {
                writeln!(config, "LoadModule {name}_module {file}").unwrap();
            }
        }
        write!(
            config,
            "ServerRoot {at}\nPidFile {at}/pid\nListen 127.0.0.1:{port}\nErrorLog {at}/error.log\n\
             ScriptSock {at}/cgid\nServerName a.test\nDocumentRoot {at}/site\n\
             TypesConfig {at}/mime.types\nDirectoryIndex index.html\nAddHandler cgi-script .cgi\n\
             LogLevel emerg\n<Directory {at}/site>\nAllowOverride All\n\
             Options FollowSymLinks ExecCGI\nRequire all granted\n</Directory>\n"
        )
        .unwrap();
        let apache = apache(&directory, &config, port)?;
        let gateway = Gateway::with_config(NAGAYA, CONFIG).with("at", at).start();
        let asked = |address| Asked {
            address,
            client: None,
        };
        Some(Both {
            site: directory.path().join("site"),
            theirs: asked(SocketAddr::from(([127, 0, 0, 1], port))),
            ours: asked(gateway.address()),
            directory,
            _gateway: gateway,
            apache,
        })
    }

    fn write(&self, files: &[File]) {
        for place in [".htaccess", "sub/.htaccess"] {
            let _ = fs::remove_file(self.site.join(place));
        }
        let at = self.directory.path().display().to_string();
        for (place, text) in files {
            fs::write(self.site.join(place), text.replace("{at}", &at)).unwrap();
        }
    }

    /// What both answer, where that differs and nothing explains it.
    fn differ(&mut self, files: &[File], request: &str) -> Option<(Seen, Seen)> {
        let at = self.directory.path().display().to_string();
        let [mut theirs, mut ours] = [&mut self.theirs, &mut self.ours]
            .map(|server| Seen::of(&server.ask(request), (server.address.port(), &at)));
        alike(request, &mut theirs, &mut ours);
        // Nothing explains that something is had which Apache refuses.
        let is_opening = [401, 403, 500].contains(&theirs.status) && ours.status < 400;
        let may_differ = !is_opening && reason(files, request, &theirs, &ours).is_some();
        let is_same = theirs == ours || may_differ;
        (!is_same).then_some((theirs, ours))
    }

    /// The lines without which there is no difference, which are in force then.
    fn reduced(&mut self, files: &[File], request: &str, kind: &str) -> Vec<File> {
        let mut files = files.to_vec();
        for file in 0..files.len() {
            let mut number = 0;
            while number < files[file].1.lines().count() {
                let mut fewer = files.clone();
                let lines = files[file].1.lines().enumerate();
                let kept = lines.filter(|(at, _)| *at != number);
                fewer[file].1 = kept.map(|(_, line)| format!("{line}\n")).collect();
                self.write(&fewer);
                match self.differ(&fewer, request) {
                    Some(seen) if kind_of(&seen) == kind => files = fewer,
                    _ => number += 1,
                }
            }
        }
        self.write(&files);
        files
    }
}

/// What of a reply has to be the same.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    status: u16,
    location: Option<String>,
    /// Of a page of the site's own.
    body: Option<String>,
    kind: Option<String>,
    fields: BTreeMap<&'static str, String>,
}

impl Seen {
    fn of(reply: &Reply, (port, at): (u16, &str)) -> Seen {
        let own = format!(":{port}");
        let told = |text: &str| text.replace(&own, "").replace(at, "{at}");
        let field = |name: &str| {
            let fields = reply.head.fields.iter();
            let values = fields.filter(|(have, _)| have.eq_ignore_ascii_case(name));
            let values: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
            (!values.is_empty()).then(|| told(&values.join(", ")))
        };
        let is_page = reply.status == 200;
        let body = told(&reply.text());
        let is_own = ["content of", "cgi\n", "no"];
        let is_own = is_own.iter().any(|begin| body.starts_with(begin));
        let names = ["X-A", "X-B", "X-T", "Set-Cookie", "WWW-Authenticate"];
        let of_pages = ["Cache-Control", "Content-Language", "Content-Encoding"];
        let of_pages = of_pages.into_iter().filter(|_| is_page);
        let names = names.into_iter().chain(of_pages);
        let fields = names.filter_map(|name| Some((name, field(name)?)));
        let kind = field("Content-Type").filter(|_| is_page && is_own);
        Seen {
            status: reply.status,
            location: field("Location").map(|to| to.replace("http://a.test/", "/")),
            body: is_own.then_some(body),
            kind,
            fields: fields.collect(),
        }
    }
}

/// Takes away what the gateway says otherwise in each such answer, whatever files say.
fn alike(request: &str, theirs: &mut Seen, ours: &mut Seen) {
    // Its own types have a charset.
    if let (Some(kind), Some(with)) = (&theirs.kind, &mut ours.kind)
        && *with == format!("{kind}; charset=utf-8")
    {
        with.clone_from(kind);
    }
    if let Some(asked) = ours.fields.get_mut("WWW-Authenticate") {
        *asked = asked.replace(", charset=\"UTF-8\"", "");
    }
    let target = request.split(' ').nth(1).unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    let is_canonical = !["//", "/./", "/../", "%2e"]
        .iter()
        .any(|it| path.contains(it));
    let is_directory = path.ends_with('/');
    for seen in [theirs, ours] {
        // What was captured of a path is escaped in a query.
        if let Some((path, query)) = seen.location.as_deref().and_then(|it| it.split_once('?')) {
            seen.location = Some(format!("{path}?{}", query.replace('é', "%C3%A9")));
        }
        if let Some(body) = &mut seen.body {
            let line = |line: &str| match line.split_once(' ') {
                Some(("query" | "rquery", _)) => line.replace('é', "%C3%A9"),
                _ => line.to_owned(),
            };
            *body = body.lines().map(line).collect::<Vec<_>>().join("\n");
        }
        if let Some(value) = seen.fields.get_mut("X-A") {
            *value = value.replace('é', "%C3%A9");
        }
        // Programs are told the canonical path.
        if let Some(body) = seen.body.as_mut().filter(|_| !is_canonical) {
            let lines = body.lines().filter(|line| !line.starts_with("uri "));
            *body = lines.collect::<Vec<_>>().join("\n");
        }
        // Of what is refused in the end, and of those that Apache makes beside it for
        // pages of directories that are not there, and to find out PATH_TRANSLATED.
        let has_more = request.contains(".cgi/")
            || seen
                .body
                .as_ref()
                .is_some_and(|body| body.contains("\npath /"));
        // A list has no language.
        if is_directory && seen.body.is_none() {
            seen.fields.remove("Content-Language");
        }
        if seen.status >= 400 || has_more || is_directory {
            seen.fields.remove("Set-Cookie");
        }
    }
}

/// By what two answers differ.
fn kind_of((theirs, ours): &(Seen, Seen)) -> String {
    let mut kind = format!("{} and {}", theirs.status, ours.status);
    let named = |seen: &Seen| {
        let body = seen
            .body
            .as_deref()
            .unwrap_or("")
            .lines()
            .map(str::to_owned);
        let mut named = vec![seen.location.clone(), seen.kind.clone()];
        named.extend(body.map(Some));
        named
    };
    let of_both = [&theirs.fields, &ours.fields].map(|fields| fields.clone());
    for name in of_both.iter().flat_map(BTreeMap::keys) {
        if theirs.fields.get(name) != ours.fields.get(name) && !kind.contains(name) {
            write!(kind, ", {name}").unwrap();
        }
    }
    for (theirs, ours) in named(theirs)
        .iter()
        .zip(named(ours))
        .filter(|(a, b)| **a != *b)
    {
        let of = [theirs.as_deref(), ours.as_deref()];
        let word = of.into_iter().flatten().next().unwrap_or_default();
        write!(kind, ", {}", word.split(' ').next().unwrap_or_default()).unwrap();
    }
    kind
}

/// Why an answer may be another one than Apache's; none where it may not.
fn reason(files: &[File], request: &str, theirs: &Seen, ours: &Seen) -> Option<&'static str> {
    let says = |word: &str| files.iter().any(|(_, text)| text.contains(word));
    let is_sent = (300..400).contains(&theirs.status);
    if is_sent && theirs.location.is_none() {
        return Some("a redirect that a later rule has taken back: Apache sends nowhere");
    }
    if (request.contains("%20 ") || request.contains("%20?")) && ours.status == 400 {
        return Some("a place that would end with a blank");
    }
    if says("<If \"true\">\n<Files") && ours.status == 500 {
        return Some("<Files> in <If> about access is an error here, and does nothing in Apache");
    }
    if says("<If \"true\">\n<If") && (ours.status >= 400 || says("RewriteRule")) {
        return Some("what <If> in <If> says is not asked again there once a rule leads on");
    }
    if says("[B") && ours.status == 404 && is_sent {
        return Some("a slash that a rule has escaped is refused before a Redirect is asked");
    }
    let shows = |body: &String| body.contains("\npath /.");
    if ours.status == 404 && theirs.body.as_ref().is_some_and(shows) {
        return Some("what is hidden is not had behind a program's name, either");
    }
    // Who asks for no body is not told that it is a program's.
    let is_cookie = theirs.fields.contains_key("Set-Cookie") && {
        let others = |seen: &Seen| {
            let fields = seen
                .fields
                .iter()
                .filter(|(name, _)| **name != "Set-Cookie");
            fields
                .map(|(name, value)| (*name, value.clone()))
                .collect::<Vec<_>>()
        };
        theirs.status == ours.status && others(theirs) == others(ours)
    };
    if request.starts_with("HEAD") && says("info.cgi/") && is_cookie {
        return Some("Apache looks up what follows a program as a path, whose rules set cookies");
    }
    if ours.status == 405 {
        return Some("a file is read, and takes no body");
    }
    reason_of_rules((&says, request), theirs, ours)
}

/// The same, of rules and of what answers for what is not there.
fn reason_of_rules(
    (says, request): (&dyn Fn(&str) -> bool, &str),
    theirs: &Seen,
    ours: &Seen,
) -> Option<&'static str> {
    let is_program = theirs
        .body
        .as_ref()
        .is_some_and(|body| body.starts_with("cgi\n"));
    let is_directory = request.contains("/ HTTP") || request.contains("/?");
    let is_sent = (300..400).contains(&theirs.status);
    let follows_program = [".cgi/", ".html/", ".txt/"]
        .iter()
        .any(|it| request.contains(it));
    let leads_there = || says("info.cgi/") && differ_only_in(&["name ", "path "], theirs, ours);
    if says("[DPI") && (follows_program || leads_there()) {
        return Some("DPI of a rule that leads to the same file");
    }
    if says("[R=temp]") && is_sent {
        return Some("a rule that goes on with what another one redirects to");
    }
    if says("[E=")
        && is_directory
        && is_program
        && differ_only_in(&["q ", "r ", "rq ", "rr "], theirs, ours)
    {
        return Some("a variable that a rule sets for a directory and for its page: both are told");
    }
    let leads_to_directory = || {
        let targets = ["\"?n=1\"", "\"/sub/", "\"sub/"];
        targets.iter().any(|target| says(target)) && differ_only_in(&[], theirs, ours)
    };
    if says("[T=") && (is_directory || leads_to_directory()) {
        // There it is where mod_dir was loaded before mod_rewrite.
        return Some("a type that a rule gives to a directory is not its page's");
    }
    let grows = says("%{REQUEST_URI}.txt") || says("$1.txt");
    if grows && theirs.status == 403 && ours.status == 500 {
        return Some("a path that grows without end: its name is too long there, a loop here");
    }
    if says("[N=3]") && (theirs.status == 500 || (theirs.status, ours.status) == (403, 500)) {
        return Some("rounds of a set of rules are counted otherwise");
    }
    if says("RequestHeader") && says("RewriteRule") {
        return Some("fields of a request are edited once, when no rule asks for them any more");
    }
    let is_apart = ["[T=", "AuthType", "SetEnvIf"].iter().any(|it| says(it));
    if says("FallbackResource") && (is_apart || is_sent || theirs.status == 401) {
        return Some(
            "what answers for a missing file is asked about as any path, with its own type",
        );
    }
    if (says("ForceType") || says("[T=")) && (is_program || ours.status == 404) {
        return Some("a forced type takes the program away, whatever gave it one");
    }
    if request.contains("%25") && [400, 404].contains(&theirs.status) && ours.status >= 400 {
        return Some("a percent sign is refused where it could be read twice");
    }
    None
}

/// Whether two pages have the same status, place and fields, and the same lines but for these.
fn differ_only_in(words: &[&str], theirs: &Seen, ours: &Seen) -> bool {
    let lines = |seen: &Seen| {
        let lines = seen.body.iter().flat_map(|body| body.lines());
        let lines = lines.filter(|line| !words.iter().any(|word| line.starts_with(word)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let rest = |seen: &Seen| (seen.status, seen.location.clone(), seen.fields.clone());
    rest(theirs) == rest(ours) && lines(theirs) == lines(ours)
}

#[test]
fn made_up_files_are_obeyed_as_apache_obeys_them() {
    let Some(mut both) = Both::start() else {
        return testkit::lacks("apache2", "made-up .htaccess files are asked beside it");
    };
    let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
    let pairs = number("NAGAYA_HTACCESS_PAIRS").unwrap_or(PAIRS);
    let first = number("NAGAYA_HTACCESS_ROUND").unwrap_or(0);
    let only = std::env::var("NAGAYA_HTACCESS_ONLY").unwrap_or_default();
    let (mut asked, mut different) = (0, 0);
    let mut kinds = BTreeMap::new();
    for round in first.. {
        if asked >= pairs {
            break;
        }
        let mut random = Rng::with_seed(round as u64);
        let mut files = vec![(".htaccess", lines(&mut random))];
        if random.u8(..3) == 0 {
            files.push(("sub/.htaccess", lines(&mut random)));
        }
        if !only
            .split('&')
            .all(|word| files.iter().any(|(_, text)| text.contains(word)))
        {
            continue;
        }
        both.write(&files);
        for _ in 0..ADDRESSES {
            let request = request(&mut random);
            asked += 1;
            let Some(seen) = both.differ(&files, &request) else {
                continue;
            };
            different += 1;
            let kind = kind_of(&seen);
            let count = kinds.entry(kind.clone()).or_insert(0);
            *count += 1;
            if *count <= SHOWN_MAX {
                let reduced = both.reduced(&files, &request, &kind);
                let seen = both.differ(&reduced, &request);
                println!("NAGAYA_HTACCESS_ROUND={round}: {kind}");
                for (place, text) in reduced {
                    println!("--- {place}\n{text}");
                }
                let (theirs, ours) = seen.unwrap();
                println!("--- {request}\nApache {theirs:?}\nhere   {ours:?}\n");
                both.write(&files);
            }
        }
    }
    println!("{asked} pairs, {different} different");
    // Of very many a few are seen for which no reason is known yet; those that are always asked have none.
    let allowed = if asked > PAIRS { asked / 100_000 } else { 0 };
    assert!(
        different <= allowed,
        "{different} of {asked} pairs: {kinds:#?}"
    );
}
