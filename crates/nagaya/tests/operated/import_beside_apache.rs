//! Virtual hosts that are made up, imported and asked beside Apache: what Apache closes is closed.
//!
//! The idea: a virtual host is some lines out of families that keep somebody out, in sections that
//! overlap; each has its number as its seed, so that one that differs can be looked at alone. As many
//! hosts as `NAGAYA_HOSTS` says.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};

use testkit::client::reply;
use testkit::{Gateway, RawClient, Reply, ScriptedUpstream, Step, TempDir, free_port};

use crate::access_log::{apache, end};
use crate::readme::NAGAYA;

/// Virtual hosts, unless something else is said.
const HOSTS: usize = 60;
/// Differences that are told in full.
const SHOWN_MAX: usize = 8;

const MODULES: [&str; 16] = [
    "mpm_event",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_host",
    "authz_user",
    "access_compat",
    "auth_basic",
    "alias",
    "dir",
    "mime",
    "rewrite",
    "setenvif",
    "autoindex",
    "proxy",
    "proxy_http",
];

const FILES: [&str; 14] = [
    "site/index.html",
    "site/plain.txt",
    "site/secret.bak",
    "site/data.json",
    "site/sub/index.html",
    "site/sub/page.txt",
    "site/sub/config1.txt",
    "site/sub/deep/page.txt",
    "site/sub/deep/secret.bak",
    "site/other/page.txt",
    "site/list/a.txt",
    "away/in/page.txt",
    "away/page.txt",
    "site/own/page.txt",
];

const URLS: [&str; 26] = [
    "/",
    "/index.html",
    "/plain.txt",
    "/secret.bak",
    "/data.json",
    "/data.json?evil=1",
    "/sub",
    "/sub/",
    "/sub/index.html",
    "/sub/page.txt",
    "/sub/page.txt/more",
    "/sub/config1.txt",
    "/sub/%63onfig1.txt",
    "/sub//page.txt",
    "/sub/deep/",
    "/sub/deep/page.txt",
    "/sub/deep/secret.bak",
    "/sub/../sub/deep/page.txt",
    "/other/page.txt",
    "/other/",
    "/list/",
    "/list/a.txt",
    "/al/page.txt",
    "/al/in/page.txt",
    "/missing/page.txt",
    "/own/page.txt",
];

/// What a virtual host may say; `{r}` is its root and `{a}` the directory of all.
const FAMILIES: [&str; 34] = [
    "<Directory {r}/sub>\nRequire all denied\n</Directory>",
    "<Directory {r}/sub/deep>\nRequire all granted\n</Directory>",
    "<Directory {r}/*/deep>\nRequire all denied\n</Directory>",
    "<Directory {a}/*/other>\nRequire all denied\n</Directory>",
    "<Directory {a}/[st]ite/list>\nRequire ip 10.0.0.0/8\n</Directory>",
    "<Directory ~ \"/deep\">\nRequire all denied\n</Directory>",
    "<DirectoryMatch \"/(deep|other)/\">\nRequire all denied\n</DirectoryMatch>",
    "<DirectoryMatch \"^{r}/.*/deep\">\nRequire ip 10.0.0.0/8\n</DirectoryMatch>",
    "<DirectoryMatch \"^{r}/sub\">\nRequire all granted\n</DirectoryMatch>",
    "<DirectoryMatch \"/away\">\nOrder allow,deny\nDeny from all\n</DirectoryMatch>",
    "<Files \"secret*\">\nRequire all denied\n</Files>",
    "<Files page.txt>\nRequire all granted\n</Files>",
    "<FilesMatch \"^[^.]+\\.(bak|json)$\">\nRequire all denied\n</FilesMatch>",
    "<FilesMatch \"^(config|setup)[0-9]*\\.txt$\">\nOrder deny,allow\nDeny from all\n</FilesMatch>",
    "<FilesMatch \"\\.txt$\">\nRequire ip 10.0.0.0/8\nRequire ip 192.0.2.0/24\n</FilesMatch>",
    "<Location /other>\nRequire all denied\n</Location>",
    "<Location /sub/deep>\nRequire all granted\n</Location>",
    "<Location \"/*/deep\">\nRequire all denied\n</Location>",
    "<LocationMatch \"^/sub/.*\\.txt$\">\nRequire all denied\n</LocationMatch>",
    "<Directory {r}>\nOptions -Indexes\n</Directory>",
    "<Directory {r}/list>\nOptions None\n</Directory>",
    "<Location /list>\nOptions -Indexes\n</Location>",
    "<If \"%{REQUEST_URI} =~ m#/other/#\">\nRequire all denied\n</If>",
    "RewriteEngine On\nRewriteRule ^/data - [F]",
    "RewriteEngine On\nRewriteRule !^/(sub|index|$) - [F]",
    "RewriteEngine On\nRewriteCond %{QUERY_STRING} evil [OR]\nRewriteCond %{HTTP_USER_AGENT} bot\nRewriteRule .* - [G]",
    "RewriteEngine On\nRewriteCond %{REQUEST_URI} plain\nRewriteRule .* - [R=404,L]",
    "<Directory {r}/sub>\nRewriteEngine On\nRewriteRule ^page - [F]\n</Directory>",
    "<Directory {r}/sub>\n<Limit GET>\nRequire all denied\n</Limit>\n</Directory>",
    "<Directory {r}/sub>\n<RequireAll>\nRequire all granted\nRequire not ip 127.0.0.1\n</RequireAll>\n</Directory>",
    "<Directory {r}/other>\nSetEnvIf Request_URI page let_in\nOrder deny,allow\nDeny from all\nAllow from env=let_in\n</Directory>",
    "<Directory {r}/own>\nAllowOverride AuthConfig\n</Directory>",
    "<Directory {a}/away/in>\nAuthType Basic\nAuthName x\nAuthUserFile {a}/users\nRequire valid-user\n</Directory>",
    "Redirect gone /plain.txt",
];

/// Numbers that look like chance, the same for one seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// What the virtual host of a number says.
fn lines(number: usize) -> Vec<&'static str> {
    let mut dice = Dice(number as u64);
    let count = 2 + dice.below(4);
    (0..count)
        .map(|_| FAMILIES[dice.below(FAMILIES.len())])
        .collect()
}

fn hosts(count: usize, at: &str, port: u16) -> String {
    let mut text = String::new();
    let root = format!("{at}/site");
    for number in 0..count {
        let lines = lines(number).join("\n");
        let lines = lines.replace("{r}", &root).replace("{a}", at);
        writeln!(
            text,
            "<VirtualHost *:{port}>\nServerName h{number}.example\nDocumentRoot {root}\nAlias /al {at}/away\n{lines}\n</VirtualHost>"
        )
        .unwrap();
    }
    // What stands outside of all, as Debian has it.
    format!(
        "<Directory />\nAllowOverride None\nRequire all denied\n</Directory>\n\
         <Directory {at}>\nOptions Indexes FollowSymLinks\nRequire all granted\n</Directory>\n{text}"
    )
}

/// The status that a server answers a question of a host with.
fn ask(address: SocketAddr, host: usize, url: &str) -> u16 {
    asked(address, host, url).status
}

fn asked(address: SocketAddr, host: usize, url: &str) -> Reply {
    let request =
        format!("GET {url} HTTP/1.1\r\nHost: h{host}.example\r\nConnection: close\r\n\r\n");
    reply(RawClient::connect(address).ask(request.as_bytes()))
}

#[test]
fn what_apache_closes_is_closed_after_the_import() {
    let wanted = std::env::var("NAGAYA_HOSTS").ok();
    let count = wanted.map_or(HOSTS, |it| it.parse().unwrap());
    let (directory, port) = (TempDir::new(), free_port());
    let at = directory.path().display().to_string();
    for name in FILES {
        directory.write(name, name);
    }
    directory.write("site/own/.htaccess", "Require all denied\n");
    directory.write("users", "alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n");
    let hosts = hosts(count, &at, port);
    let Some((mut theirs, gateway)) = both(&directory, port, &hosts, count) else {
        return testkit::lacks("apache2", "imported hosts are asked beside it");
    };
    let theirs_at = SocketAddr::from(([127, 0, 0, 1], port));
    let (mut opened, mut served, mut same) = (Vec::new(), 0, 0);
    for host in 0..count {
        for url in URLS {
            let (theirs, ours) = (ask(theirs_at, host, url), ask(gateway.address(), host, url));
            if theirs >= 400 && ours < 400 {
                opened.push(format!(
                    "h{host} {url}: {theirs}, here {ours}\n{}",
                    lines(host).join("\n")
                ));
            }
            served += usize::from(theirs < 400);
            same += usize::from(theirs < 400 && ours < 400);
        }
    }
    end(&mut theirs);
    let asked = count * URLS.len();
    println!(
        "{asked} asked, {served} served by Apache, {same} of these here, {} opened",
        opened.len()
    );
    opened.truncate(SHOWN_MAX);
    assert!(opened.is_empty(), "{}", opened.join("\n\n"));
    // Nor is all closed to be sure.
    assert!(
        same * 10 >= served * 8,
        "of {served} that Apache serves only {same} are"
    );
}

/// Apache with these hosts, and the gateway with what is imported of them.
fn both(directory: &TempDir, port: u16, hosts: &str, count: usize) -> Option<(Child, Gateway)> {
    let at = directory.path().display().to_string();
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
         ServerName other.example\nTypesConfig /etc/mime.types\nDirectoryIndex index.html\n{hosts}"
    )
    .unwrap();
    let theirs = apache(directory, &config, port)?;
    let source = directory.write("hosts.conf", format!("DirectoryIndex index.html\n{hosts}"));
    let imported = Command::new(NAGAYA)
        .args(["import", "apache", "--listen", "none", "--out"])
        .arg(directory.path().join("sites.d"))
        .arg(source)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&imported.stdout).into_owned();
    assert!(
        said.contains(&format!("{count} written")),
        "{said}\n{imported:?}"
    );
    let main = "include = [\"{at}/sites.d/*.toml\"]\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n";
    let gateway = Gateway::with_config(NAGAYA, main).with("at", &at);
    Some((theirs, gateway.start()))
}

/// What virtual hosts forward, `{b}` being the back end, and what they are asked.
const FORWARDING: [(&str, &[&str]); 9] = [
    (
        "ProxyPass /app http://{b}/in\nRewriteEngine On\nRewriteRule ^/x/(.*)$ /app/$1 [PT]",
        &[
            "/x/y.txt",
            "/x/y.txt?q=1",
            "/app/y.txt",
            "/app",
            "/page.txt",
        ],
    ),
    (
        "ProxyPass /app http://{b}/in\nRewriteEngine On\nRewriteRule ^/x/(.*)$ /app/$1 [L]\n\
         RewriteRule ^/app/gone$ /page.txt [PT]",
        &["/x/y.txt", "/app/y.txt", "/app/gone"],
    ),
    (
        "RewriteEngine On\nRewriteRule ^/(.*)\\.do$ /back/$1\n\
         RewriteRule ^/back/(.*)$ http://{b}/$1 [P]",
        &["/a/b.do", "/a/b.do?q=1", "/back/c", "/page.txt"],
    ),
    (
        "ProxyPass /app http://{b}/in\nRewriteEngine On\n\
         RewriteRule ^/old/(.*)$ http://{b}/new/$1 [P]\n<Directory {r}>\nAllowOverride All\n</Directory>",
        &[
            "/short/y.txt",
            "/short/y.txt?q=1",
            "/to-old/a?q=2",
            "/app/y.txt",
            "/app/",
            "/page.txt",
            "/none",
        ],
    ),
    (
        "ProxyPreserveHost On\nRewriteEngine On\nRewriteRule ^/p/(.*)$ http://{b}/$1 [P]\n\
         ProxyPassMatch ^/m/(.*)$ http://{b}/$1\nProxyPass /app http://{b}/in",
        &["/p/a", "/m/b", "/app/c"],
    ),
    (
        "RewriteEngine On\nRewriteRule ^/p/(.*)$ http://{b}/$1 [P]\n\
         ProxyPassMatch ^/m/(.*)$ http://{b}/$1\nProxyPass /app http://{b}/in",
        &["/p/a", "/m/b", "/app/c"],
    ),
    (
        "ProxyPass /app/y.txt !\nProxyPass /app http://{b}/in\nRewriteEngine On\n\
         RewriteRule ^/x/(.*)$ /app/$1 [NC,PT]",
        &["/x/y.txt", "/x/z.txt", "/app/y.txt"],
    ),
    (
        "ProxyPass /app http://{b}/in\nRewriteEngine On\nRewriteRule \"^/x$\" \"/app/y.txt\" [PT,QSA]\n\
         RewriteRule ^/app - [F]\nRewriteRule ^/z$ /page.txt",
        &["/x", "/app/y.txt", "/z"],
    ),
    (
        "ProxyPass /app http://{b}/in\nRewriteEngine On\nRewriteRule ^/x$ /app/y.txt [PT]\n\
         <Location /app>\nRequire all denied\n</Location>",
        &["/x", "/app/y.txt"],
    ),
];

#[test]
fn what_rewriting_leads_to_a_back_end_is_forwarded_after_the_import() {
    let (directory, port) = (TempDir::new(), free_port());
    let at = directory.path().display().to_string();
    for name in ["site/page.txt", "site/app/y.txt", "site/app/index.html"] {
        directory.write(name, name);
    }
    let own = "RewriteEngine On\nRewriteRule ^short/(.*)$ /app/$1 [L]\nRewriteRule ^to-old/(.*)$ /old/$1\n\
               RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule . page.txt\n";
    directory.write("site/.htaccess", own);
    let back = ScriptedUpstream::start(|seen| {
        let host = seen.head.field("Host").unwrap_or_default();
        vec![Step::reply(200, format!("{} for {host}", seen.head.line))]
    });
    let mut hosts = format!(
        "<Directory />\nAllowOverride None\nRequire all denied\n</Directory>\n\
         <Directory {at}>\nOptions FollowSymLinks\nRequire all granted\n</Directory>\n"
    );
    for (number, (lines, _)) in FORWARDING.iter().enumerate() {
        let lines = lines.replace("{b}", &back.address().to_string());
        let lines = lines.replace("{r}", &format!("{at}/site"));
        writeln!(
            hosts,
            "<VirtualHost *:{port}>\nServerName h{number}.example\nDocumentRoot {at}/site\n{lines}\n</VirtualHost>"
        )
        .unwrap();
    }
    let Some((mut theirs, gateway)) = both(&directory, port, &hosts, FORWARDING.len()) else {
        return testkit::lacks("apache2", "imported hosts are asked beside it");
    };
    let theirs_at = SocketAddr::from(([127, 0, 0, 1], port));
    let mut different = Vec::new();
    for (host, (_, urls)) in FORWARDING.iter().enumerate() {
        for url in *urls {
            let [theirs, ours] = [theirs_at, gateway.address()].map(|address| {
                let reply = asked(address, host, url);
                let text = reply.text().trim_end().to_owned();
                (
                    reply.status,
                    if reply.status < 400 {
                        text
                    } else {
                        String::new()
                    },
                )
            });
            if theirs != ours {
                different.push(format!("h{host} {url}: {theirs:?}, here {ours:?}"));
            }
        }
    }
    end(&mut theirs);
    assert!(different.is_empty(), "{}", different.join("\n"));
}
