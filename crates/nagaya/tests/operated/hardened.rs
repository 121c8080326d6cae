//! Virtual hosts as administrators harden them, with the strongest `.htaccess` files that a tenant can
//! write, imported and asked beside Apache: what does not run, is not served and not forwarded there
//! is not here.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use testkit::client::reply;
use testkit::fastcgi::printed;
use testkit::{FastCgiResponder, Gateway, RawClient, ScriptedUpstream, Step, TempDir, free_port};

use crate::access_log::{apache, end};
use crate::readme::NAGAYA;

/// A module that is not there is passed over: PHP's needs the first kind of processes.
const MODULES: [(&str, &str); 21] = [
    ("mpm_prefork", "mod_mpm_prefork"),
    ("authn_core", "mod_authn_core"),
    ("authn_file", "mod_authn_file"),
    ("authz_core", "mod_authz_core"),
    ("authz_host", "mod_authz_host"),
    ("authz_user", "mod_authz_user"),
    ("access_compat", "mod_access_compat"),
    ("auth_basic", "mod_auth_basic"),
    ("alias", "mod_alias"),
    ("dir", "mod_dir"),
    ("mime", "mod_mime"),
    ("headers", "mod_headers"),
    ("rewrite", "mod_rewrite"),
    ("setenvif", "mod_setenvif"),
    ("autoindex", "mod_autoindex"),
    ("proxy", "mod_proxy"),
    ("proxy_http", "mod_proxy_http"),
    ("socache_shmcb", "mod_socache_shmcb"),
    ("ssl", "mod_ssl"),
    ("env", "mod_env"),
    ("php", "libphp8.2"),
];

/// All that somebody may write who may write into his directory.
const STRONGEST: &str = "Options +Indexes +ExecCGI\n\
    Order allow,deny\nAllow from all\nSatisfy Any\nRequire all granted\n\
    php_flag engine on\nAddHandler application/x-httpd-php .php .txt\n\
    <Files \"*.*\">\nRequire all granted\nSetHandler application/x-httpd-php\n</Files>\n\
    <If \"true\">\nphp_flag engine on\n</If>\n\
    RewriteEngine On\nRewriteRule ^nothing$ - [L]\n";

/// What a tenant has without being able to do all.
const WEAKER: &str = "Order allow,deny\nAllow from all\nRequire all granted\nphp_flag engine on\n";

const FILES: [&str; 13] = [
    "site/index.php",
    "site/x.txt",
    "site/denied.html",
    "site/admin/x.txt",
    "site/metrics/x.txt",
    "site/up/x.php",
    "site/up/x.txt",
    "site/up/deep/x.php",
    "site/up/deep/x.txt",
    "site/part/x.txt",
    "site/part/x.php",
    "static/x.txt",
    "static/sub/x.txt",
];

const URLS: [&str; 24] = [
    "/",
    "/index.php",
    "/x.txt",
    "/denied.html",
    "/admin",
    "/admin/x.txt",
    "/admin/x.txt?key=1",
    "/metrics",
    "/metrics/x.txt",
    "/app",
    "/app/admin",
    "/app/x",
    "/app/%61dmin",
    "/static/x.txt",
    "/static/sub/x.txt",
    "/up/",
    "/up/x.php",
    "/up/x.txt",
    "/up/deep/",
    "/up/deep/x.php",
    "/up/deep/x.txt",
    "/part/",
    "/part/x.php",
    "/part/x.txt",
];

/// What files may say, and PHP as a module runs it.
const OPEN: &str = "DocumentRoot {r}\n<Directory {r}>\nAllowOverride All\n</Directory>\n\
    <FilesMatch \"\\.php$\">\nSetHandler {php}\n</FilesMatch>\n";
/// A back end beside files that a module of PHP runs.
const APP: &str = "DocumentRoot {r}\n<Directory {r}>\nAllowOverride All\n</Directory>\n";

/// What hosts say: what is before it, and what hardens them.
const HOSTS: [(&str, &str); 22] = [
    (OPEN, ""),
    (
        OPEN,
        "<Directory {r}/up>\nAllowOverride None\nRemoveHandler .php\nSetHandler none\n</Directory>",
    ),
    (
        OPEN,
        "<Directory {r}/up>\nAllowOverride None\nOptions -Indexes\n<FilesMatch \"\\.php$\">\nRequire all denied\n</FilesMatch>\n</Directory>",
    ),
    (
        OPEN,
        "<Directory {r}/*/deep>\nAllowOverride None\nSetHandler none\n</Directory>",
    ),
    (
        OPEN,
        "<Directory {r}/up>\nphp_admin_flag engine off\n</Directory>",
    ),
    (OPEN, "php_admin_flag engine off"),
    (
        OPEN,
        "<Location /up>\nphp_admin_flag engine off\n</Location>",
    ),
    (
        OPEN,
        "<Directory {r}>\nAllowOverride None\n</Directory>\n<Directory {r}/part>\nAllowOverride All\n</Directory>",
    ),
    (
        OPEN,
        "<Directory {r}>\nAllowOverride AuthConfig\n</Directory>\n<Directory {r}/up/deep>\nAllowOverrideList None\nAllowOverride None\n</Directory>",
    ),
    (
        OPEN,
        "<Directory {r}/*>\nOptions Indexes FollowSymLinks\nAllowOverride None\n</Directory>\n<Directory {r}/up/deep>\nOptions -Indexes\nphp_admin_flag engine off\n</Directory>",
    ),
    (
        OPEN,
        "<Directory {r}/up>\nSSLRequire %{REMOTE_ADDR} =~ m/^10\\./\n</Directory>",
    ),
    (OPEN, "<Directory {r}/up>\nSSLRequireSSL\n</Directory>"),
    (
        OPEN,
        "<FilesMatch \"(?<a>x)\\.txt$\">\nRequire all denied\n</FilesMatch>",
    ),
    (
        OPEN,
        "{geo}\nSetEnvIf GEOIP_COUNTRY_CODE ^(CN|RU)$ Block\n<Directory {r}/part>\nAllowOverride None\nOrder allow,deny\nAllow from all\nDeny from env=Block\n</Directory>",
    ),
    (
        OPEN,
        "{geo}\nSetEnvIf GEOIP_COUNTRY_CODE ^(CN|RU)$ Block\n<Directory {r}/part>\nAllowOverride None\n<RequireAll>\nRequire all granted\nRequire not env Block\n</RequireAll>\n</Directory>",
    ),
    (
        APP,
        "RewriteEngine On\nRewriteRule ^/(admin|metrics) - [L]\nRewriteRule ^/(.*)$ http://{up}/$1 [P]",
    ),
    (
        APP,
        "RewriteEngine On\nRewriteCond %{QUERY_STRING} !key=1\nRewriteRule ^/admin /denied.html [L]\nRewriteRule ^/metrics - [S=1]\nRewriteRule ^/(.*)$ http://{up}/$1 [P]",
    ),
    (
        APP,
        "RewriteEngine On\nRewriteCond %{QUERY_STRING} !key=1\nRewriteRule ^/admin /denied.html [L]\nProxyPass /metrics !\nProxyPass / http://{up}/",
    ),
    (
        APP,
        "RewriteEngine On\nRewriteRule ^/part /denied.html\nProxyPass /up !\nProxyPass / http://{up}/\n<Directory {r}/up>\nRewriteEngine On\nRewriteRule ^x\\.txt - [F]\n</Directory>",
    ),
    (
        "",
        "Alias /static {a}/static\nProxyPass /app http://{up}\nRewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule ^/app/admin - [F]",
    ),
    (
        "",
        "Alias /static {a}/static\nProxyPass /static !\nProxyPass / http://{up}/\nRewriteEngine On\nRewriteRule ^/metrics - [G]\n<Directory {a}/static/sub>\nRequire all denied\n</Directory>",
    ),
    (
        "",
        "ProxyPass / http://{up}/\nRedirectMatch 404 ^/metrics\nRewriteEngine On\nRewriteRule !^/(app|admin) - [F]",
    ),
];

/// What a server answers: its status, and what has made the answer.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Answer {
    status: u16,
    has_run: bool,
    is_forwarded: bool,
}

fn ask(address: SocketAddr, host: usize, url: &str) -> Answer {
    let request =
        format!("GET {url} HTTP/1.1\r\nHost: h{host}.example\r\nConnection: close\r\n\r\n");
    let answer = reply(RawClient::connect(address).ask(request.as_bytes()));
    Answer {
        status: answer.status,
        has_run: answer.text().contains("it has run"),
        is_forwarded: answer.text().contains("from behind"),
    }
}

/// The virtual hosts, each twice: beside the strongest files of a tenant, and beside weaker ones.
fn hosts(at: &str, port: u16, upstream: SocketAddr, (php, geo): (&str, &str)) -> String {
    let mut text = String::new();
    for (number, (before, lines)) in HOSTS.iter().enumerate() {
        let body = format!("{before}{lines}");
        for (which, tree) in ["strong", "weak"].iter().enumerate() {
            let at = format!("{at}/{tree}");
            let body = body
                .replace("{r}", &format!("{at}/site"))
                .replace("{a}", &at)
                .replace("{up}", &upstream.to_string())
                .replace("{php}", php)
                .replace("{geo}", geo);
            let number = 2 * number + which;
            writeln!(
                text,
                "<VirtualHost *:{port}>\nServerName h{number}.example\n{body}\n</VirtualHost>"
            )
            .unwrap();
        }
    }
    format!(
        "<Directory />\nAllowOverride None\nRequire all denied\n</Directory>\n\
         <Directory {at}>\nOptions Indexes FollowSymLinks\nRequire all granted\n</Directory>\n\
         DirectoryIndex index.php\n{text}"
    )
}

fn write_trees(directory: &TempDir) {
    for (tree, says) in [("strong", STRONGEST), ("weak", WEAKER)] {
        for name in FILES {
            directory.write(&format!("{tree}/{name}"), "<?php echo 'it has', ' run';");
        }
        for name in ["up", "up/deep", "part"] {
            directory.write(&format!("{tree}/site/{name}/.htaccess"), says);
        }
    }
}

/// What Apache loads, and the hosts as it reads them; whether PHP is a module of it.
fn apache_config(at: &str, port: u16, hosts: &str) -> (String, bool) {
    let (mut config, mut has_php) = (String::new(), false);
    for (name, file) in MODULES {
        let file = format!("/usr/lib/apache2/modules/{file}.so");
        if Path::new(&file).exists() {
            writeln!(config, "LoadModule {name}_module {file}").unwrap();
            has_php |= name == "php";
        }
    }
    write!(
        config,
        "ServerRoot {at}\nPidFile {at}/pid\nListen 127.0.0.1:{port}\nErrorLog {at}/error.log\n\
         ServerName other.example\nTypesConfig /etc/mime.types\nSSLSessionCache none\n{hosts}"
    )
    .unwrap();
    (config, has_php)
}

/// Imports the hosts.
fn import(directory: &TempDir, hosts: &str) {
    let sites = directory.path().join("sites.d");
    let source = directory.write("hosts.conf", hosts);
    let imported = Command::new(NAGAYA)
        .args(["import", "apache", "--listen", "none", "--out"])
        .arg(&sites)
        .arg(source)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&imported.stdout).into_owned();
    let count = 2 * HOSTS.len();
    assert!(
        said.contains(&format!("{count} written")),
        "{said}\n{imported:?}"
    );
}

#[test]
fn what_an_administrator_has_closed_no_tenant_opens_after_the_import() {
    let (directory, port) = (TempDir::new(), free_port());
    let at = directory.path().display().to_string();
    write_trees(&directory);
    let upstream = ScriptedUpstream::fixed("from behind");
    let page = b"Content-Type: text/plain\r\n\r\nit has run";
    let php = FastCgiResponder::start(move |_| vec![Step::Send(printed(page))]);
    // The latter in the place of a module that finds it out.
    let own = (
        "application/x-httpd-php",
        "SetEnvIf Remote_Addr . GEOIP_COUNTRY_CODE=CN",
    );
    let theirs = hosts(&at, port, upstream.address(), own);
    let (config, has_php) = apache_config(&at, port, &theirs);
    let server = has_php.then(|| apache(&directory, &config, port)).flatten();
    let Some(mut server) = server else {
        return testkit::lacks(
            "apache2",
            "hardened hosts are asked beside it, with its PHP",
        );
    };
    let php_at = format!("\"proxy:fcgi://{}\"", php.address());
    let ours = hosts(&at, port, upstream.address(), (&php_at, "GeoIPEnable On"));
    import(&directory, &ours);
    let main = "include = [\"{at}/sites.d/*.toml\"]\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n";
    let gateway = Gateway::with_config(NAGAYA, main).with("at", &at).start();
    let theirs_at = SocketAddr::from(([127, 0, 0, 1], port));
    let (mut opened, mut lost) = (Vec::new(), Vec::new());
    let (mut served, mut ran) = (0, 0);
    for host in 0..2 * HOSTS.len() {
        for url in URLS {
            let (theirs, ours) = (ask(theirs_at, host, url), ask(gateway.address(), host, url));
            let is_open = theirs.status < 400;
            let line = format!(
                "h{host} {url}: {theirs:?}, here {ours:?}\n{}",
                HOSTS[host / 2].1
            );
            if (!is_open && ours.status < 400)
                || (!theirs.has_run && ours.has_run)
                || (!theirs.is_forwarded && ours.is_forwarded)
            {
                opened.push(line);
            } else if is_open && ours.status >= 400 {
                lost.push(line);
            }
            served += usize::from(is_open);
            ran += usize::from(theirs.has_run);
        }
    }
    end(&mut server);
    println!(
        "{served} served by Apache, {ran} by a program; {} not here",
        lost.len()
    );
    assert!(opened.is_empty(), "{}", opened.join("\n\n"));
    assert!(ran > 50, "PHP runs there");
    assert!(lost.len() * 10 <= served * 2, "{}", lost.join("\n\n"));
}
