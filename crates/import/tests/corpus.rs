//! Replays the fuzzing corpora, and what chance makes of directives.

use import::{ImportOptions, apache, nginx};
use proptest::prelude::*;
use testkit::replay;

use crate::properties;

#[test]
fn import_nginx() {
    replay("import_nginx", properties::import_nginx);
}

#[test]
fn import_apache() {
    replay("import_apache", properties::import_apache);
}

/// Lines of a virtual host or a section of Apache's.
const APACHE: [&str; 65] = [
    "DirectoryIndex index.php index.html",
    "ErrorDocument 404 /errors/404.html",
    "ErrorDocument 500 \"broken\"",
    "Options Indexes FollowSymLinks",
    "Options -Indexes +SymLinksIfOwnerMatch +Includes",
    "AllowOverride All",
    "AllowOverride None",
    "Require all granted",
    "Require all denied",
    "Require ip 10.1 192.0.2.0/24",
    "Require not ip 10.1.2.3",
    "Require local",
    "Require valid-user",
    "Require group staff",
    "Require user alice",
    "Require host example.org",
    "AuthType Basic\nAuthName \"a \\\"b\"\nAuthUserFile /etc/pw",
    "AuthGroupFile /etc/groups",
    "Order allow,deny\nAllow from all\nDeny from 192.0.2.7",
    "Order deny,allow\nDeny from all\nAllow from localhost 10.",
    "Satisfy Any",
    "<RequireAll>\nRequire all granted\nRequire not ip 192.0.2.7\n</RequireAll>",
    "<RequireNone>\nRequire ip 192.0.2.7\n</RequireNone>",
    "Alias /img /srv/pictures/",
    "Alias /img/big/ /srv/big",
    "ScriptAlias /cgi-bin/ /usr/lib/cgi-bin/",
    "Redirect permanent /old /new",
    "Redirect / https://b.example/",
    "Redirect gone /gone",
    "RedirectMatch 301 ^/a/(.*)$ https://b.example/$1",
    "RewriteEngine On\nRewriteRule ^/x/(.*)$ /y.php?z=$1 [L,QSA]",
    "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /index.php [L]",
    "RewriteEngine On\nRewriteCond %{HTTPS} off\nRewriteRule ^ https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]",
    "RewriteEngine On\nRewriteCond %{QUERY_STRING} evil\nRewriteRule ^/p - [F]",
    "RewriteEngine On\nRewriteCond %{HTTP_USER_AGENT} bot [NC]\nRewriteCond %{HTTP_REFERER} !^http\nRewriteRule \\.(jpg)$ - [F]",
    "RewriteEngine On\nRewriteCond %{REQUEST_URI} !^/a\nRewriteCond %{REQUEST_URI} ^/b\nRewriteRule ^(.*)$ /c$1 [R=302]",
    "RewriteEngine On\nRewriteRule ^api/(.*)$ http://127.0.0.1:9000/$1 [P]",
    "RewriteRule ^/x /y",
    "FallbackResource /index.php",
    "ProxyPass /app/ http://127.0.0.1:9000/",
    "ProxyPass /app/img !",
    "ProxyPass / balancer://app/",
    "ProxyPass /gone balancer://gone/",
    "ProxyPassMatch ^/gone/(.*)$ balancer://gone/$1",
    "RewriteRule ^gone$ balancer://gone/ [P]",
    "ProxyPass /s unix:/run/a.sock|http://localhost/s",
    "ProxyPassMatch ^/(.*\\.php(/.*)?)$ fcgi://127.0.0.1:9000/srv/a/$1",
    "ProxyPreserveHost On",
    "SetHandler \"proxy:unix:/run/php.sock|fcgi://localhost\"",
    "SetHandler application/x-httpd-php",
    "SetHandler none",
    "AddHandler cgi-script .cgi .pl",
    "php_admin_value memory_limit 256M",
    "php_admin_flag engine off",
    "Header always set X-A b",
    "Header set X-A \"c d\" env=x",
    "Header append Vary Accept",
    "Header add Vary Cookie",
    "RequestHeader unset Proxy",
    "ExpiresActive On\nExpiresByType text/css \"access plus 7 days\"\nExpiresDefault A3600",
    "SetEnv A b",
    "SetEnvIf Request_URI ^/x y",
    "LimitRequestBody 1048576",
    "CustomLog /var/log/a.log combined",
    "Nonsense 1",
];

/// Sections of Apache's.
const SECTIONS: [&str; 16] = [
    "Directory /",
    "Directory /srv/a",
    "Directory /srv/a/in",
    "Directory /srv/*/in",
    "Directory /srv/pictures",
    "Directory /elsewhere",
    "DirectoryMatch ^/srv/a/x",
    "DirectoryMatch /\\.git",
    "Location /",
    "Location /staff",
    "LocationMatch ^/[ab]/[0-9]+$",
    "Files *.sql",
    "FilesMatch \\.php$",
    "FilesMatch ^\\.ht",
    "FilesMatch [0-9]{3}x",
    "LimitExcept GET POST",
];

fn section() -> impl Strategy<Value = String> {
    let inner = (proptest::sample::select(&SECTIONS[9..]), lines(&APACHE, 2));
    let inner = inner.prop_map(|(name, body)| closed(name, &body));
    let inner = proptest::collection::vec(inner, 0..2);
    let parts = (
        proptest::sample::select(&SECTIONS[..]),
        lines(&APACHE, 4),
        inner,
    );
    parts.prop_map(|(name, body, inner)| closed(name, &format!("{body}\n{}", inner.concat())))
}

fn closed(name: &str, body: &str) -> String {
    let (word, _) = name.split_once(' ').unwrap();
    format!("<{name}>\n{body}\n</{word}>\n")
}

fn host() -> impl Strategy<Value = String> {
    let sections = proptest::collection::vec(section(), 0..4);
    let address = proptest::sample::select(&["*:80", "*:443", "127.0.0.1:8080", "10.0.0.1:80"][..]);
    let name = proptest::sample::select(
        &[
            "ServerName a.example",
            "ServerName b.example:80\nServerAlias *.b.example",
            "",
            "ServerName a.example\nSSLEngine On\nSSLCertificateFile /etc/a.pem\nSSLCertificateKeyFile /etc/a.key",
        ][..],
    );
    let parts = (address, name, lines(&APACHE, 6), sections, any::<bool>());
    parts.prop_map(|(address, name, body, sections, rooted)| {
        let root = if rooted { "DocumentRoot /srv/a\n" } else { "" };
        closed(
            &format!("VirtualHost {address}"),
            &format!("{name}\n{root}{body}\n{}", sections.concat()),
        )
    })
}

/// Directives of a server or a location.
const NGINX: [&str; 68] = [
    "root /srv/a;",
    "root /srv/b/;",
    "alias /srv/pictures/;",
    "alias /srv/pictures;",
    "index index.php index.html;",
    "try_files $uri $uri/ /index.php?$args;",
    "try_files $uri =404;",
    "try_files $uri @app;",
    "try_files $uri/x /a/b.html;",
    "autoindex on;",
    "return 301 https://$host$request_uri;",
    "return 403;",
    "return 444;",
    "return 200 \"a $remote_addr\";",
    "return /x;",
    "rewrite ^/old/(.*)$ /new/$1 last;",
    "rewrite ^/(.*)$ https://b.example/$1 permanent;",
    "rewrite ^ /x?a=b? break;",
    "rewrite (?!a)b /$args redirect;",
    "if ($host = b.example) { return 301 https://a.example$request_uri; }",
    "if ($request_method !~ ^(GET|POST)$) { return 405; }",
    "if (!-e $request_filename) { rewrite ^(.*)$ /index.php?q=$1 last; }",
    "if ($args ~ evil) { return 403; }",
    "if ($http_user_agent ~* bot) { set $a 1; }",
    "if ($scheme = http) { return 301 https://$host$request_uri; }",
    "allow 10.0.0.0/8;",
    "allow 10.1.2.3/8;",
    "deny 10.1.0.0/16;",
    "deny all;",
    "allow all;",
    "deny unix:;",
    "satisfy any;",
    "auth_basic \"Sta\\\"ff\";",
    "auth_basic off;",
    "auth_basic_user_file htpasswd;",
    "limit_req zone=one burst=5;",
    "limit_conn two 10;",
    "limit_except GET POST { deny all; }",
    "add_header X-A b always;",
    "add_header X-A c;",
    "add_header Connection d;",
    "expires 30d;",
    "expires -1;",
    "error_page 404 500 /errors/404.html;",
    "error_page 404 = @app;",
    "client_max_body_size 0;",
    "proxy_read_timeout 5m;",
    "access_log /var/log/a.log main;",
    "access_log off;",
    "gzip on;",
    "gzip_types text/css application/json;",
    "proxy_pass http://127.0.0.1:9000;",
    "proxy_pass http://127.0.0.1:9000/;",
    "proxy_pass http://app/v2;",
    "proxy_pass http://gone/;",
    "proxy_pass https://back.example;",
    "proxy_pass http://$backend;",
    "proxy_set_header Host $host;",
    "proxy_set_header X-Real-IP $remote_addr;",
    "fastcgi_pass unix:/run/php.sock;",
    "fastcgi_pass php;",
    "fastcgi_pass gone;",
    "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;",
    "fastcgi_param A b;",
    "uwsgi_pass 127.0.0.1:1;",
    "internal;",
    "auth_request /auth;",
    "nonsense on;",
];

/// Locations.
const PLACES: [&str; 16] = [
    "/",
    "= /",
    "= /x.php",
    "/a",
    "/a/",
    "/a/b/",
    "^~ /a/static/",
    "^~ /b",
    "~ \\.php$",
    "~* \\.(jpg|css)$",
    "~ ^/c/(.+\\.php)(/.*)?$",
    "~ /\\.(?!well-known)",
    "~ ^/(?<name>[a-z]+)$",
    "~ (a)\\1",
    "@app",
    "/[x]*",
];

/// Servers' own directives.
const SERVERS: [&str; 12] = [
    "listen 80;",
    "listen 80 default_server;",
    "listen 443 ssl;",
    "listen 127.0.0.1:8080;",
    "listen 10.0.0.1:80;",
    "listen [::]:80;",
    "server_name a.example;",
    "server_name b.example *.b.example;",
    "server_name .c.example ~^x;",
    "server_name _;",
    "ssl_certificate /etc/ssl/a.pem;\nssl_certificate_key /etc/ssl/a.key;",
    "ssl_verify_client on;\nssl_client_certificate /etc/ssl/ca.pem;",
];

const HEAD: &str = "limit_req_zone $binary_remote_addr zone=one:1m rate=5r/s;\nlimit_conn_zone $server_name zone=two:1m;\n\
    log_format main '$remote_addr $request_time';\nupstream app { server 127.0.0.1:1 weight=2; server b.example:2 backup; }\n\
    upstream php { server unix:/run/php.sock; keepalive 4; }\nupstream gone { server 127.0.0.1:2 down; }\nset_real_ip_from 192.0.2.0/24;\n";

fn lines(of: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let lines = proptest::collection::vec(proptest::sample::select(of), 0..most);
    lines.prop_map(|lines| lines.join("\n"))
}

fn location() -> impl Strategy<Value = String> {
    let inner = (proptest::sample::select(&PLACES[..]), lines(&NGINX, 3));
    let inner = inner.prop_map(|(place, body)| format!("location {place} {{ {body} }}"));
    let inner = proptest::collection::vec(inner, 0..2);
    let parts = (
        proptest::sample::select(&PLACES[..]),
        lines(&NGINX, 5),
        inner,
    );
    parts.prop_map(|(place, body, inner)| {
        format!("location {place} {{ {body} {} }}\n", inner.join("\n"))
    })
}

fn server() -> impl Strategy<Value = String> {
    let locations = proptest::collection::vec(location(), 0..5);
    let parts = (lines(&SERVERS, 4), lines(&NGINX, 4), locations);
    parts.prop_map(|(own, body, locations)| {
        format!("server {{ {own} {body} {} }}\n", locations.concat())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_is_a_configuration_and_every_line_has_one_class(
        servers in proptest::collection::vec(server(), 1..4),
        is_plain in any::<bool>(),
    ) {
        let body = format!("{HEAD}{}", servers.concat());
        let text = if is_plain { body } else { format!("http {{ {body} }}") };
        let imported = nginx(text.as_bytes(), &ImportOptions::default()).unwrap();
        // No `;` or `{` of these stands in quotes, and a variable has no braces.
        let directives = text.matches([';', '{']).count();
        prop_assert_eq!(imported.lines.len(), directives, "{}", text);
        prop_assert_eq!(imported.totals().values().sum::<usize>(), directives);
        properties::passes(&imported);
    }

    #[test]
    fn apaches_hosts_are_a_configuration_and_every_line_has_one_class(
        hosts in proptest::collection::vec(host(), 1..4),
        global in lines(&APACHE, 4),
        own_pools in any::<bool>(),
    ) {
        let balancer = "Listen 80\n<Proxy balancer://app>\nBalancerMember http://127.0.0.1:1\n</Proxy>\n";
        let text = format!("{balancer}{global}\n{}", hosts.concat());
        let options = ImportOptions { own_pools, ..ImportOptions::default() };
        let imported = apache(text.as_bytes(), &options).unwrap();
        let directives = text.lines().filter(|line| !line.is_empty() && !line.starts_with("</")).count();
        prop_assert_eq!(imported.lines.len(), directives, "{}", text);
        properties::passes(&imported);
    }

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        properties::import_nginx(&bytes);
        properties::import_apache(&bytes);
    }

    #[test]
    fn any_pieces_are_taken_or_refused(
        pieces in proptest::collection::vec(
            proptest::sample::select(&["server", "location", " ", "{", "}", ";", "\"", "'", "\\", "$", "${a}", "\n", "#", "~",
                "root /a;", "listen 80;", "server_name a;", "if", "(", ")", "deny all;", "include x;", "é"][..]),
            0..60,
        ),
    ) {
        properties::import_nginx(pieces.concat().as_bytes());
    }
}
